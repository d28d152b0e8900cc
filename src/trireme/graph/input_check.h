#pragma once
// Are these inputs those that the graph was exported for? Constant sizes must be equal, one symbol must stand
// for one size everywhere, and within the range given at export.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/graph/sym_expr.h"
#include "trireme/spec/graph.h"

namespace trireme::graph {

// What the caller gives for one user input.
struct GivenInput {
  spec::ValueKind kind = spec::ValueKind::tensor;
  spec::Dtype dtype = spec::Dtype::f32;  // tensors
  std::span<const int64_t> sizes;        // tensors
  int64_t number = 0;                    // sym_int
};

class InputCheck {
 public:
  explicit InputCheck(const spec::Graph& graph);
  // Error(input) names the input, its dimension, and what is allowed.
  void operator()(std::span<const GivenInput> given) const;

 private:
  struct Size {
    std::string where;  // "input 'x', dimension 0"
    SymExpr expr;
    std::string text;  // of the expression
  };
  struct Input {
    std::string name;
    spec::ValueKind kind;
    spec::Dtype dtype;
    std::vector<Size> sizes;  // a sym_int has one
  };
  void check_sizes(const std::vector<std::pair<const Size*, int64_t>>& sizes) const;
  std::vector<Input> inputs_;
  std::map<std::string, spec::Range> ranges_;
};

}  // namespace trireme::graph
