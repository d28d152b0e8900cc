#pragma once
// What is believed about the speed of deployments that were not measured: a Gaussian process over (log2
// nodes, type).
#include <vector>

#include "trireme/deploy/accounting.h"
#include "trireme/solver/gaussian_process.h"

namespace trireme::deploy {

struct SurrogateOptions {
  bool log_speed = true;  // the process models ln(samples/s); false: samples/s
  bool learn = true;      // the kernel's settings by their posterior density, about those of `kernel`
  double growth = 0;      // prior mean of ln speed per doubling of the nodes; log_speed only
  solver::GpKernel kernel{
      .signal_sd = 0.9, .length = 2.5, .noise_sd = 0.03, .across = 0.25, .feature_length = 2};
};

// A normal belief about one speed, or about its logarithm.
struct Belief {
  double mean = 0, sd = 0;
  bool logarithmic = true;

  double speed() const;             // the median
  double quantile(double z) const;  // mean + z standard deviations, as a speed; not below 0
  double probability_above(double samples_per_s) const;
  // E[max(speed - best, 0)]: expected improvement of the speed.
  double expected_improvement(double best) const;
  // E[(current - work / speed) if speed >= needed, else 0] for a quantity work/speed that training consumes:
  // expected saving against `current`. With logarithmic beliefs only.
  double expected_saving(double current, double work, double needed) const;
};

// One per candidate of the space. At least one successful probe is needed.
std::vector<Belief> beliefs(const Snapshot& snapshot, const SurrogateOptions& options);

double normal_cdf(double z);

}  // namespace trireme::deploy
