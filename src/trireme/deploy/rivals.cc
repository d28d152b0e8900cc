#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/deploy/policy.h"
#include "trireme/solver/least_squares.h"

namespace trireme::deploy {
namespace {

std::vector<size_t> open_indices(const Snapshot& snapshot) {
  const auto open = open_candidates(snapshot);
  std::vector<size_t> indices;
  for (size_t i = 0; i < open.size(); ++i)
    if (open[i]) indices.push_back(i);
  return indices;
}

// The same order at every call: which of it was probed is in the snapshot.
std::optional<size_t> next_random(const Snapshot& snapshot, uint64_t seed) {
  const auto open = open_candidates(snapshot);
  const Permutation order(open.size(), mix(seed, 0x5ea7c4));
  for (size_t i = 0; i < open.size(); ++i)
    if (open[order(i)]) return order(i);
  return std::nullopt;
}

std::optional<size_t> next_smallest(const Snapshot& snapshot) {
  const auto& space = *snapshot.space;
  std::vector<bool> begun(space.offers.size(), false);
  for (const auto& probe : snapshot.probes)
    begun[space.candidates[*space.find(probe.deployment)].type] = true;
  std::optional<size_t> cheapest;
  for (size_t i = 0; i < space.candidates.size(); ++i) {
    const auto& c = space.candidates[i];
    if (begun[c.type]) continue;
    begun[c.type] = true;
    if (!cheapest || c.probe_usd < space.candidates[*cheapest].probe_usd) cheapest = i;
  }
  return cheapest;
}

Decision one(size_t candidate, std::string reason) {
  return {.probes = {candidate}, .reason = std::move(reason)};
}

// The best value so far on the scale that is maximised: speed for time goals, samples per USD for money
// goals.
double rate_of(const Snapshot& snapshot, const Candidate& c) {
  double best = 0;
  for (const auto& market : c.markets)
    best = std::max(best, 1 / objective(snapshot.goal, training(market, 1, 1)));
  return best;
}

// P(the limits hold at this speed), as if probes were free.
double chance_of_limits(const Snapshot& snapshot, const Candidate& c, const Belief& belief) {
  const auto left = left_of(snapshot.goal, {});
  double chance = 0;
  for (const auto& market : c.markets) {
    const auto unit = training(market, snapshot.samples, 1);
    chance =
        std::max(chance, belief.probability_above(std::max(unit.hours / left.hours, unit.usd / left.usd)));
  }
  return chance;
}

Decision bayes_step(const Snapshot& snapshot, const BayesOptions& options) {
  const auto& space = *snapshot.space;
  double best = 0;
  for (const auto& probe : snapshot.probes)
    if (!probe.failed())
      best = std::max(
          best, probe.samples_per_s * rate_of(snapshot, space.candidates[*space.find(probe.deployment)]));
  Decision decision;
  if (best == 0) {
    const auto next = next_random(snapshot, options.seed);
    return next ? one(*next, "no probe has worked so far")
                : Decision{.reason = "every deployment was probed"};
  }
  const auto believed = beliefs(snapshot, options.surrogate);
  const auto left = left_of(snapshot.goal, spent_on(snapshot.probes));
  const auto reserve = options.guard ? incumbent(snapshot) : std::nullopt;
  const View* chosen = nullptr;
  for (const size_t i : open_indices(snapshot)) {
    const auto& c = space.candidates[i];
    View view{.candidate = i, .belief = believed[i]};
    if (options.guard) view.verdict = guard_verdict(left, probe_cost(c), reserve);
    const double rate = rate_of(snapshot, c);
    view.gain = believed[i].expected_improvement(best / rate) * rate;
    if (options.weigh_limits) view.gain *= chance_of_limits(snapshot, c, believed[i]);
    view.score = options.per_cost ? view.gain / c.probe_usd : view.gain;
    decision.views.push_back(view);
  }
  for (const auto& view : decision.views)
    if (view.verdict.empty() && (chosen == nullptr || view.score > chosen->score)) chosen = &view;
  if (chosen == nullptr) {
    decision.reason = decision.views.empty() ? "every deployment was probed" : "no probe fits the limits";
  } else if (static_cast<int64_t>(snapshot.probes.size()) >= options.min_probes &&
             chosen->gain < options.stop_share * best) {
    decision.reason =
        cat("the largest expected improvement is below ", options.stop_share * 100, " % of the best");
  } else {
    decision.probes = {chosen->candidate};
    decision.reason = "the largest expected improvement";
  }
  return decision;
}

Decision bayes(const Snapshot& snapshot, const BayesOptions& options) {
  if (options.max_probes > 0 && static_cast<int64_t>(snapshot.probes.size()) >= options.max_probes)
    return {.reason = cat("search.max_probes = ", options.max_probes, " reached")};
  if (options.smallest_start) {
    if (const auto next = next_smallest(snapshot)) return one(*next, "the smallest count of each type first");
  } else if (static_cast<int64_t>(snapshot.probes.size()) < options.starts) {
    if (const auto next = next_random(snapshot, options.seed)) return one(*next, "random start");
  }
  return bayes_step(snapshot, options);
}

// Smallest, largest and the geometric middle: what a curve in 1/n, log n and n needs at least.
std::vector<size_t> ernest_design(const SearchSpace& space, size_t type) {
  std::vector<size_t> all;
  for (size_t i = 0; i < space.candidates.size(); ++i)
    if (space.candidates[i].type == type) all.push_back(i);
  if (all.size() <= 3) return all;
  const double middle =
      (space.candidates[all.front()].log2_nodes + space.candidates[all.back()].log2_nodes) / 2;
  const auto near = std::min_element(all.begin() + 1, all.end() - 1, [&](size_t a, size_t b) {
    return std::abs(space.candidates[a].log2_nodes - middle) <
           std::abs(space.candidates[b].log2_nodes - middle);
  });
  return {all.front(), *near, all.back()};
}

std::vector<double> ernest_row(double n) {
  return {1, 1 / n, std::log(n), n};
}

// Speeds of all candidates by the fitted curve of their type; 0 where a type has fewer than two measurements.
std::vector<double> ernest_speeds(const Snapshot& snapshot) {
  const auto& space = *snapshot.space;
  std::vector<std::vector<double>> a(space.offers.size()), b(space.offers.size());
  for (const auto& probe : snapshot.probes) {
    if (probe.failed()) continue;
    const size_t type = space.candidates[*space.find(probe.deployment)].type;
    // Relative errors count: each row is divided by its time per sample.
    for (const double v : ernest_row(static_cast<double>(probe.deployment.nodes)))
      a[type].push_back(v * probe.samples_per_s);
    b[type].push_back(1);
  }
  std::vector<double> speeds;
  std::vector<std::vector<double>> fits;
  for (size_t type = 0; type < b.size(); ++type)
    fits.push_back(b[type].size() < 2 ? std::vector<double>()
                                      : solver::nonnegative_least_squares(a[type], 4, b[type]));
  for (const auto& c : space.candidates) {
    double time = 0;
    if (!fits[c.type].empty()) {
      const auto row = ernest_row(static_cast<double>(c.deployment.nodes));
      time = std::inner_product(row.begin(), row.end(), fits[c.type].begin(), 0.0);
    }
    speeds.push_back(time > 0 ? 1 / time : 0);
  }
  return speeds;
}

Decision ernest(const Snapshot& snapshot, int64_t verifications) {
  const auto& space = *snapshot.space;
  const auto open = open_candidates(snapshot);
  size_t designed = 0;
  for (size_t type = 0; type < space.offers.size(); ++type)
    for (const size_t i : ernest_design(space, type)) {
      if (open[i]) return one(i, "smallest, middle and largest count of each type");
      ++designed;
    }
  if (snapshot.probes.size() >= designed + static_cast<size_t>(verifications))
    return {.reason = "the fit was verified as often as asked"};
  const auto speeds = ernest_speeds(snapshot);
  const auto left = left_of(snapshot.goal, {});
  std::optional<Plan> best;
  for (size_t i = 0; i < speeds.size(); ++i) {
    if (speeds[i] <= 0) continue;
    const auto plan = best_plan(space.candidates[i], i, snapshot.goal, left, snapshot.samples, speeds[i]);
    if (plan &&
        (!best || objective(snapshot.goal, plan->training) < objective(snapshot.goal, best->training)))
      best = plan;
  }
  if (!best) return {.reason = "no deployment meets the limits by the fitted curves"};
  if (!open[best->candidate]) return {.reason = "the best deployment of the fitted curves was measured"};
  return one(best->candidate, "the best deployment of the fitted curves");
}

}  // namespace

Policy make_bayes(const BayesOptions& options) {
  return [options](const Snapshot& snapshot) { return bayes(snapshot, options); };
}

Policy make_random(uint64_t seed, int64_t probes) {
  return [=](const Snapshot& snapshot) -> Decision {
    if (static_cast<int64_t>(snapshot.probes.size()) >= probes)
      return {.reason = cat(probes, " random probes made")};
    const auto next = next_random(snapshot, seed);
    return next ? one(*next, "random") : Decision{.reason = "every deployment was probed"};
  };
}

Policy make_exhaustive() {
  return [](const Snapshot& snapshot) -> Decision {
    const auto open = open_indices(snapshot);
    return open.empty() ? Decision{.reason = "every deployment was probed"} : one(open.front(), "exhaustive");
  };
}

Policy make_ernest(int64_t verifications) {
  return [=](const Snapshot& snapshot) { return ernest(snapshot, verifications); };
}

}  // namespace trireme::deploy
