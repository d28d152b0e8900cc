#pragma once
// What was spent, what is left, what training would cost: the arithmetic that every policy shares.
// Source: HeterBO (IPDPS 2020), section III-A, with total = probes + training in both time and money.
#include <limits>
#include <span>
#include <string>

#include "trireme/deploy/space.h"

namespace trireme::deploy {

struct Goal {
  enum class Minimise { time, money } minimise = Minimise::time;
  std::optional<double> deadline_hours, budget_usd;
  double margin = 0.05;  // share of each limit that is kept in hand
};

// One finished probe, successful or not; it is paid either way.
struct Probe {
  Deployment deployment;
  double samples_per_s = 0;     // > 0 unless it failed
  double relative_sd = 0;       // standard error of samples_per_s, relative
  double hours = 0, usd = 0;    // used, not planned
  int64_t round = 0;            // probes of one round ran side by side
  int64_t samples_trained = 0;  // real training steps that are kept: deducted from the job
  bool ended_early = false;
  bool interrupted = false;  // failed because the search was cut off
  std::string error;         // why it failed; empty: it did not
  bool failed() const { return !error.empty(); }
  bool operator==(const Probe&) const = default;
};

struct Amount {
  double hours = 0, usd = 0;
  Amount operator+(const Amount& other) const { return {hours + other.hours, usd + other.usd}; }
  bool operator==(const Amount&) const = default;
};

// Money adds up over all probes, time over rounds, of which the longest probe counts.
Amount spent_on(std::span<const Probe> probes);

// What may still be spent; infinite where the goal sets no limit.
struct Left {
  double hours = std::numeric_limits<double>::infinity(), usd = std::numeric_limits<double>::infinity();
  bool covers(const Amount& amount) const {
    // Rounding in the last place is no overrun.
    return amount.hours <= hours * (1 + 1e-12) && amount.usd <= usd * (1 + 1e-12);
  }
};
Left left_of(const Goal& goal, const Amount& spent);

// What is still to be trained: samples of the job less those that probes trained; at least 0.
double samples_left(double samples, std::span<const Probe> probes);

Amount training(const Market& market, double samples, double samples_per_s);
double objective(const Goal& goal, const Amount& amount);

// A deployment with a way to pay for it.
struct Plan {
  size_t candidate = 0, market = 0;
  double samples_per_s = 0;  // planned with
  double measured_samples_per_s = 0;
  Amount training;  // at the planned speed
};

// The market of least objective that `left` covers, or nothing.
std::optional<Plan> best_plan(const Candidate& candidate, size_t index, const Goal& goal, const Left& left,
                              double samples, double samples_per_s);

// The speed that is planned with: three standard errors of the measurement that the margin does not cover are
// taken off.
double planning_speed(double samples_per_s, double relative_sd, double margin);

// The state of a search, from which a policy decides. Values only; nothing is owned.
struct Snapshot {
  const SearchSpace* space = nullptr;
  Goal goal;
  double samples = 0;  // of the whole job
  std::span<const Probe> probes;
  int64_t attempts =
      1;  // a deployment whose probe failed that often is given up; cut-off ones count from the third
};

// The probed deployment of least objective among those that `left` covers.
std::optional<Plan> best_probed(const Snapshot& snapshot, const Left& left);
// The same with what the goal leaves after the probes: HeterBO's incumbent.
std::optional<Plan> incumbent(const Snapshot& snapshot);

// Per candidate: may it be probed (not measured yet, not given up)?
std::vector<bool> open_candidates(const Snapshot& snapshot);

}  // namespace trireme::deploy
