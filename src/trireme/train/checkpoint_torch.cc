#include "trireme/train/checkpoint_torch.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json_problem.h"
#include "trireme/spec/json_guard.h"
#include "trireme/tensor/adaptor_torch.h"
#include "trireme/tensor/safetensors.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Tensors = std::map<std::string, at::Tensor>;

constexpr const char* kIndex = kCheckpointIndex;
constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kCodec = "codec.safetensors";  // only where a codec remembers something

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
  json files{{kModel, file_facts(folder / kModel, c.model.size())},
             {kOptimizer, file_facts(folder / kOptimizer, c.optimizer.size())}};
  if (!c.codec.empty()) files[kCodec] = file_facts(folder / kCodec, c.codec.size());
  const json index{{"version", Checkpoint::kVersion},
                   {"kind", "checkpoint"},
                   {"step", c.step},
                   {"samples", c.samples},
                   {"seed", c.seed},
                   {"graph_fingerprint", c.graph_fingerprint},
                   {"world_size", c.world_size},
                   {"tied", c.tied},
                   {"extra", extra},
                   {"files", files}};
  return index.dump(2) + "\n";
}

void write_folder(const fs::path& folder, const Checkpoint& checkpoint) {
  write_tensors(folder / kModel, checkpoint.model);
  write_tensors(folder / kOptimizer, checkpoint.optimizer);
  if (!checkpoint.codec.empty()) write_tensors(folder / kCodec, checkpoint.codec);
  write_file(folder / kIndex, index_text(folder, checkpoint));
  sync_path(folder);
}

}  // namespace

fs::path save_checkpoint(const fs::path& checkpoints, const Checkpoint& checkpoint, int64_t keep_last) {
  const fs::path final = checkpoint_folder(checkpoints, checkpoint.step);
  const fs::path temporary = unfinished_folder(checkpoints, checkpoint.step);
  try {
    fs::create_directories(checkpoints);
    remove_unfinished(checkpoints);
    fs::create_directory(temporary);
    write_folder(temporary, checkpoint);
    remove_later(checkpoints, checkpoint.step);
    publish_checkpoint(checkpoints, checkpoint.step);
    keep_newest(checkpoints, keep_last);
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

namespace {

json read_index(const fs::path& path) {
  const std::string text = read_file(path);
  try {
    spec::check_json_depth(text);  // parts of it are printed again, which recurses
    return json::parse(text);
  } catch (const std::exception& e) {
    fail(ErrorCode::input, path.string(), ": broken: ", json_problem(e));
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
    if (index.at("files").contains(kCodec))
      c.codec = read_checked(step_folder / kCodec, index.at("files").at(kCodec));
    return c;
  } catch (const json::exception& e) {
    fail(ErrorCode::input, path.string(), ": broken: ", json_problem(e));
  }
}

}  // namespace trireme::train
