#include "trireme/graph/pt2_reader.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/graph/pt2_graph.h"
#include "trireme/graph/zip_reader.h"

namespace trireme::graph {
namespace {

constexpr std::string_view kModels = "models/", kJson = ".json";
constexpr std::string_view kExportAgain = "export again with torch 2.11 or newer";
constexpr std::string_view kOldModel = "serialized_exported_program.json";

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool has_entry(const ZipReader& zip, std::string_view ending) {
  return std::any_of(zip.entries().begin(), zip.entries().end(),
                     [&](const auto& entry) { return std::string_view(entry.first).ends_with(ending); });
}

// All entries lie in one folder, named after the file that was saved first; a renamed file keeps it.
std::string find_root(const ZipReader& zip) {
  if (has_entry(zip, kOldModel))
    fail(ErrorCode::input, "exported by torch 2.7 or older, whose format is no longer read: ", kExportAgain);
  std::optional<std::string> root;
  for (const auto& [name, entry] : zip.entries()) {
    const auto slash = name.find('/');
    if (slash == std::string::npos)
      fail(ErrorCode::input, "not a torch.export archive: entry '", name, "' lies in no folder");
    const auto folder = name.substr(0, slash + 1);
    if (root.value_or(folder) != folder)
      fail(ErrorCode::input, "not a torch.export archive: it has the folders '", *root, "' and '", folder,
           "'");
    root = folder;
  }
  if (!root) fail(ErrorCode::input, "the archive is empty");
  if (!zip.contains(*root + "archive_format"))
    fail(ErrorCode::input, has_entry(zip, "data.pkl") ? "a torch.save or TorchScript file" : "a zip",
         ", not an archive of torch.export.save");
  return *root;
}

void check_header(const ZipReader& zip, const std::string& root) {
  const auto expect = [&](const char* record, std::string_view wanted) {
    const auto found = as_text(zip.read(root + record));
    if (found != wanted)
      fail(ErrorCode::input, record, " is '", found.substr(0, 40), "', not '", wanted, "'");
  };
  expect("archive_format", "pt2");
  if (zip.contains(root + "archive_version")) expect("archive_version", "0");
  if (zip.contains(root + "byteorder")) expect("byteorder", "little");
}

std::string find_model(const ZipReader& zip, const std::string& root) {
  std::vector<std::string> models;
  for (const auto& [name, entry] : zip.entries())
    if (name.starts_with(root + std::string(kModels)) && name.ends_with(kJson))
      models.push_back(name.substr(root.size() + kModels.size(),
                                   name.size() - root.size() - kModels.size() - kJson.size()));
  if (models.size() == 1) return models[0];
  if (std::find(models.begin(), models.end(), "model") != models.end()) return "model";
  if (!models.empty())
    fail(ErrorCode::input, "holds several models ('", models[0], "', '", models[1],
         "', …), none of them named 'model'");
  if (std::any_of(zip.entries().begin(), zip.entries().end(), [](const auto& entry) {
        return entry.first.find("/data/aotinductor/") != std::string::npos;
      }))
    fail(ErrorCode::input,
         "a compiled AOTInductor package without a graph; save the exported program with torch.export.save");
  fail(ErrorCode::input, "holds no models/*.json");
}

// Bytes of the storage that the weight's last element needs.
uint64_t bytes_needed(const spec::Weight& weight) {
  const auto wrong = [] { fail(ErrorCode::input, "its sizes, strides and offset are impossible"); };
  if (weight.storage_offset < 0 || weight.sizes.size() != weight.strides.size()) wrong();
  if (spec::count(weight.sizes) == 0) return 0;
  int64_t last = weight.storage_offset;
  for (size_t i = 0; i < weight.sizes.size(); ++i) {
    int64_t distance;
    if (weight.strides[i] < 0 || __builtin_mul_overflow(weight.sizes[i] - 1, weight.strides[i], &distance) ||
        __builtin_add_overflow(last, distance, &last))
      wrong();
  }
  int64_t bytes;
  if (__builtin_add_overflow(last, 1, &last) ||
      __builtin_mul_overflow(last, static_cast<int64_t>(spec::size_of(weight.dtype)), &bytes))
    wrong();
  return static_cast<uint64_t>(bytes);
}

void check_weight(const ZipReader& zip, const std::string& root, const spec::Weight& weight) {
  const auto found = zip.entries().find(root + weight.storage);
  if (found == zip.entries().end()) fail(ErrorCode::input, "its record ", weight.storage, " is missing");
  const uint64_t size = found->second.size, needed = bytes_needed(weight);
  if (size == 0 && needed > 0)
    fail(ErrorCode::input, "its values were not saved: the model was exported under a fake tensor mode");
  if (size < needed || size % spec::size_of(weight.dtype) != 0)
    fail(ErrorCode::input, "its record ", weight.storage, " has ", size, " bytes, which do not match shape ",
         spec::to_text(weight.sizes), " of ", spec::name(weight.dtype), " (", needed, " bytes)");
}

// Each parameter, buffer and constant has a weight of the shape that the graph gives it.
void check_inputs(const spec::Graph& graph) {
  for (const auto& input : graph.inputs) {
    if (input.kind == spec::InputKind::user || input.kind == spec::InputKind::literal) continue;
    const auto found = graph.weights.find(input.name);
    if (found == graph.weights.end()) fail(ErrorCode::input, "weight '", input.name, "' is missing");
    const auto& value = graph.values.at(static_cast<size_t>(input.value));
    spec::Shape shape;
    for (const auto& dim : value.sizes) shape.push_back(dim.hint);
    if (value.kind != spec::ValueKind::tensor || shape != found->second.sizes ||
        value.dtype != found->second.dtype)
      fail(ErrorCode::input, "weight '", input.name, "' is ", spec::to_text(found->second.sizes), " of ",
           spec::name(found->second.dtype), ", the graph expects ", spec::to_text(shape), " of ",
           spec::name(value.dtype));
  }
}

}  // namespace

struct Pt2File::State {
  std::filesystem::path path;
  ZipReader zip;
  std::string root;  // "model/"
  spec::Graph graph;

