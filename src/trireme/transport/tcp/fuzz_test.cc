// The fuzzer's corpus, and mutations of it with a fixed seed; `make fuzz` searches for more.
#include <gtest/gtest.h>

#include <filesystem>

#include "trireme/base/files.h"
#include "trireme/base/rng.h"
#include "trireme/transport/tcp/fuzz_for_tests.h"

namespace trireme::transport::tcp {
namespace {

std::vector<std::vector<uint8_t>> corpus() {
  std::vector<std::vector<uint8_t>> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(TRIREME_FUZZ_CORPUS)) {
    const std::string bytes = read_file(entry.path());
    inputs.emplace_back(bytes.begin(), bytes.end());
  }
  std::sort(inputs.begin(), inputs.end());  // folders have no order
  return inputs;
}

TEST(Fuzz, TheCorpusIsHarmless) {
  const auto inputs = corpus();
  EXPECT_GT(inputs.size(), 20u);
  for (const auto& input : inputs) fuzz_one(input);
}

TEST(Fuzz, MutationsAreHarmless) {
  const auto inputs = corpus();
  PhiloxStream rng(7, 0);
  const auto below = [&](size_t bound) { return rng.next_u64() % bound; };
  for (int turn = 0; turn < 20'000; ++turn) {
    auto input = inputs[below(inputs.size())];
    for (size_t edits = 1 + below(4); edits > 0 && !input.empty(); --edits) {
      const auto at = input.begin() + static_cast<std::ptrdiff_t>(below(input.size()));
      switch (below(4)) {
        case 0:
          *at = static_cast<uint8_t>(below(256));
          break;
        case 1:
          *at ^= static_cast<uint8_t>(1 << below(8));
          break;
        case 2:
          input.erase(at, at + std::min<std::ptrdiff_t>(input.end() - at,
                                                        static_cast<std::ptrdiff_t>(1 + below(40))));
          break;
        default: {
          const auto& other = inputs[below(inputs.size())];
          input.insert(at, other.begin(),
                       other.begin() + static_cast<std::ptrdiff_t>(below(other.size() + 1)));
        }
      }
    }
    fuzz_one(input);
  }
}

}  // namespace
}  // namespace trireme::transport::tcp
