#pragma once
// Names of element types in the Open Inference Protocol: "FP32", "INT64", "BOOL", ….
#include <optional>
#include <string>
#include <string_view>

#include "trireme/spec/dtype.h"

namespace trireme::serve {

// "" for types that the protocol does not know (complex, 8-bit floats).
std::string_view datatype_name(spec::Dtype dtype);
// Nothing for BYTES, which no graph takes, and for unknown names.
std::optional<spec::Dtype> datatype_from_name(std::string_view name);

// Bytes of a tensor whose sizes are 0 or more. RequestError(invalid), which begins with `where`, when they
// overflow.
size_t tensor_bytes(const spec::Shape& shape, spec::Dtype dtype, const std::string& where);

}  // namespace trireme::serve
