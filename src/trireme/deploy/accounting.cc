#include "trireme/deploy/accounting.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "trireme/base/error.h"

namespace trireme::deploy {

Amount spent_on(std::span<const Probe> probes) {
  Amount spent;
  std::map<int64_t, double> rounds;
  for (const auto& probe : probes) {
    spent.usd += probe.usd;
    rounds[probe.round] = std::max(rounds[probe.round], probe.hours);
  }
  for (const auto& [round, hours] : rounds) spent.hours += hours;
  return spent;
}

Left left_of(const Goal& goal, const Amount& spent) {
  Left left;
  if (goal.deadline_hours) left.hours = *goal.deadline_hours * (1 - goal.margin) - spent.hours;
  if (goal.budget_usd) left.usd = *goal.budget_usd * (1 - goal.margin) - spent.usd;
  return left;
}

double samples_left(double samples, std::span<const Probe> probes) {
  for (const auto& probe : probes) samples -= static_cast<double>(probe.samples_trained);
  return std::max(samples, 0.0);
}

Amount training(const Market& market, double samples, double samples_per_s) {
  const double hours = samples / samples_per_s / 3600 * market.stretch;
  return {hours, hours * market.usd_per_hour};
}

double objective(const Goal& goal, const Amount& amount) {
  return goal.minimise == Goal::Minimise::time ? amount.hours : amount.usd;
}

std::optional<Plan> best_plan(const Candidate& candidate, size_t index, const Goal& goal, const Left& left,
                              double samples, double samples_per_s) {
  std::optional<Plan> best;
  for (size_t m = 0; m < candidate.markets.size(); ++m) {
    const auto amount = training(candidate.markets[m], samples, samples_per_s);
    if (!left.covers(amount)) continue;
    if (!best || objective(goal, amount) < objective(goal, best->training))
      best = Plan{index, m, samples_per_s, samples_per_s, amount};
  }
  return best;
}

double planning_speed(double samples_per_s, double relative_sd, double margin) {
  return samples_per_s * std::max(0.05, 1 - std::max(0.0, 3 * relative_sd - margin));
}

std::optional<Plan> best_probed(const Snapshot& snapshot, const Left& left) {
  const double samples = samples_left(snapshot.samples, snapshot.probes);
  std::optional<Plan> best;
  for (const auto& probe : snapshot.probes) {
    if (probe.failed()) continue;
    const auto index = snapshot.space->find(probe.deployment);
    TRIREME_CHECK(index, "a probe outside the space");
    auto plan = best_plan(snapshot.space->candidates[*index], *index, snapshot.goal, left, samples,
                          planning_speed(probe.samples_per_s, probe.relative_sd, snapshot.goal.margin));
    if (!plan ||
        (best && objective(snapshot.goal, plan->training) >= objective(snapshot.goal, best->training)))
      continue;
    plan->measured_samples_per_s = probe.samples_per_s;
    best = plan;
  }
  return best;
}

std::optional<Plan> incumbent(const Snapshot& snapshot) {
  return best_probed(snapshot, left_of(snapshot.goal, spent_on(snapshot.probes)));
}

std::vector<bool> open_candidates(const Snapshot& snapshot) {
  const auto& candidates = snapshot.space->candidates;
  std::vector<bool> open(candidates.size(), true);
  constexpr int64_t kCutOffs = 3;
  std::vector<int64_t> failures(candidates.size(), 0), cut_off(candidates.size(), 0);
  for (const auto& probe : snapshot.probes) {
    const auto index = snapshot.space->find(probe.deployment);
    TRIREME_CHECK(index, "a probe outside the space");
    const bool given_up = probe.interrupted ? ++cut_off[*index] >= kCutOffs
                                            : probe.failed() && ++failures[*index] >= snapshot.attempts;
    if (!probe.failed() || given_up) open[*index] = false;
  }
  return open;
}

}  // namespace trireme::deploy
