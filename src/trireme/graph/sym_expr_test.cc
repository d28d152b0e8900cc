#include "trireme/graph/sym_expr.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::graph {
namespace {

std::string shortened(const std::string& text) {
  return to_text(parse_sym_expr(text));
}
std::optional<int64_t> value(const std::string& text) {
  return evaluate(parse_sym_expr(text), {{"s77", 5}, {"s1", -7}});
}

TEST(SymExpr, ReadsWhatTorchWrites) {
  EXPECT_EQ(shortened("Symbol('s77', positive=True, integer=True)"), "s77");
  EXPECT_EQ(shortened("Integer(-3)"), "-3");
  EXPECT_EQ(shortened("Add(Integer(1), Mul(Integer(3), Symbol('s77', positive=True, integer=True)))"),
            "Add(1, Mul(3, s77))");
  EXPECT_EQ(shortened("FloorDiv(Symbol('s77', integer=True), Integer(2))"), "FloorDiv(s77, 2)");
}

TEST(SymExpr, TheShortFormReadsBack) {
  for (const std::string text :
       {"s77", "-12", "Add(1, Mul(3, s77))", "Max(1, FloorDiv(s77, 2))", "Unknown(s77)"})
    EXPECT_EQ(shortened(text), text);
}

TEST(SymExpr, EvaluatesAsPythonDoes) {
  EXPECT_EQ(value("Add(1, Mul(3, s77), 2)"), 18);
  EXPECT_EQ(value("FloorDiv(s1, 2)"), -4);
  EXPECT_EQ(value("Mod(s1, 4)"), 1);
  EXPECT_EQ(value("CeilDiv(s77, 2)"), 3);
  EXPECT_EQ(value("CleanDiv(Mul(s77, 4), 2)"), 10);
  EXPECT_EQ(value("Pow(s77, 3)"), 125);
  EXPECT_EQ(value("Pow(-1, 9000000000000000001)"), -1);
  EXPECT_EQ(value("Max(s77, s1, 6)"), 6);
  EXPECT_EQ(value("Min(s77, s1)"), -7);
}

TEST(SymExpr, HasNoValueWhereNoneIsKnown) {
  EXPECT_EQ(value("u0"), std::nullopt);
  EXPECT_EQ(value("Add(u0, 1)"), std::nullopt);
  EXPECT_EQ(value("Sin(s77)"), std::nullopt);
  EXPECT_EQ(value("FloorDiv(s77, 0)"), std::nullopt);
  EXPECT_EQ(value("CleanDiv(s77, 2)"), std::nullopt);
  EXPECT_EQ(value("Pow(10, 30)"), std::nullopt);
  EXPECT_EQ(value("Mul(9223372036854775807, 2)"), std::nullopt);
}

TEST(SymExpr, RefusesOtherText) {
  for (const std::string text : {"", "Add(1", "Add(1 2)", "Add(1,)", "1.5", "s77 s77", "Integer(s77)",
                                 "Symbol(3)", "Symbol()", "'open", "99999999999999999999", ")", "Add(,1)"})
    EXPECT_THROW(parse_sym_expr(text), Error) << text;
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "Add(";
  EXPECT_THROW(parse_sym_expr(deep), Error);
}

}  // namespace
}  // namespace trireme::graph
