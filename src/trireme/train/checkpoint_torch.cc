#include "trireme/train/checkpoint_torch.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/spec/json_guard.h"
#include "trireme/tensor/adaptor_torch.h"
#include "trireme/tensor/safetensors.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Tensors = std::map<std::string, at::Tensor>;

constexpr const char* kIndex = "index.json";
constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr std::string_view kStep = "step_";

// The number in "step_N", or nothing for another name.
std::optional<int64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  int64_t step = 0;
  if (!name.starts_with(kStep)) return {};
  const char *first = name.data() + kStep.size(), *last = name.data() + name.size();
  const auto [end, error] = std::from_chars(first, last, step);
  if (error != std::errc{} || end != last || step < 0) return {};
  return step;
}

fs::path folder_of(const fs::path& checkpoints, int64_t step) {
  return checkpoints / cat(kStep, step);
}

void write_tensors(const fs::path& path, const Tensors& tensors) {
  std::map<std::string, tensor::SafetensorsEntry> entries;
  std::vector<at::Tensor> alive;  // contiguous CPU copies, where the tensor is not that already
  for (const auto& [name, t] : tensors) {
    alive.push_back(t.detach().to(at::kCPU).contiguous());
    const tensor::TensorView view = tensor::view_of(alive.back());
    entries[name] = {view.dtype, t.sizes().vec(), view.raw()};
  }
  tensor::write_safetensors(path, entries, {{"format", "pt"}});
}

Tensors read_tensors(const fs::path& path) {
  const tensor::SafetensorsFile file(path);
  Tensors tensors;
  for (const auto& [name, entry] : file.entries()) {
    at::Tensor t = at::empty(entry.shape, tensor::to_torch(entry.dtype));
    if (!entry.bytes.empty()) std::memcpy(t.mutable_data_ptr(), entry.bytes.data(), entry.bytes.size());
    tensors[name] = std::move(t);
  }
  return tensors;
}

json file_facts(const fs::path& path, size_t tensors) {
  return {{"bytes", fs::file_size(path)}, {"tensors", tensors}};
}

std::string index_text(const fs::path& folder, const Checkpoint& c) {
  json extra = json::object();
  for (const auto& [key, text] : c.extra) extra[key] = json::parse(text);
  const json index{{"version", Checkpoint::kVersion},
                   {"kind", "checkpoint"},
                   {"step", c.step},
                   {"samples", c.samples},
                   {"seed", c.seed},
                   {"graph_fingerprint", c.graph_fingerprint},
                   {"world_size", c.world_size},
                   {"tied", c.tied},
                   {"extra", extra},
                   {"files",
                    {{kModel, file_facts(folder / kModel, c.model.size())},
                     {kOptimizer, file_facts(folder / kOptimizer, c.optimizer.size())}}}};
  return index.dump(2) + "\n";
}

void write_folder(const fs::path& folder, const Checkpoint& checkpoint) {
  write_tensors(folder / kModel, checkpoint.model);
  write_tensors(folder / kOptimizer, checkpoint.optimizer);
  write_file(folder / kIndex, index_text(folder, checkpoint));
  sync_path(folder);
}

// Every name that is not yet, or no longer, a checkpoint starts with a dot.
constexpr std::string_view kHidden = ".", kTemporary = ".tmp-", kAside = ".old-";

void publish(const fs::path& temporary, const fs::path& final) {
  // A folder cannot be renamed over another one; the older attempt's steps aside first.
  const fs::path aside = final.parent_path() / cat(kAside, final.filename().string());
  const bool replaces = fs::exists(final);
  if (replaces) fs::rename(final, aside);
  fs::rename(temporary, final);
  sync_path(final.parent_path());
  if (replaces) fs::remove_all(aside);
}

void remove_superseded(const fs::path& checkpoints, int64_t step, int64_t keep_last) {
  std::vector<int64_t> steps = checkpoint_steps(checkpoints);
  std::erase_if(steps, [&](int64_t s) {
    if (s > step) fs::remove_all(folder_of(checkpoints, s));
    return s > step;
  });
  const auto keep = static_cast<size_t>(keep_last);
  for (size_t i = 0; keep > 0 && i + keep < steps.size(); ++i)
    fs::remove_all(folder_of(checkpoints, steps[i]));
}

}  // namespace

