#include "trireme/deploy/count_expression.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::deploy {

struct CountExpression::Parser {
  std::string_view text;
  std::vector<Step>& steps;
  size_t at = 0;
  int depth = 0;

  [[noreturn]] void refuse(std::string_view wanted) const {
    fail(ErrorCode::usage, "\"", std::string(text), "\": ", std::string(wanted), " at \"",
         std::string(text.substr(std::min(at, text.size()))),
         "\"; there are numbers, n, + - * / ( ) floor ceil min max log2");
  }

  char peek() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
    return at < text.size() ? text[at] : '\0';
  }

  bool take(char c) {
    if (peek() != c) return false;
    ++at;
    return true;
  }

  void sum() {
    product();
    while (peek() == '+' || peek() == '-') {
      const Code code = text[at++] == '+' ? Code::add : Code::subtract;
      product();
      steps.push_back({code});
    }
  }

  void product() {
    factor();
    while (peek() == '*' || peek() == '/') {
      const Code code = text[at++] == '*' ? Code::multiply : Code::divide;
      factor();
      steps.push_back({code});
    }
  }

  void factor() {
    if (++depth > 100) refuse("nested too deep");
    if (take('-')) {
      factor();
      steps.push_back({Code::negate});
    } else if (take('(')) {
      sum();
      if (!take(')')) refuse("a ) is missing");
    } else if (const char c = peek(); (c >= '0' && c <= '9') || c == '.') {
      double value = 0;
      const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
      if (error != std::errc()) refuse("a number is needed");
      at = static_cast<size_t>(end - text.data());
      steps.push_back({Code::number, value});
    } else {
      word();
    }
    --depth;
  }

  void word() {
    const size_t begin = at;
    while (at < text.size() &&
           ((text[at] >= 'a' && text[at] <= 'z') || (at > begin && text[at] >= '0' && text[at] <= '9')))
      ++at;
    const auto name = text.substr(begin, at - begin);
    if (name == "n") return steps.push_back({Code::count});
    constexpr std::array<std::pair<std::string_view, Code>, 5> kFunctions{{{"floor", Code::floor},
                                                                           {"ceil", Code::ceil},
                                                                           {"log2", Code::log2},
                                                                           {"min", Code::min},
                                                                           {"max", Code::max}}};
    const auto* found = std::find_if(kFunctions.begin(), kFunctions.end(),
                                     [&](const auto& function) { return function.first == name; });
    if (found == kFunctions.end()) {
      at = begin;
      refuse("a number, n or a function is needed");
    }
    if (!take('(')) refuse("a ( is missing");
    sum();
    const bool several = found->second == Code::min || found->second == Code::max;
    if (!several) steps.push_back({found->second});
    while (several && take(',')) {
      sum();
      steps.push_back({found->second});
    }
    if (!take(')')) refuse("a ) is missing");
  }
};

CountExpression::CountExpression(std::string_view text) {
  Parser parser{text, steps_};
  parser.sum();
  if (parser.peek() != '\0') parser.refuse("unexpected text");
}

double CountExpression::operator()(double n) const {
  std::vector<double> stack;
  const auto binary = [&](auto operation) {
    const double right = stack.back();
    stack.pop_back();
    stack.back() = operation(stack.back(), right);
  };
  for (const auto& step : steps_) {
    switch (step.code) {
      case Code::number:
        stack.push_back(step.number);
        break;
      case Code::count:
        stack.push_back(n);
        break;
      case Code::add:
        binary([](double a, double b) { return a + b; });
        break;
      case Code::subtract:
        binary([](double a, double b) { return a - b; });
        break;
      case Code::multiply:
        binary([](double a, double b) { return a * b; });
        break;
      case Code::divide:
        binary([](double a, double b) { return a / b; });
        break;
      case Code::min:
        binary([](double a, double b) { return std::min(a, b); });
        break;
      case Code::max:
        binary([](double a, double b) { return std::max(a, b); });
        break;
      case Code::negate:
        stack.back() = -stack.back();
        break;
      case Code::floor:
        stack.back() = std::floor(stack.back());
        break;
      case Code::ceil:
        stack.back() = std::ceil(stack.back());
        break;
      case Code::log2:
        stack.back() = std::log2(stack.back());
        break;
    }
  }
  return stack.back();
}

}  // namespace trireme::deploy
