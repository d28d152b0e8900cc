#pragma once
// Where a NaN, an Inf or an index out of range came from, for the error that ends the run.
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/graph/executor_torch.h"
#include "trireme/train/data/dataset_torch.h"

namespace trireme::train {

// "NaN", "Inf" or "-Inf", the worst that the tensor holds; "" when all is finite.
std::string bad_value(const at::Tensor& tensor);

struct BadTensor {
  std::string what;      // which tensor holds which value
  bool in_data = false;  // it came with the samples: no setting of the optimizer would mend it
};

// Runs the forward of those samples again (`seed` as the first time, so that dropout repeats) and names the
// first tensor with a bad value: a parameter, a buffer, a sample with its file, or an operator's output with
// its Python line. NaN and +Inf come before -Inf, which attention masks hold on purpose. `inputs` are the
// samples on the executor's device.
BadTensor first_bad_tensor(graph::Executor& executor, const Dataset& dataset, std::span<const int64_t> ids,
                           const std::vector<c10::IValue>& inputs, uint64_t seed);

// The largest value of the batch's integer inputs (and the smallest where it is negative), each with file and
// sample: what to look at when an operator finds an index out of range. "" without integer inputs.
std::string largest_integers(const Dataset& dataset, std::span<const int64_t> ids);

}  // namespace trireme::train
