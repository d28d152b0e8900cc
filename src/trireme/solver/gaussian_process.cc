#include "trireme/solver/gaussian_process.h"

#include <Eigen/Cholesky>
#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "trireme/base/error.h"

namespace trireme::solver {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

std::vector<double> group_correlation(const GpKernel& kernel, const GpData& data) {
  const size_t n = data.groups;
  const bool featured = kernel.feature_length > 0 && !data.features.empty();
  std::vector<double> out(n * n, 1);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < i; ++j)
      out[i * n + j] = out[j * n + i] =
          featured ? matern52(distance(data.features[i], data.features[j]) / kernel.feature_length)
                   : kernel.across;
  return out;
}

// Hyperparameters on an unbounded scale, in units of the prior's standard deviation.
struct Coordinates {
  static constexpr size_t kCount = 4;
  static constexpr std::array<double, kCount> kPriorSd{0.2, 0.3, 0.7, 0.5};  // signal, length, groups, noise
  static constexpr double kBound = 3;
  using Point = std::array<double, kCount>;

  GpKernel prior;

  GpKernel at(const Point& z) const {
    GpKernel k = prior;
    k.signal_sd *= std::exp(kPriorSd[0] * z[0]);
    k.length *= std::exp(kPriorSd[1] * z[1]);
    const double odds = prior.across / (1 - prior.across) * std::exp(kPriorSd[2] * z[2]);
    k.across = odds / (1 + odds);
    k.feature_length *= std::exp(kPriorSd[2] * z[2]);
    k.noise_sd *= std::exp(kPriorSd[3] * z[3]);
    return k;
  }
};

bool repeats(const std::vector<GpInput>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (inputs[i].x == inputs[j].x && inputs[i].group == inputs[j].group) return true;
  return false;
}

}  // namespace

double matern52(double r) {
  const double s = std::sqrt(5.0) * r;
  return (1 + s + s * s / 3) * std::exp(-s);
}

GaussianProcess::GaussianProcess(const GpKernel& kernel, const GpData& data)
    : kernel_(kernel),
      inputs_(data.inputs),
      groups_(data.groups),
      correlation_(group_correlation(kernel, data)) {
  const auto n = static_cast<Index>(inputs_.size());
  TRIREME_CHECK(n > 0 && data.residuals.size() == inputs_.size());
  const double variance = kernel.signal_sd * kernel.signal_sd;
  MatrixXd covariance(n, n);
  for (Index i = 0; i < n; ++i) {
    const auto& a = inputs_[static_cast<size_t>(i)];
    for (Index j = 0; j <= i; ++j) {
      const auto& b = inputs_[static_cast<size_t>(j)];
      covariance(i, j) = variance * correlation_[a.group * groups_ + b.group] *
                         matern52(std::abs(a.x - b.x) / kernel.length);
    }
    const double extra = data.extra_noise_sd.empty() ? 0 : data.extra_noise_sd[static_cast<size_t>(i)];
    covariance(i, i) += kernel.noise_sd * kernel.noise_sd + extra * extra;
  }
  Eigen::LLT<MatrixXd> llt(covariance);
  for (jitter_ = 0; llt.info() != Eigen::Success;) {
    const double next = jitter_ == 0 ? 1e-10 * variance : jitter_ * 10;
    covariance.diagonal().array() += next - jitter_;
    jitter_ = next;
    TRIREME_CHECK(jitter_ <= variance * 10, "covariance cannot be factorised");
    llt.compute(covariance);
  }
  const Eigen::Map<const VectorXd> residuals(data.residuals.data(), n);
  const VectorXd weights = llt.solve(residuals);
  const MatrixXd factor = llt.matrixL();
  factor_.assign(factor.data(), factor.data() + n * n);
  weights_.assign(weights.data(), weights.data() + n);
  log_likelihood_ = -0.5 * residuals.dot(weights) - factor.diagonal().array().log().sum() -
                    0.5 * static_cast<double>(n) * std::log(2 * std::numbers::pi);
}

std::vector<GpPrediction> GaussianProcess::predict(std::span<const GpInput> inputs) const {
  const auto n = static_cast<Index>(inputs_.size()), m = static_cast<Index>(inputs.size());
  const double variance = kernel_.signal_sd * kernel_.signal_sd;
  MatrixXd cross(n, m);
  for (Index c = 0; c < m; ++c) {
    const auto& b = inputs[static_cast<size_t>(c)];
    for (Index r = 0; r < n; ++r) {
      const auto& a = inputs_[static_cast<size_t>(r)];
      const double correlation = correlation_[a.group * groups_ + b.group];
      // Most pairs of an unrelated type cost no exponential.
      cross(r, c) =
          correlation < 1e-12 ? 0 : variance * correlation * matern52(std::abs(a.x - b.x) / kernel_.length);
    }
  }
  const VectorXd mean = cross.transpose() * Eigen::Map<const VectorXd>(weights_.data(), n);
  Eigen::Map<const MatrixXd>(factor_.data(), n, n).triangularView<Eigen::Lower>().solveInPlace(cross);
  std::vector<GpPrediction> out(inputs.size());
  for (Index c = 0; c < m; ++c)
    out[static_cast<size_t>(c)] = {mean(c), std::sqrt(std::max(0.0, variance - cross.col(c).squaredNorm()))};
  return out;
}

GpKernel fit_kernel(const GpKernel& prior, const GpData& data, int evaluations) {
  const Coordinates space{prior};
  const bool groups_matter = data.groups > 1;
  const bool noise_shows = data.inputs.size() >= 6 || repeats(data.inputs);
  const auto density = [&](const Coordinates::Point& z) {
    double log_prior = 0;
    for (const double v : z) log_prior -= 0.5 * v * v;
    return GaussianProcess(space.at(z), data).log_likelihood() + log_prior;
  };
  Coordinates::Point best{};
  double best_density = density(best);
  int used = 1;
  for (double step = 1; step > 0.2 && used < evaluations;) {
    bool better = false;
    for (size_t i = 0; i < Coordinates::kCount; ++i) {
      if ((i == 2 && !groups_matter) || (i == 3 && !noise_shows)) continue;
      for (const double direction : {step, -step}) {
        auto z = best;
        z[i] = std::clamp(z[i] + direction, -Coordinates::kBound, Coordinates::kBound);
        if (z == best || used >= evaluations) continue;
        const double d = density(z);
        ++used;
        if (d <= best_density) continue;
        best = z;
        best_density = d;
        better = true;
        break;
      }
    }
    if (!better) step /= 2;
  }
  return space.at(best);
}

}  // namespace trireme::solver
