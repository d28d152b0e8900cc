#pragma once
// checkpoints/step_N/: model.safetensors, optimizer.safetensors, index.json. Written under a temporary name,
// synced, renamed; a failure leaves the previous checkpoint intact and removes the partial one.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "trireme/train/checkpoint_folder.h"

namespace trireme::train {

struct Checkpoint {
  static constexpr int kVersion = 1;
  int64_t step = 0;
  int64_t samples = 0;  // global samples consumed: the data position
  uint64_t seed = 0;    // random state: all generators are counter-based on (seed, step, rank)
  uint64_t graph_fingerprint = 0;
  int world_size = 1;
  std::map<std::string, at::Tensor> model;      // parameters and persistent buffers
  std::map<std::string, at::Tensor> optimizer;  // Optimizer::state()
  std::map<std::string, at::Tensor> codec;      // of all ranks: "rank0/fc1.weight.residual"; may be empty
  std::map<std::string, std::string> tied;      // alias -> name stored in model
  std::map<std::string, std::string> extra;     // small facts for later parts (JSON values as text)
};

// Returns the folder written. Error(io) names the path and the cause. Afterwards the newest `keep_last`
// remain (0: all); folders of later steps, left by an earlier attempt that this run replaces, are removed.
std::filesystem::path save_checkpoint(const std::filesystem::path& checkpoints, const Checkpoint& checkpoint,
                                      int64_t keep_last);
// Tensors are copies on the CPU. Error(input) names the file and what does not match the index.
Checkpoint load_checkpoint(const std::filesystem::path& step_folder);

}  // namespace trireme::train
