#include "trireme/solver/least_squares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/rng.h"

namespace trireme::solver {
namespace {

double squared_error(const std::vector<double>& a, size_t columns, const std::vector<double>& b,
                     const std::vector<double>& x) {
  double sum = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    double row = -b[i];
    for (size_t j = 0; j < columns; ++j) row += a[i * columns + j] * x[j];
    sum += row * row;
  }
  return sum;
}

TEST(NonnegativeLeastSquares, FindsCoefficientsThatAreAllPositive) {
  const std::vector<double> a{1, 2, 1, 5, 1, 9};
  const std::vector<double> b{3 + 4, 3 + 10, 3 + 18};
  const auto x = nonnegative_least_squares(a, 2, b);
  EXPECT_NEAR(x[0], 3, 1e-9);
  EXPECT_NEAR(x[1], 2, 1e-9);
}

TEST(NonnegativeLeastSquares, HoldsAtZeroWhatWouldBeNegative) {
  const auto x =
      nonnegative_least_squares(std::vector<double>{1, 1, 1, 2, 1, 3}, 2, std::vector<double>{3, 2, 1});
  EXPECT_NEAR(x[0], 2, 1e-9);
  EXPECT_EQ(x[1], 0);
}

// Against the slow way: no point of a grid around the solution does better.
TEST(NonnegativeLeastSquares, NoNeighbourIsBetter) {
  PhiloxStream random(7, 0);
  for (int trial = 0; trial < 50; ++trial) {
    constexpr size_t kRows = 6, kColumns = 4;
    std::vector<double> a(kRows * kColumns), b(kRows);
    for (auto& v : a) v = random.next_double() * 2 - 0.6;
    for (auto& v : b) v = random.next_double() * 2 - 0.6;
    const auto x = nonnegative_least_squares(a, kColumns, b);
    const double error = squared_error(a, kColumns, b, x);
    for (size_t j = 0; j < kColumns; ++j) {
      EXPECT_GE(x[j], 0);
      for (const double step : {1e-3, -1e-3}) {
        auto y = x;
        y[j] = std::max(0.0, y[j] + step);
        EXPECT_GE(squared_error(a, kColumns, b, y), error - 1e-9);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::solver
