#include "trireme/graph/weights_torch.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <regex>
#include <set>

#include "trireme/base/error.h"
#include "trireme/tensor/adaptor_torch.h"
#include "trireme/tensor/safetensors.h"

namespace trireme::graph {
namespace {

using spec::InputKind;

// Two weights are one tensor when they are the same view of the same storage.
auto view_key(const spec::Weight& w) {
  return std::tie(w.storage, w.dtype, w.storage_offset, w.sizes, w.strides);
}

bool is_weight(const spec::GraphInput& input) {
  return input.kind != InputKind::user && input.kind != InputKind::literal;
}

class Loader {
 public:
  Loader(const Pt2File& file, const ExecutorOptions& options, c10::Device device)
      : file_(file), graph_(file.graph()), options_(options), device_(device) {}

  Weights load() {
    find_needed_storages();
    Weights weights;
    for (const bool persistent : {true, false})
      for (size_t i = 0; i < graph_.inputs.size(); ++i) {
        const auto& input = graph_.inputs[i];
        if (is_weight(input) && input.persistent == persistent) add(weights, i);
      }
    add_unread_aliases(weights.parameters);
    add_unread_aliases(weights.buffers);
    return weights;
  }

 private:
  // Without load_weights, storages that only parameters view are not read from the file.
  void find_needed_storages() {
    for (const auto& input : graph_.inputs)
      if (is_weight(input) && (input.kind != InputKind::parameter || options_.load_weights))
        needed_.insert(graph_.weights.at(input.name).storage);
  }

  const at::Storage& storage(const std::string& record) {
    const auto found = storages_.find(record);
    if (found != storages_.end()) return found->second;
    const auto bytes = file_.storage(record);
    at::Tensor memory = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
    if (needed_.contains(record) && !bytes.empty())
      std::memcpy(memory.data_ptr(), bytes.data(), bytes.size());
    return storages_.emplace(record, memory.to(device_).storage()).first->second;
  }

  at::Tensor make(const spec::Weight& weight) {
    const auto options = at::TensorOptions(tensor::to_torch(weight.dtype)).device(device_);
    at::Tensor view = at::empty({0}, options);
    view.set_(storage(weight.storage), weight.storage_offset, weight.sizes, weight.strides);
    return view;
  }

  void add(Weights& weights, size_t index) {
    const auto& input = graph_.inputs[index];
    const auto& weight = graph_.weights.at(input.name);
    auto& list = input.kind == InputKind::parameter ? weights.parameters : weights.buffers;
    weights.inputs.resize(graph_.inputs.size());
    if (input.kind == InputKind::constant) {
      weights.inputs[index] = make(weight);
      return;
    }
    const auto same = std::find_if(list.begin(), list.end(), [&](const Parameter& p) {
      return view_key(graph_.weights.at(p.name)) == view_key(weight);
    });
    if (same != list.end()) {
      if (same->name != input.name) same->aliases.push_back(input.name);
      weights.inputs[index] = same->tensor;
      return;
    }
    list.push_back({input.name, make(weight), {}});
    weights.inputs[index] = list.back().tensor;
  }

  // Names of the state dict that the graph does not read itself, but under another name.
  void add_unread_aliases(std::vector<Parameter>& list) const {
    std::set<std::string> read;
    for (const auto& input : graph_.inputs) read.insert(input.name);
    for (const auto& [name, weight] : graph_.weights)
      for (auto& p : list)
        if (!read.contains(name) && view_key(graph_.weights.at(p.name)) == view_key(weight))
          p.aliases.push_back(name);
  }

  const Pt2File& file_;
  const spec::Graph& graph_;
  const ExecutorOptions& options_;
  c10::Device device_;
  std::set<std::string> needed_;
  std::map<std::string, at::Storage> storages_;
};

// A list of names in an error stays one readable line.
class Names {
 public:
  void add(const std::string& name) {
    if (count_++ < kShown) text_ += (text_.empty() ? "" : ", ") + name;
  }
  bool empty() const { return count_ == 0; }
  std::string text() const { return count_ > kShown ? cat(text_, " and ", count_ - kShown, " more") : text_; }

 private:
  static constexpr size_t kShown = 5;
  size_t count_ = 0;
  std::string text_;
};

std::filesystem::path weights_file(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return path;
  const auto inside = path / "model.safetensors";
  if (!std::filesystem::exists(inside))
    fail(ErrorCode::input, path.string(), ": the folder holds no model.safetensors");
  return inside;
}

// Replaces the archive's values by those of a safetensors file, by name.
class FileWeights {
 public:
  explicit FileWeights(const std::filesystem::path& path) : path_(weights_file(path)), file_(path_) {}

