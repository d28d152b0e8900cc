#include "trireme/deploy/count_expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::deploy {
namespace {

TEST(CountExpression, TheProbeLengthOfThePaper) {
  const CountExpression minutes("10 + floor((n-1)/3)");
  for (const auto& [n, expected] :
       {std::pair{1, 10}, {4, 11}, {10, 13}, {20, 16}, {29, 19}, {50, 26}, {100, 43}})
    EXPECT_EQ(minutes(n), expected) << n;
}

TEST(CountExpression, FollowsTheUsualPrecedence) {
  EXPECT_EQ(CountExpression("1 + 2 * 3 - 8 / 4")(0), 5);
  EXPECT_EQ(CountExpression("2 - 3 - 4")(0), -5);
  EXPECT_EQ(CountExpression("-(n + 1) * 2")(3), -8);
  EXPECT_EQ(CountExpression("min(n, 4, 2.5) + max(n, 1)")(3), 5.5);
  EXPECT_EQ(CountExpression("ceil(log2(n)) + 1e1")(5), 13);
}

TEST(CountExpression, RefusalsShowThePlace) {
  const auto refusal = [](const std::string& text) {
    try {
      CountExpression expression(text);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal("10 + floor(n"), testing::HasSubstr("a ) is missing at \"\""));
  EXPECT_THAT(refusal("10 + m"), testing::HasSubstr("a number, n or a function is needed at \"m\""));
  EXPECT_THAT(refusal("10 11"), testing::HasSubstr("unexpected text at \"11\""));
  EXPECT_THAT(refusal(""), testing::HasSubstr("is needed"));
  EXPECT_THAT(refusal("system(n)"), testing::HasSubstr("is needed at \"system(n)\""));
  EXPECT_THAT(refusal(std::string(100000, '(')), testing::HasSubstr("nested too deep"));
  EXPECT_THAT(refusal(std::string(100000, '-')), testing::HasSubstr("nested too deep"));
}

}  // namespace
}  // namespace trireme::deploy
