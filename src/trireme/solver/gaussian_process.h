#pragma once
// Gaussian process regression over (x, group): how a value goes with x inside a group, and how much groups
// tell about each other. Source: Rasmussen and Williams, Gaussian Processes for Machine Learning,
// algorithm 2.1; Matern 5/2 is their eq. 4.17.
#include <cstddef>
#include <span>
#include <vector>

namespace trireme::solver {

struct GpInput {
  double x = 0;
  size_t group = 0;
};

// covariance((x, g), (x', g')) = signal_sd^2 · matern52(|x - x'| / length) · correlation(g, g')
struct GpKernel {
  double signal_sd = 1;   // in units of the values
  double length = 1;      // in units of x
  double noise_sd = 0.1;  // in units of the values
  double across = 0.5;    // correlation of two groups of which nothing is known, in [0, 1)
  double feature_length =
      0;  // > 0: correlation = matern52(distance of the groups' features / feature_length)
  bool operator==(const GpKernel&) const = default;
};

// (1 + √5 r + 5 r²/3) exp(-√5 r), r >= 0.
double matern52(double r);

struct GpPrediction {
  double mean = 0, sd = 0;  // of the noise-free value
};

// What is known: values less their prior mean, each with its own noise on top of the kernel's (may be empty).
// Features are those of the groups, all of one length (empty: groups without features).
struct GpData {
  std::vector<GpInput> inputs;
  std::vector<double> residuals;
  std::vector<double> extra_noise_sd;
  std::vector<std::vector<double>> features;
  size_t groups = 1;
};

class GaussianProcess {
 public:
  // Adds jitter to the diagonal, tenfold from 1e-10 of the signal's variance, until the matrix can be
  // factorised; repeated inputs and zero noise are therefore fine. At least one input.
  GaussianProcess(const GpKernel& kernel, const GpData& data);
  std::vector<GpPrediction> predict(std::span<const GpInput> inputs) const;
  double log_likelihood() const { return log_likelihood_; }
  double jitter() const { return jitter_; }

 private:
  GpKernel kernel_;
  std::vector<GpInput> inputs_;
  size_t groups_;
  std::vector<double> correlation_;  // groups x groups
  std::vector<double> factor_;       // lower Cholesky factor, column-major
  std::vector<double> weights_;      // covariance^-1 · residuals
  double log_likelihood_ = 0, jitter_ = 0;
};

// The kernel of largest posterior density: the likelihood times a log-normal prior about `prior` (for
// `across`: logit-normal), within three prior standard deviations of it. A deterministic compass search with
// at most `evaluations` factorisations. noise_sd is searched only when there are inputs that repeat or at
// least 6 inputs.
GpKernel fit_kernel(const GpKernel& prior, const GpData& data, int evaluations = 60);

}  // namespace trireme::solver
