#pragma once
// Data-parallel gradient synchronisation: gradients enter buckets as autograd finishes them, each full bucket starts its
// all-reduce, and the mean comes back bit-identical on all ranks. Bucket order is the order of readiness, learned in the
// first step and agreed with rank 0.
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/group.h"

namespace trireme::train {

struct NamedParameter {
  std::string name;
  at::Tensor tensor;  // requires_grad
};

struct GradientSyncOptions {
  comm::Strategy strategy = comm::Strategy::ring;
  codec::CodecPtr codec;  // of every bucket; null: float32
  int64_t bucket_bytes = 5'000'000;
  int64_t first_bucket_bytes = 1'000'000;
};

class GradientSync {
 public:
  // Installs autograd hooks on the parameters (removed by the destructor). `group` may have size 1.
  GradientSync(comm::Group& group, std::vector<NamedParameter> parameters, const GradientSyncOptions& options);
  ~GradientSync();

  // Before each backward. With `last` false gradients only accumulate locally (no traffic); the last one starts buckets.
  void begin_backward(uint32_t step, bool first, bool last);
  // After the last backward: parameters without gradient count as zero; starts what is not yet started.
  void end_backward();
  // Waits for bucket b, in start order; returns seconds waited (exposed communication).
  double wait(size_t bucket);
  size_t buckets() const;
  // Parameters of bucket b (indices into the constructor's list) and their mean gradients: views of the bucket, undefined
  // where no rank had a gradient.
  const std::vector<size_t>& members(size_t bucket) const;
  std::vector<at::Tensor> gradients(size_t bucket) const;
  // Mean over ranks of a few numbers, carried by the same step's traffic: loss and the like. Call between begin and wait.
  void add_scalar_mean(double value);
  double scalar_mean();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::train
