#include "trireme/solver/gaussian_process.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <numbers>

#include "trireme/base/rng.h"

namespace trireme::solver {
namespace {

GpData some_data(size_t n, uint64_t seed) {
  PhiloxStream random(seed, 0);
  GpData data;
  data.groups = 3;
  for (size_t i = 0; i < n; ++i) {
    const GpInput input{random.next_double() * 6, static_cast<size_t>(random.next_u32() % 3)};
    data.inputs.push_back(input);
    data.residuals.push_back(std::sin(input.x) + 0.3 * static_cast<double>(input.group));
  }
  return data;
}

// The slow reference: the textbook formula with a plain inverse.
GpPrediction reference(const GpKernel& k, const GpData& data, GpInput at) {
  const auto n = static_cast<Eigen::Index>(data.inputs.size());
  const auto covariance = [&](const GpInput& a, const GpInput& b) {
    return k.signal_sd * k.signal_sd * (a.group == b.group ? 1 : k.across) *
           matern52(std::abs(a.x - b.x) / k.length);
  };
  Eigen::MatrixXd K(n, n);
  Eigen::VectorXd c(n), y(n);
  for (Eigen::Index i = 0; i < n; ++i) {
    y(i) = data.residuals[static_cast<size_t>(i)];
    c(i) = covariance(data.inputs[static_cast<size_t>(i)], at);
    for (Eigen::Index j = 0; j < n; ++j)
      K(i, j) = covariance(data.inputs[static_cast<size_t>(i)], data.inputs[static_cast<size_t>(j)]);
    K(i, i) += k.noise_sd * k.noise_sd;
  }
  const Eigen::MatrixXd inverse = K.inverse();
  return {c.dot(inverse * y), std::sqrt(k.signal_sd * k.signal_sd - c.dot(inverse * c))};
}

TEST(GaussianProcess, Matern52AtKnownPoints) {
  EXPECT_DOUBLE_EQ(matern52(0), 1);
  EXPECT_NEAR(matern52(1), (1 + std::sqrt(5) + 5.0 / 3) * std::exp(-std::sqrt(5)), 1e-15);
  EXPECT_LT(matern52(50), 1e-40);
}

TEST(GaussianProcess, AgreesWithTheFormulaWrittenOut) {
  const GpKernel kernel{.signal_sd = 0.9, .length = 2.5, .noise_sd = 0.05, .across = 0.4};
  const auto data = some_data(12, 1);
  const GaussianProcess gp(kernel, data);
  for (size_t group = 0; group < 3; ++group)
    for (double x = -1; x < 8; x += 0.5) {
      const GpInput at{x, group};
      const auto fast = gp.predict({&at, 1}).front(), slow = reference(kernel, data, at);
      EXPECT_NEAR(fast.mean, slow.mean, 1e-9);
      EXPECT_NEAR(fast.sd, slow.sd, 1e-7);
    }
}

TEST(GaussianProcess, RepeatedInputsWithoutNoiseGiveFiniteNumbers) {
  GpData data = some_data(3, 2);
  for (int i = 0; i < 5; ++i) {
    data.inputs.push_back(data.inputs[0]);
    data.residuals.push_back(data.residuals[0] + 0.01 * i);
  }
  const GaussianProcess gp({.signal_sd = 1, .length = 3, .noise_sd = 0, .across = 0.5}, data);
  EXPECT_GT(gp.jitter(), 0);
  EXPECT_TRUE(std::isfinite(gp.log_likelihood()));
  for (const auto& p : gp.predict(data.inputs)) EXPECT_TRUE(std::isfinite(p.mean) && std::isfinite(p.sd));
}

TEST(GaussianProcess, FeaturesSayWhichGroupsAreAlike) {
  GpData data;
  data.groups = 3;
  data.features = {{0.0}, {0.1}, {5.0}};
  data.inputs = {{1, 0}};
  data.residuals = {2};
  const GaussianProcess gp(
      {.signal_sd = 2, .length = 1, .noise_sd = 0.01, .across = 0.5, .feature_length = 1}, data);
  const std::vector<GpInput> at{{1, 1}, {1, 2}};
  const auto predictions = gp.predict(at);
  EXPECT_GT(predictions[0].mean, 1.9);
  EXPECT_LT(predictions[1].mean, 0.1);
  EXPECT_LT(predictions[0].sd, predictions[1].sd);
}

TEST(FitKernel, IsDeterministicBoundedAndNotWorseThanThePrior) {
  const GpKernel prior{.signal_sd = 0.9, .length = 2.5, .noise_sd = 0.03, .across = 0.4};
  for (const size_t n : {1, 4, 15}) {
    const auto data = some_data(n, n);
    const auto fitted = fit_kernel(prior, data);
    EXPECT_EQ(fitted, fit_kernel(prior, data));
    EXPECT_GT(fitted.across, 0);
    EXPECT_LT(fitted.across, 1);
    EXPECT_LE(std::abs(std::log(fitted.length / prior.length)), 1.5 + 1e-9);
    EXPECT_GE(GaussianProcess(fitted, data).log_likelihood(),
              GaussianProcess(prior, data).log_likelihood() - 1e-9);
  }
}

TEST(FitKernel, FindsALongLengthForASmoothCurve) {
  GpData smooth, rough;
  for (int i = 0; i < 12; ++i) {
    smooth.inputs.push_back({0.5 * i, 0});
    smooth.residuals.push_back(0.2 * i - 1.1);
    rough.inputs.push_back({0.5 * i, 0});
    rough.residuals.push_back(i % 2 == 0 ? 1 : -1);
  }
  const GpKernel prior{.signal_sd = 1, .length = 2, .noise_sd = 0.05, .across = 0.4};
  EXPECT_GT(fit_kernel(prior, smooth).length, 1.5 * fit_kernel(prior, rough).length);
}

}  // namespace
}  // namespace trireme::solver
