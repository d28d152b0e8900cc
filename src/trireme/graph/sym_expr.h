#pragma once
// Sizes as expressions over symbols, as torch writes them into a `.pt2` (sympy's srepr):
//   Add(Integer(1), Mul(Integer(3), Symbol('s77', positive=True, integer=True)))
// and in the short form that spec::Dim keeps: Add(1, Mul(3, s77)).
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::graph {

struct SymExpr {
  enum class Kind : uint8_t { constant, symbol, function } kind = Kind::constant;
  int64_t constant = 0;
  std::string name;             // of the symbol or function
  std::vector<SymExpr> inputs;  // of a function
  bool operator==(const SymExpr&) const = default;
};

// Reads either form. Error(input) for anything else.
SymExpr parse_sym_expr(std::string_view text);
// The short form.
std::string to_text(const SymExpr& expr);
// Nothing when a symbol has no value, the function is not one of integers, or the result does not fit.
std::optional<int64_t> evaluate(const SymExpr& expr, const std::map<std::string, int64_t>& symbols);

}  // namespace trireme::graph
