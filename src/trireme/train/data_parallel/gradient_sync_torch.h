#pragma once
// Data-parallel gradient synchronisation: gradients enter buckets as autograd finishes them, each full bucket
// starts its all-reduce, and the mean comes back bit-identical on all ranks. Bucket order is the order of
// readiness, learned in the first step and agreed with rank 0.
//
// A large gradient travels alone and straight out of the memory that autograd gave it, where that is float32
// on the CPU and nobody else's; the mean comes back there. The others are copied into their bucket's memory,
// which is float32 on the CPU whatever the parameters' type and device: sums stay precise for bf16, and
// float64 loses precision only on the wire. In a group of one (and with Strategy::off) nothing is copied.
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/group.h"

namespace trireme::train {

struct NamedParameter {
  std::string name;
  at::Tensor tensor;  // a leaf with requires_grad
};

struct GradientSyncOptions {
  comm::Strategy strategy = comm::Strategy::ring;
  codec::CodecPtr codec;  // of every bucket, as codec::choose gives it; null: float32
  int64_t min_bytes = 0;  // smaller buckets travel without codec
  uint64_t seed = 0;      // of random codecs
  int64_t bucket_bytes = 5'000'000;
  int64_t first_bucket_bytes = 1'000'000;  // of the last one too
  int64_t alone_bytes = 500'000;           // a gradient of this size is a bucket of its own
  // Parameters in the order in which earlier steps of the same run made them ready; empty: to be learned.
  std::vector<uint64_t> ready_order;
};

struct BucketLimits {
  int64_t first, others, alone;  // bytes
};
// Parameters (by index) in the order in which they become ready, cut into buckets that are listed in the
// order in which they fill. One of `alone` bytes or more is a bucket of its own. The others join until so
// many bytes have become ready since their bucket began, alone ones included, that waiting would idle the
// link. The first bucket is small, so that traffic begins early, and so is the last, which nothing can hide.
// A function of sizes and order alone: equal buckets give equal sums, run after run. `bytes` is by parameter.
std::vector<std::vector<size_t>> plan_buckets(const std::vector<int64_t>& bytes,
                                              const std::vector<size_t>& order, const BucketLimits& limits);

class GradientSync {
 public:
  static constexpr size_t kMaxScalars = 4;

  // Takes the parameters' post-accumulate hook (one slot each) until destroyed. `group` may have size 1. All
  // ranks give the same parameters and options.
  GradientSync(comm::Group& group, std::vector<NamedParameter> parameters,
               const GradientSyncOptions& options);
  ~GradientSync();

  // Before each backward. With `last` false gradients only accumulate locally (no traffic); the last one
  // starts buckets. `first` forgets what the step before left.
  void begin_backward(uint32_t step, bool first, bool last);
  // After the last backward: parameters without gradient count as zero; starts what is not yet started.
  // `scalars` (the loss and the like; as many on every rank) are averaged over ranks by the same step's
  // traffic, in float32.
  void end_backward(std::span<const double> scalars = {});
  // Waits for bucket b; returns seconds waited (exposed communication).
  double wait(size_t bucket);
  double wait_scalars();
  // Valid after wait_scalars.
  double scalar_mean(size_t index) const;

  size_t buckets() const;
  // Parameters of bucket b (indices into the constructor's list), and after wait(b) their mean gradients in
  // the parameters' type, shape and device; undefined where no rank had a gradient. They may share the
  // bucket's memory, which the next step overwrites, and may be changed in place. Taken once a step.
  const std::vector<size_t>& members(size_t bucket) const;
  std::vector<at::Tensor> take_gradients(size_t bucket);
  // See GradientSyncOptions; empty before the second step.
  std::vector<uint64_t> ready_order() const;

  // Between steps. What the codec remembers on this rank, by "parameter.name" ("fc1.weight.residual"):
  // float32 copies on the CPU. Empty for codecs without memory.
  std::map<std::string, at::Tensor> codec_state() const;
  // Takes the entries that codec_state() has; others are left out of account. Error(input) for another shape.
  void load_codec_state(const std::map<std::string, at::Tensor>& state);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::train