  void copy_into(const std::vector<Parameter>& parameters, bool required) {
    for (const auto& p : parameters) {
      const tensor::SafetensorsEntry* chosen = nullptr;
      std::string chosen_name;
      for (const auto& name : names_of(p)) {
        const auto found = file_.entries().find(name);
        if (found == file_.entries().end()) continue;
        known_.insert(name);
        if (chosen == nullptr) {
          chosen = &found->second;
          chosen_name = name;
        } else if (!equal(*chosen, found->second)) {
          fail(ErrorCode::input, path_.string(), ": '", chosen_name, "' and '", name,
               "' are one tensor in the model, but differ in the file");
        }
      }
      if (chosen != nullptr)
        copy(chosen_name, *chosen, p.tensor);
      else if (required)
        missing_.add("'" + p.name + "'");
    }
  }

  void check(const spec::Graph& graph) {
    Names extra;
    std::vector<std::string> names;
    for (const auto& [name, weight] : graph.weights) names.push_back(name);
    for (const auto& [name, entry] : file_.entries())
      if (!known_.contains(name) && !graph.weights.contains(name)) {
        const auto near = nearest(name, names);
        extra.add("'" + name + "'" + (near.empty() ? "" : " (did you mean '" + near + "'?)"));
      }
    std::string what;
    const auto add = [&what](const char* kind, const Names& names) {
      if (!names.empty()) what += (what.empty() ? "" : "; ") + std::string(kind) + names.text();
    };
    add("missing: ", missing_);
    add("not in the model: ", extra);
    add("of another shape or type: ", misshaped_);
    if (!what.empty()) fail(ErrorCode::input, path_.string(), ": the weights do not fit the model; ", what);
  }

 private:
  static std::vector<std::string> names_of(const Parameter& p) {
    std::vector<std::string> names{p.name};
    names.insert(names.end(), p.aliases.begin(), p.aliases.end());
    return names;
  }
  static bool equal(const tensor::SafetensorsEntry& a, const tensor::SafetensorsEntry& b) {
    return a.dtype == b.dtype && a.shape == b.shape && std::ranges::equal(a.bytes, b.bytes);
  }

  void copy(const std::string& name, const tensor::SafetensorsEntry& entry, const at::Tensor& target) {
    const auto type = tensor::to_torch(entry.dtype);
    const bool converts = at::isFloatingType(type) && target.is_floating_point();
    if (target.sizes() != at::IntArrayRef(entry.shape) || (type != target.scalar_type() && !converts)) {
      const auto& shape = target.sizes();
      misshaped_.add(cat("'", name, "' (", spec::to_text(entry.shape), " of ", spec::name(entry.dtype),
                         ", the model has ", spec::to_text({shape.begin(), shape.end()}), " of ",
                         spec::name(tensor::from_torch(target.scalar_type())), ")"));
      return;
    }
    // The file aligns its data to bytes only.
    at::Tensor aligned = at::empty(entry.shape, type);
    if (!entry.bytes.empty()) std::memcpy(aligned.data_ptr(), entry.bytes.data(), entry.bytes.size());
    target.detach().copy_(aligned);
  }

  std::filesystem::path path_;
  tensor::SafetensorsFile file_;
  std::set<std::string> known_;
  Names missing_, misshaped_;
};

void set_requires_grad(const spec::Graph& graph, const std::vector<std::string>& freeze,
                       std::vector<Parameter>& parameters) {
  std::vector<std::pair<std::regex, bool>> patterns;
  for (const auto& text : freeze) {
    try {
      patterns.emplace_back(std::regex(text), false);
    } catch (const std::regex_error& e) {
      fail(ErrorCode::usage, "model.freeze: '", text, "' is not a regular expression: ", e.what());
    }
  }
  for (auto& p : parameters) {
    bool frozen = !graph.weights.at(p.name).requires_grad;
    for (auto& [pattern, used] : patterns) {
      bool matches = std::regex_search(p.name, pattern);
      for (const auto& alias : p.aliases) matches |= std::regex_search(alias, pattern);
      used |= matches;
      frozen |= matches;
    }
    p.tensor.set_requires_grad(!frozen && (p.tensor.is_floating_point() || p.tensor.is_complex()));
  }
  for (size_t i = 0; i < patterns.size(); ++i)
    if (!patterns[i].second)
      fail(ErrorCode::usage, "model.freeze: '", freeze[i], "' matches no parameter of the model");
}

}  // namespace

Weights load_weights(const Pt2File& file, const ExecutorOptions& options, c10::Device device) {
  Weights weights;
  tensor::translate_torch_errors(file.path().string(), [&] {
    const at::NoGradGuard no_grad;
    weights = Loader(file, options, device).load();
    weights.inputs.resize(file.graph().inputs.size());
    if (options.load_weights && !options.weights.empty()) {
      FileWeights replacement(options.weights);
      replacement.copy_into(weights.parameters, true);
      const auto& inputs = file.graph().inputs;
      const auto is_persistent = [&inputs](const Parameter& p) {
        return std::any_of(inputs.begin(), inputs.end(),
                           [&](const auto& i) { return i.name == p.name && i.persistent; });
      };
      for (const auto& buffer : weights.buffers) replacement.copy_into({buffer}, is_persistent(buffer));
      replacement.check(file.graph());
    }
    set_requires_grad(file.graph(), options.freeze, weights.parameters);
  });
  return weights;
}

}  // namespace trireme::graph
