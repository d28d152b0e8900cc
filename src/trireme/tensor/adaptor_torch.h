#pragma once
// The torch fence's gate: at::Tensor <-> TensorView, serialised dtypes, c10::Error -> Error.
#include <ATen/core/Tensor.h>

#include <functional>

#include "trireme/tensor/tensor_view.h"

namespace trireme::tensor {

at::ScalarType to_torch(spec::Dtype dtype);
spec::Dtype from_torch(at::ScalarType type);

// A view of a contiguous tensor's memory; a non-contiguous one fails a check.
TensorView view_of(const at::Tensor& tensor);
// A tensor over memory that outlives it.
at::Tensor tensor_over(const TensorView& view, at::IntArrayRef shape);

// Inside a catch block: the exception in flight, as translate_torch_errors would throw it. Error(input) for
// an index out of range, Error(io) for memory that ran out, Error(internal) for the rest; an Error passes
// unchanged.
[[noreturn]] void rethrow_as_error(const std::string& context);
// Runs `body`; a c10::Error becomes Error(code) with torch's first line (no backtrace) after `context`.
void translate_torch_errors(const std::string& context, const std::function<void()>& body);

}  // namespace trireme::tensor
