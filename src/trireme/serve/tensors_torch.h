#pragma once
// Tensors of requests to and from torch.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>

#include "trireme/serve/backend.h"
#include "trireme/tensor/tensor_view.h"

namespace trireme::serve {

// "cpu" or "cuda:N"; Error(usage).
tensor::Device parse_device(const std::string& text);
// The pieces end to end, in aligned memory on the CPU that a graph may write to.
at::Tensor joined(const RunInput& input, spec::Dtype dtype);
// A tensor, or a number as a tensor of shape [1]; on the CPU, contiguous, and kept alive by its owner.
Tensor to_output(const std::string& name, const c10::IValue& value);

}  // namespace trireme::serve
