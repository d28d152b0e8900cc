#pragma once
// What the configuration and the graph say, made concrete. Error(usage | input) names the key that cannot be
// met.
#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "trireme/graph/executor_torch.h"
#include "trireme/train/options.h"

namespace trireme::train {

// train.device; "auto" takes CUDA where PyTorch finds a device.
at::Device choose_device(const std::string& wanted, int local_rank);
tensor::Device to_ours(at::Device device);

// train.threads; 0: the machine's cores divided among its ranks.
int thread_count(int64_t wanted, int local_world);

// Position of the loss among the values that Executor::run returns, which leaves out mutated buffers.
size_t loss_position(const graph::Program& program, const std::string& path);

// Batch sizes that the graph takes: its user inputs' first dimension.
struct BatchRange {
  int64_t minimum = 1, maximum = INT64_MAX;
  int64_t exported = 1;  // size seen at export
};
BatchRange batch_range(const spec::Graph& graph);
void check_batch(const BatchRange& range, int64_t batch, const std::string& path);

}  // namespace trireme::train
