// Damaged files must end in an Error, never in a crash. The damage is random, with a fixed seed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/graph/pt2_graph.h"
#include "trireme/graph/pt2_reader.h"
#include "trireme/graph/test_archive.h"

namespace trireme::graph {
namespace {

using nlohmann::json;

std::filesystem::path model(const std::string& name) {
  return std::filesystem::path(TRIREME_TEST_DATA) / (name + ".pt2");
}

class Dice {
 public:
  explicit Dice(uint64_t stream) : random_(2024, stream) {}
  size_t below(size_t bound) { return random_.next_u64() % bound; }

 private:
  PhiloxStream random_;
};

// Opens it and touches all that a loader touches.
void read_everything(const std::filesystem::path& path) {
  const Pt2File file(path);
  for (const auto& [name, weight] : file.graph().weights) file.storage(weight.storage);
  spec::graph_from_json(spec::to_json(file.graph()));
}

std::string damaged(std::string bytes, Dice& dice) {
  for (size_t edits = 1 + dice.below(4); edits > 0 && !bytes.empty(); --edits) {
    const size_t at = dice.below(bytes.size());
    switch (dice.below(5)) {
      case 0:
        bytes[at] = static_cast<char>(dice.below(256));
        break;
      case 1:
        bytes.erase(at, 1 + dice.below(64));
        break;
      case 2:
        bytes.insert(at, bytes.substr(dice.below(bytes.size()), dice.below(64)));
        break;
      case 3:
        bytes.resize(at);
        break;
      // Sizes and offsets of extremes.
      default:
        bytes.replace(at, 4, dice.below(2) == 0 ? "\xff\xff\xff\xff" : std::string(4, '\0'));
        break;
    }
  }
  return bytes;
}

TEST(Pt2Fuzz, DamagedArchivesEndInAnError) {
  const std::string whole = read_file(model("mlp"));
  TestFile file;
  int refused = 0;
  for (int i = 0; i < 1500; ++i) {
    Dice dice(static_cast<uint64_t>(i));
    file.write(damaged(whole, dice));
    try {
      read_everything(file.path());
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1200);
}

// Damage near the end, where the directory lies.
TEST(Pt2Fuzz, DamagedDirectoriesEndInAnError) {
  const std::string whole = read_file(model("mlp"));
  const size_t tail = 2500;
  TestFile file;
  int refused = 0;
  for (int i = 0; i < 1500; ++i) {
    Dice dice(1'000'000 + static_cast<uint64_t>(i));
    file.write(whole.substr(0, whole.size() - tail) + damaged(whole.substr(whole.size() - tail), dice));
    try {
      read_everything(file.path());
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1200);
}

json random_value(Dice& dice, const json& whole) {
  switch (dice.below(9)) {
    case 0:
      return nullptr;
    case 1:
      return -1;
    case 2:
      return std::numeric_limits<int64_t>::max();
    case 3:
      return std::numeric_limits<uint64_t>::max();
    case 4:
      return "x";
    case 5:
      return 1e300;
    case 6:
      return json::array();
    case 7:
      return json::object();
    default: {  // something from elsewhere in the file
      auto found = whole.begin();
      std::advance(found, dice.below(whole.size()));
      return *found;
    }
  }
}

// Valid JSON of the wrong content.
TEST(Pt2Fuzz, DamagedGraphsEndInAnError) {
  for (const char* name : {"mlp", "regions"}) {
    const json flat = json::parse(TestArchive::of(model(name)).entry("models/model.json").data).flatten();
    int refused = 0;
    for (int i = 0; i < 600; ++i) {
      Dice dice(2'000'000 + static_cast<uint64_t>(i));
      json changed = flat;
      for (size_t edits = 1 + dice.below(3); edits > 0; --edits) {
        auto leaf = changed.begin();
        std::advance(leaf, dice.below(changed.size()));
        // unflatten() takes only plain values and empty containers, as all these are.
        if (dice.below(5) == 0)
          changed.erase(leaf);
        else
          leaf.value() = random_value(dice, flat);
      }
      try {
        const auto graph = parse_pt2_graph(changed.unflatten().dump());
        spec::graph_from_json(spec::to_json(graph));
        spec::to_text(graph);
      } catch (const Error&) {
        ++refused;
      } catch (const json::exception&) {
        // unflatten() could not build it: the damage contradicts itself.
      }
    }
    EXPECT_GT(refused, 100) << name;
  }
}

}  // namespace
}  // namespace trireme::graph
