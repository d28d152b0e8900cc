#include "trireme/graph/sym_ops.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::graph {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max(),
                  kLowest = std::numeric_limits<int64_t>::min();

Scalar apply(const std::string& target, std::vector<Scalar> inputs) {
  const auto* op = find_sym_operator(target);
  EXPECT_NE(op, nullptr) << target;
  EXPECT_EQ(op->inputs, inputs.size()) << target;
  return op->apply(inputs);
}
Scalar op(const std::string& name, Scalar a, Scalar b) {
  return apply("_operator." + name, {a, b});
}
Scalar i(int64_t value) {
  return value;
}

TEST(SymOperators, IntegersStayIntegers) {
  EXPECT_EQ(op("add", i(2), i(3)), i(5));
  EXPECT_EQ(op("sub", i(2), i(3)), i(-1));
  EXPECT_EQ(op("mul", i(2), i(3)), i(6));
  EXPECT_EQ(op("pow", i(3), i(4)), i(81));
  EXPECT_EQ(op("lshift", i(3), i(4)), i(48));
  EXPECT_EQ(op("rshift", i(-3), i(1)), i(-2));
  EXPECT_EQ(apply("_operator.neg", {i(3)}), i(-3));
  EXPECT_EQ(op("add", true, true), i(2));
}

TEST(SymOperators, DivisionRoundsDownAsInPython) {
  EXPECT_EQ(op("floordiv", i(7), i(2)), i(3));
  EXPECT_EQ(op("floordiv", i(-7), i(2)), i(-4));
  EXPECT_EQ(op("floordiv", i(7), i(-2)), i(-4));
  EXPECT_EQ(op("mod", i(-7), i(2)), i(1));
  EXPECT_EQ(op("mod", i(7), i(-2)), i(-1));
  EXPECT_EQ(op("mod", kLowest, i(-1)), i(0));
  EXPECT_EQ(op("truediv", i(7), i(2)), Scalar(3.5));
  EXPECT_EQ(op("floordiv", -7.5, i(2)), Scalar(-4.0));
}

TEST(SymOperators, OneRealNumberMakesTheResultReal) {
  EXPECT_EQ(op("add", i(2), 0.5), Scalar(2.5));
  EXPECT_EQ(op("pow", i(2), i(-1)), Scalar(0.5));
  EXPECT_EQ(apply("torch.sym_max", {i(2), 1.5}), Scalar(2.0));
  EXPECT_EQ(apply("torch.sym_min", {i(2), i(1)}), i(1));
  EXPECT_EQ(apply("torch._sym_sqrt", {i(9)}), Scalar(3.0));
}

TEST(SymOperators, ComparisonsAndLogicGiveTruth) {
  EXPECT_EQ(op("lt", i(2), i(3)), Scalar(true));
  EXPECT_EQ(op("ge", i(2), 2.5), Scalar(false));
  EXPECT_EQ(op("eq", kLargest, kLargest - 1), Scalar(false));  // doubles would say they are equal
  EXPECT_EQ(op("and_", true, false), Scalar(false));
  EXPECT_EQ(op("or_", i(4), i(1)), i(5));
  EXPECT_EQ(apply("torch.sym_not", {i(0)}), Scalar(true));
  EXPECT_EQ(apply("torch.sym_ite", {false, i(1), i(2)}), i(2));
}

TEST(SymOperators, ConvertBetweenKinds) {
  EXPECT_EQ(apply("torch.sym_int", {-2.7}), i(-2));
  EXPECT_EQ(apply("math.trunc", {2.7}), i(2));
  EXPECT_EQ(apply("torch.sym_float", {i(3)}), Scalar(3.0));
  EXPECT_EQ(apply("_operator.pos", {i(3)}), i(3));
}

TEST(SymOperators, RefuseWhatHasNoResult) {
  EXPECT_THROW(op("floordiv", i(1), i(0)), Error);
  EXPECT_THROW(op("mod", i(1), i(0)), Error);
  EXPECT_THROW(op("truediv", i(1), i(0)), Error);
  EXPECT_THROW(op("add", kLargest, i(1)), Error);
  EXPECT_THROW(op("sub", kLowest, i(1)), Error);
  EXPECT_THROW(op("mul", kLargest, i(2)), Error);
  EXPECT_THROW(op("pow", i(10), i(40)), Error);
  EXPECT_THROW(op("lshift", i(1), i(63)), Error);
  EXPECT_THROW(op("floordiv", kLowest, i(-1)), Error);
  EXPECT_THROW(apply("_operator.neg", {kLowest}), Error);
  EXPECT_THROW(apply("torch.sym_int", {1e300}), Error);
}

TEST(SymOperators, AreFoundByTheirTargetOnly) {
  EXPECT_EQ(find_sym_operator("torch.ops.aten.add.Tensor"), nullptr);
  EXPECT_EQ(find_sym_operator("_operator.getitem"), nullptr);
}

}  // namespace
}  // namespace trireme::graph
