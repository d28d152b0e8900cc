#include "trireme/graph/sym_expr.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>

#include "trireme/base/error.h"

namespace trireme::graph {
namespace {

constexpr int kMaxDepth = 200;  // of nesting; bounds the parser's recursion on a hostile file

// expression = integer | 'text' | name [ "(" [ [key "="] expression { "," … } ] ")" ]
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  SymExpr parse() {
    SymExpr expr = expression(0);
    if (peek() != '\0') wrong("unexpected text");
    return expr;
  }

 private:
  [[noreturn]] void wrong(const char* what) const {
    fail(ErrorCode::input, "symbolic size '", text_, "': ", what, " at position ", at_);
  }
  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) wrong("missing punctuation");
  }

  SymExpr expression(int depth) {
    if (depth > kMaxDepth) wrong("nested too deeply");
    const char c = peek();
    if (c == '-' || std::isdigit(static_cast<unsigned char>(c))) return integer();
    if (c == '\'' || c == '"') return quoted();
    SymExpr expr;
    expr.kind = SymExpr::Kind::symbol;
    expr.name = name();
    if (!accept('(')) return expr;
    expr.kind = SymExpr::Kind::function;
    while (!accept(')')) {
      if (!expr.inputs.empty()) expect(',');
      expr.inputs.push_back(argument(depth + 1));
    }
    return simplified(std::move(expr));
  }

  // Assumptions such as positive=True are dropped by simplified(): they follow a symbol's name.
  SymExpr argument(int depth) {
    SymExpr value = expression(depth);
    return value.kind == SymExpr::Kind::symbol && accept('=') ? expression(depth) : value;
  }

  SymExpr integer() {
    SymExpr expr;
    const char* begin = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    const auto [stop, error] = std::from_chars(begin, end, expr.constant);
    if (error != std::errc{}) wrong("a number that is not an integer of 64 bits");
    at_ += static_cast<size_t>(stop - begin);
    return expr;
  }
  SymExpr quoted() {
    const char quote = text_[at_++];
    const size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) wrong("missing quote");
    SymExpr expr;
    expr.kind = SymExpr::Kind::symbol;
    expr.name = std::string(text_.substr(at_, end - at_));
    at_ = end + 1;
    return expr;
  }
  std::string name() {
    const size_t begin = at_;
    const auto part = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
    };
    while (at_ < text_.size() && part(text_[at_])) ++at_;
    if (at_ == begin) wrong("missing name");
    return std::string(text_.substr(begin, at_ - begin));
  }

  SymExpr simplified(SymExpr expr) {
    if (expr.name != "Symbol" && expr.name != "Integer") return expr;
    const auto kind = expr.name == "Symbol" ? SymExpr::Kind::symbol : SymExpr::Kind::constant;
    if (expr.inputs.empty() || expr.inputs[0].kind != kind) wrong("a symbol or number without its value");
    SymExpr inner = std::move(expr.inputs[0]);
    return inner;
  }

  std::string_view text_;
  size_t at_ = 0;
};

using Integer = std::optional<int64_t>;

Integer add(int64_t a, int64_t b) {
  int64_t result;
  return __builtin_add_overflow(a, b, &result) ? std::nullopt : Integer(result);
}
Integer multiply(int64_t a, int64_t b) {
  int64_t result;
  return __builtin_mul_overflow(a, b, &result) ? std::nullopt : Integer(result);
}
// Rounds towards minus infinity, as Python does.
Integer floor_divide(int64_t a, int64_t b) {
  if (b == 0 || (b == -1 && a == std::numeric_limits<int64_t>::min())) return std::nullopt;
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}
Integer modulo(int64_t a, int64_t b) {
  if (b == 0) return std::nullopt;
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
Integer exact_divide(int64_t a, int64_t b) {
  return modulo(a, b) == Integer(0) ? floor_divide(a, b) : std::nullopt;
}
Integer ceil_divide(int64_t a, int64_t b) {
  const Integer quotient = floor_divide(a, b);
  return quotient && modulo(a, b) != Integer(0) ? add(*quotient, 1) : quotient;
}
Integer power(int64_t base, int64_t exponent) {
  if (exponent < 0) return std::nullopt;
  if (exponent == 0 || base == 1) return 1;
  if (base == 0) return 0;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  Integer result = 1;
  for (int64_t i = 0; i < exponent && result; ++i) result = multiply(*result, base);
  return result;
}

struct Function {
  std::string_view name;
  Integer (*apply)(int64_t, int64_t);
};
// torch.utils._sympy.functions and sympy's own; n-ary ones fold from the left.
constexpr std::array kFunctions{
    Function{"Add", add},
    Function{"Mul", multiply},
    Function{"Pow", power},
    Function{"PowByNatural", power},
    Function{"FloorDiv", floor_divide},
    Function{"CleanDiv", exact_divide},
    Function{"CeilDiv", ceil_divide},
    Function{"Mod", modulo},
    Function{"PythonMod", modulo},
    Function{"Max", [](int64_t a, int64_t b) -> Integer { return std::max(a, b); }},
    Function{"Min", [](int64_t a, int64_t b) -> Integer { return std::min(a, b); }},
};

}  // namespace

SymExpr parse_sym_expr(std::string_view text) {
  return Parser(text).parse();
}

std::string to_text(const SymExpr& expr) {
  if (expr.kind == SymExpr::Kind::constant) return std::to_string(expr.constant);
  if (expr.kind == SymExpr::Kind::symbol) return expr.name;
  std::string text = expr.name + "(";
  for (size_t i = 0; i < expr.inputs.size(); ++i) text += (i == 0 ? "" : ", ") + to_text(expr.inputs[i]);
  return text + ")";
}

std::optional<int64_t> evaluate(const SymExpr& expr, const std::map<std::string, int64_t>& symbols) {
  if (expr.kind == SymExpr::Kind::constant) return expr.constant;
  if (expr.kind == SymExpr::Kind::symbol) {
    const auto found = symbols.find(expr.name);
    return found == symbols.end() ? std::nullopt : Integer(found->second);
  }
  const auto* function = std::find_if(kFunctions.begin(), kFunctions.end(),
                                      [&](const Function& f) { return f.name == expr.name; });
  if (function == kFunctions.end() || expr.inputs.size() < 2) return std::nullopt;
  Integer result = evaluate(expr.inputs[0], symbols);
  for (size_t i = 1; i < expr.inputs.size(); ++i) {
    const Integer next = evaluate(expr.inputs[i], symbols);
    if (!result || !next) return std::nullopt;
    result = function->apply(*result, *next);
  }
  return result;
}

}  // namespace trireme::graph