void remove_unfinished(const fs::path& checkpoints) {
  std::vector<fs::path> hidden;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(checkpoints, none)) {
    if (entry.is_directory() && entry.path().filename().string().starts_with(kHidden))
      hidden.push_back(entry.path());
  }
  for (const fs::path& path : hidden) {
    const std::string name = path.filename().string();
    const fs::path replaced = checkpoints / name.substr(std::min(name.size(), kAside.size()));
    // A crash between the two renames of publish(): the old one is still the newest complete checkpoint.
    if (name.starts_with(kAside) && !fs::exists(replaced)) {
      fs::rename(path, replaced);
    } else {
      fs::remove_all(path);
    }
  }
}

std::vector<int64_t> checkpoint_steps(const fs::path& checkpoints) {
  std::vector<int64_t> steps;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(checkpoints, none)) {
    const auto step = step_of(entry.path());
    if (step && fs::exists(entry.path() / kIndex)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

fs::path save_checkpoint(const fs::path& checkpoints, const Checkpoint& checkpoint, int64_t keep_last) {
  const fs::path final = folder_of(checkpoints, checkpoint.step);
  const fs::path temporary = checkpoints / cat(kTemporary, kStep, checkpoint.step);
  try {
    fs::create_directories(checkpoints);
    remove_unfinished(checkpoints);
    fs::create_directory(temporary);
    write_folder(temporary, checkpoint);
    publish(temporary, final);
    remove_superseded(checkpoints, checkpoint.step, keep_last);
  } catch (const fs::filesystem_error& e) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    fail(ErrorCode::io, final.string(), ": cannot write: ", e.code().message());
  } catch (const Error&) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  return final;
}

fs::path find_checkpoint(const fs::path& where) {
  if (!fs::exists(where)) fail(ErrorCode::input, where.string(), ": no such run or checkpoint folder");
  if (step_of(where.filename().empty() ? where.parent_path() : where)) {
    if (!fs::exists(where / kIndex)) {
      fail(ErrorCode::input, where.string(), ": not a complete checkpoint, it has no ", kIndex);
    }
    return where;
  }
  for (const fs::path& folder : {where / "checkpoints", where}) {
    const auto steps = checkpoint_steps(folder);
    if (!steps.empty()) return folder_of(folder, steps.back());
  }
  fail(ErrorCode::input, where.string(), ": holds no complete checkpoint (checkpoints/step_N with ", kIndex,
       ")");
}

namespace {

json read_index(const fs::path& path) {
  const std::string text = read_file(path);
  try {
    spec::check_json_depth(text);  // parts of it are printed again, which recurses
    return json::parse(text);
  } catch (const std::exception& e) {
    fail(ErrorCode::input, path.string(), ": broken: ", e.what());
  }
}

Tensors read_checked(const fs::path& path, const json& facts) {
  const auto bytes = facts.at("bytes").get<uint64_t>();
  std::error_code missing;
  const auto found = fs::file_size(path, missing);
  if (missing) fail(ErrorCode::input, path.string(), ": missing, though ", kIndex, " lists it");
  if (found != bytes) {
    fail(ErrorCode::input, path.string(), ": has ", found, " bytes, ", kIndex, " says ", bytes,
         ": truncated or changed");
  }
  Tensors tensors = read_tensors(path);
  if (tensors.size() != facts.at("tensors").get<size_t>()) {
    fail(ErrorCode::input, path.string(), ": has ", tensors.size(), " tensors, ", kIndex, " says ",
         facts.at("tensors").dump());
  }
  return tensors;
}

}  // namespace

Checkpoint load_checkpoint(const fs::path& step_folder) {
  const fs::path path = step_folder / kIndex;
  try {
    const json index = read_index(path);
    const int version = index.at("version").get<int>();
    if (version != Checkpoint::kVersion) {
      fail(ErrorCode::unsupported, path.string(), ": version ", version, ", this program reads ",
           Checkpoint::kVersion);
    }
    Checkpoint c;
    c.step = index.at("step").get<int64_t>();
    c.samples = index.at("samples").get<int64_t>();
    c.seed = index.at("seed").get<uint64_t>();
    c.graph_fingerprint = index.at("graph_fingerprint").get<uint64_t>();
    c.world_size = index.at("world_size").get<int>();
    c.tied = index.at("tied").get<std::map<std::string, std::string>>();
    for (const auto& [key, value] : index.at("extra").items()) c.extra[key] = value.dump();
    c.model = read_checked(step_folder / kModel, index.at("files").at(kModel));
    c.optimizer = read_checked(step_folder / kOptimizer, index.at("files").at(kOptimizer));
    return c;
  } catch (const json::exception& e) {
    fail(ErrorCode::input, path.string(), ": broken: ", e.what());
  }
}

}  // namespace trireme::train
