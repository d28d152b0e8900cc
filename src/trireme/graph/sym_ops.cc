#include "trireme/graph/sym_ops.h"

#include <array>
#include <cmath>
#include <limits>

#include "trireme/base/error.h"

namespace trireme::graph {
namespace {

using Inputs = std::span<const Scalar>;
constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();

[[noreturn]] void too_large() {
  fail(ErrorCode::input, "a size does not fit into 64 bits");
}
[[noreturn]] void by_zero() {
  fail(ErrorCode::input, "a size is divided by zero");
}

bool is_real(const Scalar& s) {
  return std::holds_alternative<double>(s);
}
double real(const Scalar& s) {
  return std::visit([](auto value) { return static_cast<double>(value); }, s);
}
int64_t truncated(double value) {
  if (!(std::abs(value) < 0x1.0p63)) too_large();
  return static_cast<int64_t>(value);
}
int64_t integer(const Scalar& s) {
  if (const auto* value = std::get_if<double>(&s)) return truncated(*value);
  return std::visit([](auto value) { return static_cast<int64_t>(value); }, s);
}
bool truth(const Scalar& s) {
  return std::visit([](auto value) { return value != 0; }, s);
}

// Integers stay integers; one real number makes the result real.
template <typename OnIntegers, typename OnReals>
Scalar arithmetic(Inputs in, OnIntegers on_integers, OnReals on_reals) {
  if (is_real(in[0]) || is_real(in[1])) return on_reals(real(in[0]), real(in[1]));
  return on_integers(integer(in[0]), integer(in[1]));
}
template <typename Compare>
Scalar compare(Inputs in, Compare holds) {
  if (is_real(in[0]) || is_real(in[1])) return holds(real(in[0]), real(in[1]));
  return holds(integer(in[0]), integer(in[1]));
}

Scalar add(Inputs in) {
  return arithmetic(
      in,
      [](int64_t a, int64_t b) {
        if (__builtin_add_overflow(a, b, &a)) too_large();
        return a;
      },
      std::plus<>{});
}
Scalar subtract(Inputs in) {
  return arithmetic(
      in,
      [](int64_t a, int64_t b) {
        if (__builtin_sub_overflow(a, b, &a)) too_large();
        return a;
      },
      std::minus<>{});
}
int64_t product(int64_t a, int64_t b) {
  if (__builtin_mul_overflow(a, b, &a)) too_large();
  return a;
}
Scalar multiply(Inputs in) {
  return arithmetic(in, product, std::multiplies<>{});
}

Scalar floor_divide(Inputs in) {
  return arithmetic(
      in,
      [](int64_t a, int64_t b) {
        if (b == 0) by_zero();
        if (b == -1 && a == kLowest) too_large();
        return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
      },
      [](double a, double b) {
        if (b == 0) by_zero();
        return std::floor(a / b);
      });
}
Scalar modulo(Inputs in) {
  return arithmetic(
      in,
      [](int64_t a, int64_t b) -> int64_t {
        if (b == 0) by_zero();
        if (b == -1) return 0;
        const int64_t rest = a % b;
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
      },
      [](double a, double b) {
        if (b == 0) by_zero();
        const double rest = std::fmod(a, b);
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
      });
}
Scalar divide(Inputs in) {
  if (real(in[1]) == 0) by_zero();
  return real(in[0]) / real(in[1]);
}
Scalar power(Inputs in) {
  if (is_real(in[0]) || is_real(in[1]) || integer(in[1]) < 0) return std::pow(real(in[0]), real(in[1]));
  int64_t base = integer(in[0]), result = 1;
  for (int64_t exponent = integer(in[1]); exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result = product(result, base);
    if (exponent > 1) base = product(base, base);
  }
  return result;
}
Scalar negate(Inputs in) {
  if (is_real(in[0])) return -real(in[0]);
  if (integer(in[0]) == kLowest) too_large();
  return -integer(in[0]);
}
Scalar shift_left(Inputs in) {
  const int64_t by = integer(in[1]);
  if (by < 0 || by > 62) too_large();
  return product(integer(in[0]), int64_t{1} << by);
}
Scalar shift_right(Inputs in) {
  const int64_t by = integer(in[1]);
  if (by < 0) fail(ErrorCode::input, "a size is shifted by a negative number");
  return integer(in[0]) >> std::min<int64_t>(by, 63);
}

template <typename Bits>
Scalar bitwise(Inputs in, Bits bits) {
  if (std::holds_alternative<bool>(in[0]) && std::holds_alternative<bool>(in[1]))
    return static_cast<bool>(bits(std::get<bool>(in[0]), std::get<bool>(in[1])));
  return static_cast<int64_t>(bits(integer(in[0]), integer(in[1])));
}

constexpr std::array kOperators{
    SymOperator{"_operator.add", 2, add},
    SymOperator{"_operator.sub", 2, subtract},
    SymOperator{"_operator.mul", 2, multiply},
    SymOperator{"_operator.floordiv", 2, floor_divide},
    SymOperator{"_operator.mod", 2, modulo},
    SymOperator{"_operator.truediv", 2, divide},
    SymOperator{"_operator.pow", 2, power},
    SymOperator{"_operator.neg", 1, negate},
    SymOperator{"_operator.pos", 1, [](Inputs in) -> Scalar { return in[0]; }},
    SymOperator{"_operator.lshift", 2, shift_left},
    SymOperator{"_operator.rshift", 2, shift_right},
    SymOperator{"_operator.and_", 2, [](Inputs in) { return bitwise(in, std::bit_and<>{}); }},
    SymOperator{"_operator.or_", 2, [](Inputs in) { return bitwise(in, std::bit_or<>{}); }},
    SymOperator{"_operator.eq", 2, [](Inputs in) { return compare(in, std::equal_to<>{}); }},
    SymOperator{"_operator.ne", 2, [](Inputs in) { return compare(in, std::not_equal_to<>{}); }},
    SymOperator{"_operator.lt", 2, [](Inputs in) { return compare(in, std::less<>{}); }},
    SymOperator{"_operator.le", 2, [](Inputs in) { return compare(in, std::less_equal<>{}); }},
    SymOperator{"_operator.gt", 2, [](Inputs in) { return compare(in, std::greater<>{}); }},
    SymOperator{"_operator.ge", 2, [](Inputs in) { return compare(in, std::greater_equal<>{}); }},
    SymOperator{"math.trunc", 1, [](Inputs in) -> Scalar { return integer(in[0]); }},
    SymOperator{"torch.sym_int", 1, [](Inputs in) -> Scalar { return integer(in[0]); }},
    SymOperator{"torch.sym_float", 1, [](Inputs in) -> Scalar { return real(in[0]); }},
    SymOperator{"torch.sym_not", 1, [](Inputs in) -> Scalar { return !truth(in[0]); }},
    SymOperator{"torch.sym_ite", 3, [](Inputs in) -> Scalar { return truth(in[0]) ? in[1] : in[2]; }},
    SymOperator{"torch._sym_sqrt", 1, [](Inputs in) -> Scalar { return std::sqrt(real(in[0])); }},
    SymOperator{"torch.sym_max", 2,
                [](Inputs in) {
                  return arithmetic(
                      in, [](int64_t a, int64_t b) { return std::max(a, b); },
                      [](double a, double b) { return std::max(a, b); });
                }},
    SymOperator{"torch.sym_min", 2,
                [](Inputs in) {
                  return arithmetic(
                      in, [](int64_t a, int64_t b) { return std::min(a, b); },
                      [](double a, double b) { return std::min(a, b); });
                }},
};

}  // namespace

const SymOperator* find_sym_operator(std::string_view target) {
  for (const auto& op : kOperators)
    if (op.target == target) return &op;
  return nullptr;
}

}  // namespace trireme::graph
