#pragma once
// Where a NaN or Inf came from, for the error that ends a diverged run.
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/graph/executor_torch.h"

namespace trireme::train {

// "NaN", "Inf" or "-Inf", the worst that the tensor holds; "" when all is finite.
std::string bad_value(const at::Tensor& tensor);

// Runs the forward again (`seed` as the first time, so that dropout repeats) and names the first tensor with
// a bad value: a parameter, a buffer, an input, or an operator's output with its Python line. NaN and +Inf
// come before -Inf, which attention masks hold on purpose.
std::string first_bad_tensor(graph::Executor& executor, const std::vector<c10::IValue>& inputs,
                             uint64_t seed);

}  // namespace trireme::train
