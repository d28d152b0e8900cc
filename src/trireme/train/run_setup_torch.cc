#include "trireme/train/run_setup_torch.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <algorithm>
#include <thread>

#include "trireme/base/error.h"

namespace trireme::train {

at::Device choose_device(const std::string& wanted, int local_rank) {
  const bool cuda = at::hasCUDA();
  if (wanted == "cuda" && !cuda) {
    fail(
        ErrorCode::usage,
        "train.device = \"cuda\": PyTorch finds no CUDA device here; set train.device = \"cpu\" or \"auto\"");
  }
  if (wanted == "cpu" || !cuda) return at::kCPU;
  const int devices = at::detail::getCUDAHooks().deviceCount();
  return {at::kCUDA, static_cast<c10::DeviceIndex>(local_rank % devices)};
}

tensor::Device to_ours(at::Device device) {
  return {device.is_cuda() ? tensor::Device::Kind::cuda : tensor::Device::Kind::cpu,
          std::max<int>(device.index(), 0)};
}

int thread_count(int64_t wanted, int local_world) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return wanted > 0 ? static_cast<int>(wanted) : std::max(1, cores / std::max(1, local_world));
}

size_t loss_position(const graph::Program& program, const std::string& path) {
  const int loss = program.loss_output();
  if (loss < 0) {
    fail(ErrorCode::input, "model.graph = \"", path,
         "\": no output is a float scalar, so there is no loss to train on; "
         "export a module that returns its loss");
  }
  return static_cast<size_t>(loss);
}

BatchRange batch_range(const spec::Graph& graph) {
  BatchRange range;
  for (const spec::GraphInput& input : graph.inputs) {
    if (input.kind != spec::InputKind::user || input.value == spec::kNoValue) continue;
    const spec::Value& value = graph.values.at(static_cast<size_t>(input.value));
    if (value.kind != spec::ValueKind::tensor || value.sizes.empty()) continue;
    const spec::Dim& batch = value.sizes.front();
    range.exported = batch.hint;
    if (batch.symbol.empty()) {
      range.minimum = range.maximum = batch.hint;
    } else if (const auto limits = graph.ranges.find(batch.symbol); limits != graph.ranges.end()) {
      range.minimum = std::max(range.minimum, limits->second.minimum.value_or(1));
      range.maximum = std::min(range.maximum, limits->second.maximum.value_or(INT64_MAX));
    }
  }
  return range;
}

void check_batch(const BatchRange& range, int64_t batch, const std::string& path) {
  if (batch >= range.minimum && batch <= range.maximum) return;
  const std::string takes = range.minimum == range.maximum ? cat("exactly ", range.minimum)
                            : range.maximum == INT64_MAX   ? cat("at least ", range.minimum)
                                                           : cat(range.minimum, " to ", range.maximum);
  fail(ErrorCode::usage, "train.batch_per_rank = ", batch, ": ", path, " was exported for a batch of ", takes,
       "; change it, or export with a dynamic batch");
}

}  // namespace trireme::train