  explicit State(const std::filesystem::path& p) : path(p), zip(p) {}

  void read() {
    root = find_root(zip);
    check_header(zip, root);
    const std::string model = find_model(zip, root);
    const auto within = [this](const std::string& record, const auto& parse) {
      const auto text = as_text(zip.read(root + record));
      try {
        parse(text);
      } catch (const Error& e) {
        fail(e.code(), record, ": ", e.what());
      }
    };
    within("models/" + model + ".json", [this](auto text) { graph = parse_pt2_graph(text); });
    for (const std::string folder : {"data/weights/", "data/constants/"})
      if (zip.contains(root + folder + model + ".pt"))
        fail(ErrorCode::input, "its weights are pickled (", folder, model,
             ".pt), as older versions of torch wrote them: ", kExportAgain);
    for (const std::string folder : {"data/weights/", "data/constants/"}) {
      const char* kind = folder == "data/weights/" ? "_weights_config.json" : "_constants_config.json";
      within(folder + model + kind, [&](auto text) { parse_pt2_weights(text, folder, graph.weights); });
    }
    for (const auto& [name, weight] : graph.weights) {
      try {
        check_weight(zip, root, weight);
      } catch (const Error& e) {
        fail(e.code(), "weight '", name, "': ", e.what());
      }
    }
    check_inputs(graph);
  }
};

Pt2File::Pt2File(const std::filesystem::path& path) : state_(std::make_unique<State>(path)) {
  try {
    state_->read();
  } catch (const Error& e) {
    const std::string what = e.what();
    fail(e.code(), what.starts_with(path.string()) ? "" : path.string() + ": ", what);
  }
}

Pt2File::~Pt2File() = default;
const std::filesystem::path& Pt2File::path() const {
  return state_->path;
}
const spec::Graph& Pt2File::graph() const {
  return state_->graph;
}
std::span<const std::byte> Pt2File::storage(const std::string& record) const {
  return state_->zip.read(state_->root + record);
}

}  // namespace trireme::graph
