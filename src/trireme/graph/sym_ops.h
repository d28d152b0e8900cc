#pragma once
// Arithmetic on sizes: the Python functions that torch.export leaves in a graph
// (torch/_export/serde/serialize.py, _SYM_OPS), with Python's rules.
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

namespace trireme::graph {

using Scalar = std::variant<bool, int64_t, double>;

struct SymOperator {
  std::string_view target;  // "_operator.floordiv"
  size_t inputs;
  // Error(input) for a division by zero or a result that does not fit into 64 bits. Takes exactly `inputs`
  // scalars.
  Scalar (*apply)(std::span<const Scalar>);
};

// Null when the target is not one of them.
const SymOperator* find_sym_operator(std::string_view target);

}  // namespace trireme::graph
