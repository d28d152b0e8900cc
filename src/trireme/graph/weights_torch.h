#pragma once
// Parameters, buffers and constants of one executor: own memory, laid out as at export, tied names sharing
// one tensor.
#include <ATen/core/Tensor.h>

#include <vector>

#include "trireme/graph/executor_torch.h"
#include "trireme/graph/pt2_reader.h"

namespace trireme::graph {

struct Weights {
  std::vector<Parameter> parameters;
  std::vector<Parameter> buffers;  // persistent ones first
  std::vector<at::Tensor> inputs;  // per graph input; undefined for user inputs and literals
};

// Error(input) names file and weight: see ExecutorOptions.
Weights load_weights(const Pt2File& file, const ExecutorOptions& options, c10::Device device);

}  // namespace trireme::graph
