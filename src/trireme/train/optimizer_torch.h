#pragma once
// SGD, Adam and AdamW with torch.optim's defaults and arithmetic, on ATen's fused kernels (float32 and
// float64) or operator by operator (16-bit types).
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/train/options.h"

namespace trireme::train {

struct OptimParameter {
  std::string name;
  at::Tensor tensor;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates the parameters with the given indices from `gradients` (same order, undefined ones are skipped as
  // torch.optim skips a parameter without gradient). `lr_factor` is the schedule's multiplier. May be called
  // several times a step with disjoint sets.
  virtual void step(const std::vector<size_t>& indices, const std::vector<at::Tensor>& gradients,
                    double lr_factor) = 0;
  // State tensors by "parameter.exp_avg" and the like; step counts as 0-d tensors. Views of live memory.
  virtual std::map<std::string, at::Tensor> state() const = 0;
  // Copies in; Error(input) naming missing, extra or misshaped entries.
  virtual void load_state(const std::map<std::string, at::Tensor>& state) = 0;
  // Base learning rate of parameter i (groups applied).
  virtual double lr(size_t index) const = 0;
};

// Error(usage) for a pattern that is not a regular expression or matches nothing.
std::unique_ptr<Optimizer> make_optimizer(const OptimOptions& options,
                                          std::vector<OptimParameter> parameters);

}  // namespace trireme::train
