#include "trireme/stats/regression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/stats/lasso.h"
#include "trireme/stats/quantiser.h"
#include "trireme/stats/test_data.h"

namespace trireme::stats {
namespace {

using namespace testing;
using ::testing::HasSubstr;

struct Task {
  Dense x, y;
  std::vector<double> theta;
};
Task make_task(size_t n, size_t d, size_t s, uint64_t seed) {
  Task task{normal_matrix(n, d, seed), Dense(n, 1), std::vector<double>(d, 0.0)};
  PhiloxStream noise(seed, 99);
  for (size_t k = 0; k < s; ++k) task.theta[k * d / s] = (k % 2 ? -1 : 1) / std::sqrt(static_cast<double>(s));
  for (size_t i = 0; i < n; ++i) {
    task.y(i, 0) = 0.5 * normal(noise);
    for (size_t j = 0; j < d; ++j) task.y(i, 0) += task.x(i, j) * task.theta[j];
  }
  return task;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t j = 0; j < a.size(); ++j) sum += (a[j] - b[j]) * (a[j] - b[j]);
  return std::sqrt(sum);
}

double rate(size_t d, size_t n) {
  return std::sqrt(std::log(static_cast<double>(d)) / static_cast<double>(n));
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing thrown";
}

TEST(Lasso, LazyColumnsAndDenseGramAgreeAndAreOptimal) {
  const Task task = make_task(600, 80, 5, 3);
  const BitMatrix y = quantise(view(task.y), book_of(Scheme::one_bit, 1, 3), {});
  const LassoOptions options{.lambda = 3 * rate(80, 600), .tolerance = 1e-9};
  const LassoFit lazy = lasso_full(view(task.x), y, 1e9, options);
  std::vector<double> b(80, 0.0);
  for (size_t i = 0; i < 600; ++i)
    for (size_t j = 0; j < 80; ++j) b[j] += y.value(i, 0) * task.x(i, j) / 600;
  const Dense gram = full_precision_second_moment(view(task.x));
  const LassoFit dense = lasso_gram(gram, b, options);
  EXPECT_TRUE(lazy.converged);
  EXPECT_LT(distance(lazy.coefficients, dense.coefficients), 1e-7);
  std::vector<double> gradient(80);
  for (size_t j = 0; j < 80; ++j) {
    gradient[j] = -b[j];
    for (size_t k = 0; k < 80; ++k) gradient[j] += gram(j, k) * dense.coefficients[k];
  }
  EXPECT_LT(lasso_violation(gradient, dense.coefficients, options.lambda), 1e-7);
  EXPECT_EQ(dense.path, LassoPath::convex);
}

TEST(Lasso, BallPathIsTheConvexSolutionWhenTheBallIsWide) {
  const Task task = make_task(400, 30, 3, 4);
  const Dense gram = full_precision_second_moment(view(task.x));
  std::vector<double> b(30, 0.0);
  for (size_t i = 0; i < 400; ++i)
    for (size_t j = 0; j < 30; ++j) b[j] += task.y(i, 0) * task.x(i, j) / 400;
  LassoOptions options{.lambda = 0.05, .tolerance = 1e-9};
  const LassoFit convex = lasso_gram(gram, b, options);
  options.radius = 50;
  const LassoFit ball = lasso_gram(gram, b, options);
  EXPECT_EQ(ball.path, LassoPath::l1_ball);
  EXPECT_LT(distance(convex.coefficients, ball.coefficients), 1e-6);
  options.radius = 0.5;
  const LassoFit tight = lasso_gram(gram, b, options);
  double norm = 0;
  for (double t : tight.coefficients) norm += std::abs(t);
  EXPECT_NEAR(norm, 0.5, 1e-9);
}

TEST(Lasso, ProximalStepIsTheMinimiser) {
  const std::vector<double> point{1.0, -0.6, 0.3, 0.05};
  const auto value = [&](const std::vector<double>& z) {
    double sum = 0;
    for (size_t j = 0; j < z.size(); ++j) sum += std::pow(z[j] - point[j], 2) / 2 + 0.1 * std::abs(z[j]);
    return sum;
  };
  PhiloxStream random(1, 1);
  for (double radius : {0.2, 0.7, 1.0, 5.0}) {
    const std::vector<double> best = prox_l1_ball(point, 0.1, radius);
    double norm = 0;
    for (double z : best) norm += std::abs(z);
    EXPECT_LE(norm, radius + 1e-12);
    for (int trial = 0; trial < 500; ++trial) {
      std::vector<double> other = best;
      double other_norm = 0;
      for (double& z : other) other_norm += std::abs(z += 0.1 * (random.next_double() - 0.5));
      if (other_norm <= radius) {
        EXPECT_GE(value(other), value(best) - 1e-12);
      }
    }
  }
}

TEST(Lasso, IndefiniteGramIsRefusedSwitchedOrBounded) {
  Dense gram(2, 2);
  gram.values = {1, 1.5, 1.5, 1};
  const std::vector<double> b{1, 0.2};
  LassoOptions options{.lambda = 0.1};
  const LassoFit projected = lasso_gram(gram, b, options);
  EXPECT_EQ(projected.path, LassoPath::psd_projected);
  EXPECT_THAT(projected.warning, HasSubstr("negative eigenvalue (-0.5)"));
  EXPECT_NEAR(projected.smallest_eigenvalue, -0.5, 1e-12);
  options.path = LassoPath::convex;
  EXPECT_THAT(message_of([&] { lasso_gram(gram, b, options); }), HasSubstr("give a radius"));
  options.path = LassoPath::l1_ball;
  EXPECT_THAT(message_of([&] { lasso_gram(gram, b, options); }), HasSubstr("finite radius"));
  options.radius = 2;
  EXPECT_TRUE(lasso_gram(gram, b, options).converged);
  options.max_iterations = 1;
  EXPECT_THAT(lasso_gram(gram, b, options).warning, HasSubstr("not converged after 1 steps"));
}

TEST(Lasso, WrongInputIsNamed) {
  const Task task = make_task(50, 4, 2, 3);
  const BitMatrix y = quantise(view(task.y), book_of(Scheme::one_bit, 1, 3), {});
  const Dense shorter(49, 4, 1.0), one(1, 4, 1.0);
  EXPECT_THAT(message_of([&] { lasso_full(view(shorter), y, 9, {}); }), HasSubstr("x has 49 rows, y has 50"));
  EXPECT_THAT(message_of([&] { lasso_full(view(one), y.slice(0, 1), 9, {}); }), HasSubstr("at least 2 rows"));
  EXPECT_THAT(message_of([&] { lasso_gram(Dense(3, 2), {1, 2}, {}); }), HasSubstr("does not fit"));
  RegressionCounts counts(book_of(Scheme::triangular, 4, 3), y.book());
  EXPECT_THAT(message_of([&] { counts.add(quantise(view(task.x), counts.gram_counts().book(), {}), y); }),
              HasSubstr("same dithers"));
}

TEST(Lasso, ConstantColumnStaysOut) {
  Task task = make_task(300, 6, 2, 3);
  for (size_t i = 0; i < 300; ++i) task.x(i, 1) = 0;
  const BitMatrix y = quantise(view(task.y), book_of(Scheme::one_bit, 1, 3), {});
  const LassoFit fit = lasso_full(view(task.x), y, 1e9, {.lambda = 0.01});
  EXPECT_TRUE(fit.converged);
  EXPECT_EQ(fit.coefficients[1], 0);
}

TEST(Regression, QuantisedMomentsAreThoseOfDecodedValues) {
  const Task task = make_task(333, 9, 2, 8);
  for (Scheme scheme : {Scheme::two_dither, Scheme::triangular}) {
    const CodeBook xb = book_of(scheme, 9, 3), yb = book_of(Scheme::multi_bit, 1, 2, 2);
    const BitMatrix x = quantise(view(task.x), xb, {}), y = quantise(view(task.y), yb, {.stream = 1});
    RegressionCounts counts(xb, yb), left(xb, yb), right(xb, yb);
    counts.add(x, y);
    left.add(x.slice(0, 100), y.slice(0, 100));
    right.add(x.slice(100, 233), y.slice(100, 233));
    left.merge(right);
    EXPECT_EQ(left.cross(), counts.cross());
    EXPECT_EQ(left.gram(), counts.gram());
    for (size_t j = 0; j < 9; ++j) {
      double sum = 0;
      for (size_t i = 0; i < 333; ++i)
        sum += y.value(i, 0) *
               (scheme == Scheme::two_dither ? (x.value(i, j, 0) + x.value(i, j, 1)) / 2 : x.value(i, j));
      EXPECT_NEAR(counts.cross()[j], sum / 333, 1e-12);
    }
  }
}

// dither.md 7.4 at n = 2000 in few trials: 0.499 for the triangular path, 0.693 for all pairs.
TEST(Regression, QuantisedCovariatesRecoverInTheBall) {
  constexpr size_t n = 2000, d = 100;
  const double g = std::sqrt(std::log(2000.0));
  double triangular = 0, pairs = 0;
  constexpr int trials = 8;
  for (int t = 0; t < trials; ++t) {
    const Task task = make_task(n, d, 5, 500 + t);
    const BitMatrix y = quantise(view(task.y), book_of(Scheme::one_bit, 1, g), {.stream = 1});
    for (Scheme scheme : {Scheme::triangular, Scheme::two_dither}) {
      RegressionCounts counts(book_of(scheme, d, g), y.book());
      counts.add(quantise(view(task.x), counts.gram_counts().book(), {}), y);
      const double multiple = scheme == Scheme::triangular ? 0.35 : 0.5;
      const LassoFit fit =
          lasso_gram(counts.gram(), counts.cross(),
                     {.lambda = multiple * g * g * rate(d, n), .radius = 1.5 * std::sqrt(5.0)});
      EXPECT_TRUE(fit.converged);
      (scheme == Scheme::triangular ? triangular : pairs) += distance(fit.coefficients, task.theta) / trials;
    }
  }
  EXPECT_NEAR(triangular, 0.499, 0.12 * 0.499);
  EXPECT_NEAR(pairs, 0.693, 0.12 * 0.693);
}

TEST(Regression, FoldsChooseLambdaNearTheBest) {
  const Task task = make_task(4000, 60, 5, 21);
  const BitMatrix y = quantise(view(task.y), book_of(Scheme::one_bit, 1, 3), {.stream = 1});
  const std::vector<double> candidates{0.2, 0.4, 0.6, 0.8, 1.0, 1.4, 2.0};
  std::vector<double> errors;
  for (double c : candidates)
    errors.push_back(distance(
        lasso_full(view(task.x), y, 1e9, {.lambda = c * 3 * rate(60, 4000)}).coefficients, task.theta));
  const LambdaChoice full = choose_lambda_full(view(task.x), y, 1e9, candidates, 5, {});
  const auto at = std::find(candidates.begin(), candidates.end(), full.multiple) - candidates.begin();
  EXPECT_LE(errors[static_cast<size_t>(at)], 1.25 * *std::min_element(errors.begin(), errors.end()));
  const BitMatrix x = quantise(view(task.x), book_of(Scheme::triangular, 60, 3), {});
  const LambdaChoice bits = choose_lambda_quantised(x, y, Pairing::all_pairs, candidates, 5, {.radius = 4});
  EXPECT_LT(bits.multiple, 2.0);
  EXPECT_EQ(bits.criterion.size(), candidates.size());
}

TEST(Regression, StandardErrorsCoverTheTruthOnAnUnpenalisedFit) {
  int covered = 0, covered_bits = 0, total = 0;
  for (int t = 0; t < 60; ++t) {
    const Task task = make_task(2000, 4, 4, 900 + t);
    const BitMatrix y = quantise(view(task.y), book_of(Scheme::one_bit, 1, 6),
                                 {.seed = static_cast<uint64_t>(t), .stream = 1});
    const LassoFit fit = lasso_full(view(task.x), y, 1e9, {.lambda = 0});
    const std::vector<double> error = lasso_errors_full(view(task.x), y, 1e9, fit.coefficients);
    RegressionCounts counts(book_of(Scheme::triangular, 4, 5), y.book());
    const BitMatrix x =
        quantise(view(task.x), counts.gram_counts().book(), {.seed = static_cast<uint64_t>(t)});
    counts.add(x, y);
    const LassoFit bits = lasso_gram(counts.gram(), counts.cross(), {.lambda = 0});
    const std::vector<double> bits_error = lasso_errors_quantised(x, y, bits.coefficients);
    for (size_t j = 0; j < 4; ++j, ++total) {
      covered += std::abs(fit.coefficients[j] - task.theta[j]) < 2 * error[j];
      covered_bits += std::abs(bits.coefficients[j] - task.theta[j]) < 2 * bits_error[j];
    }
  }
  EXPECT_NEAR(covered / static_cast<double>(total), 0.954, 0.05);
  EXPECT_NEAR(covered_bits / static_cast<double>(total), 0.954, 0.05);
}

TEST(Eigenvalues, LanczosFindsBothEnds) {
  constexpr size_t d = 500;
  Dense m(d, d);
  for (size_t i = 0; i < d; ++i) m(i, i) = 1 + static_cast<double>(i) / d;
  m(0, 1) = m(1, 0) = 5;
  const EigenRange range = eigenvalue_range(m);
  EXPECT_NEAR(range.smallest, -4, 0.05);
  EXPECT_NEAR(range.largest, 6, 0.05);
}

}  // namespace
}  // namespace trireme::stats
