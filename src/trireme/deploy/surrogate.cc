#include "trireme/deploy/surrogate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/base/error.h"

namespace trireme::deploy {
namespace {

double normal_density(double z) {
  return std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
}

// The value that the process models, less what is known of it beforehand.
double prior_value(const Candidate& candidate, const SurrogateOptions& options) {
  if (!options.log_speed) return 0;
  if (candidate.predicted_samples_per_s) return std::log(*candidate.predicted_samples_per_s);
  return options.growth * candidate.log2_nodes;
}

}  // namespace

double normal_cdf(double z) {
  return 0.5 * std::erfc(-z / std::numbers::sqrt2);
}

double Belief::speed() const {
  return quantile(0);
}

double Belief::quantile(double z) const {
  const double value = mean + z * sd;
  return logarithmic ? std::exp(value) : std::max(value, 0.0);
}

double Belief::probability_above(double samples_per_s) const {
  if (samples_per_s <= 0) return 1;
  if (!std::isfinite(samples_per_s)) return 0;
  const double value = logarithmic ? std::log(samples_per_s) : samples_per_s;
  if (sd <= 0) return mean >= value ? 1 : 0;
  return normal_cdf((mean - value) / sd);
}

double Belief::expected_improvement(double best) const {
  if (sd <= 0) return std::max(speed() - best, 0.0);
  if (!logarithmic) {
    const double z = (mean - best) / sd;
    return (mean - best) * normal_cdf(z) + sd * normal_density(z);
  }
  const double z = (mean - std::log(best)) / sd;
  return std::max(0.0, std::exp(mean + 0.5 * sd * sd) * normal_cdf(z + sd) - best * normal_cdf(z));
}

double Belief::expected_saving(double current, double work, double needed) const {
  TRIREME_CHECK(logarithmic);
  if (sd <= 0) return speed() >= needed ? std::max(current - work / speed(), 0.0) : 0;
  const double z = (mean - std::log(needed)) / sd;
  return std::max(0.0, current * normal_cdf(z) - work * std::exp(-mean + 0.5 * sd * sd) * normal_cdf(z - sd));
}

std::vector<Belief> beliefs(const Snapshot& snapshot, const SurrogateOptions& options) {
  const auto& space = *snapshot.space;
  solver::GpData data;
  data.groups = space.offers.size();
  data.features = space.features;
  for (const auto& probe : snapshot.probes) {
    if (probe.failed()) continue;
    const auto& c = space.candidates[space.find(probe.deployment).value()];
    data.inputs.push_back({c.log2_nodes, c.type});
    const double value = options.log_speed ? std::log(probe.samples_per_s) : probe.samples_per_s;
    data.residuals.push_back(value - prior_value(c, options));
    data.extra_noise_sd.push_back(options.log_speed ? probe.relative_sd
                                                    : probe.relative_sd * probe.samples_per_s);
  }
  TRIREME_CHECK(!data.residuals.empty());
  double mean = 0;
  for (const double v : data.residuals) mean += v / static_cast<double>(data.residuals.size());
  for (double& v : data.residuals) v -= mean;

  auto kernel = options.kernel;
  if (space.features.empty()) kernel.feature_length = 0;
  if (options.learn) kernel = solver::fit_kernel(kernel, data, data.inputs.size() > 100 ? 30 : 60);
  std::vector<solver::GpInput> at;
  for (const auto& c : space.candidates) at.push_back({c.log2_nodes, c.type});
  const auto predictions = solver::GaussianProcess(kernel, data).predict(at);
  std::vector<Belief> out;
  for (size_t i = 0; i < predictions.size(); ++i)
    out.push_back({mean + prior_value(space.candidates[i], options) + predictions[i].mean, predictions[i].sd,
                   options.log_speed});
  return out;
}

}  // namespace trireme::deploy
