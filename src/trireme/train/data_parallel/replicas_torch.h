#pragma once
// Keeping replicas equal: broadcast of state, comparison by hash, and the gradient norm that all ranks
// compute alike.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/train/data_parallel/gradient_sync_torch.h"

namespace trireme::train {

// The same list of shapes and types on all ranks; afterwards every rank holds root's bytes.
void broadcast_tensors(comm::Group& group, const std::vector<at::Tensor>& tensors, int root = 0);

// 64 bits over the elements' bytes, in logical order; independent of strides and device.
uint64_t content_hash(const at::Tensor& tensor);

// Error(diverged) on all ranks when a parameter's bytes differ from rank 0's: names parameter, rank and step.
void check_replicas(comm::Group& group, const std::vector<NamedParameter>& parameters, int64_t step);

// Euclidean norm over all defined gradients, summed in double over fixed blocks: the same bits on every rank,
// whatever its number of threads.
double global_norm(const std::vector<at::Tensor>& gradients);

}  // namespace trireme::train
