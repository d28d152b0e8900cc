#pragma once
// A small formula over the node count, as users write it for the length of a probe: "10 + floor((n-1)/3)".
#include <string>
#include <string_view>
#include <vector>

namespace trireme::deploy {

// Numbers, n, + - * / and parentheses, floor(x), ceil(x), log2(x), min(x, y, …), max(x, y, …).
class CountExpression {
 public:
  // Error(usage) that shows the text and the place which cannot be read.
  explicit CountExpression(std::string_view text);
  double operator()(double n) const;

 private:
  enum class Code { number, count, add, subtract, multiply, divide, negate, floor, ceil, log2, min, max };
  struct Step {
    Code code;
    double number = 0;
  };
  struct Parser;
  std::vector<Step> steps_;  // postfix
};

}  // namespace trireme::deploy
