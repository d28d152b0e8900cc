#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <numeric>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/deploy/policy.h"

namespace trireme::deploy {
namespace {

std::string number(double value) {
  std::ostringstream out;
  out << std::setprecision(3) << value;
  return out.str();
}

// What the steps of one decision share.
struct Scene {
  const Snapshot& snapshot;
  const HeterboOptions& options;
  Left left;
  double samples;
  std::optional<Plan> best;
  std::vector<bool> open;

  Scene(const Snapshot& s, const HeterboOptions& o)
      : snapshot(s),
        options(o),
        left(left_of(s.goal, spent_on(s.probes))),
        samples(samples_left(s.samples, s.probes)),
        best(incumbent(s)),
        open(open_candidates(s)) {}
  const Candidate& at(size_t index) const { return snapshot.space->candidates[index]; }
  Left left_after(const Candidate& c) const { return {left.hours - c.probe_hours, left.usd - c.probe_usd}; }
};

// Cheapest first, as many side by side as the guard allows together.
std::vector<size_t> fill_round(const Scene& scene, const std::vector<size_t>& ranked) {
  std::vector<size_t> round;
  Amount total;
  for (const size_t index : ranked) {
    if (round.size() >= static_cast<size_t>(std::max<int64_t>(1, scene.options.parallel))) break;
    const auto cost = probe_cost(scene.at(index));
    const Amount with{std::max(total.hours, cost.hours), total.usd + cost.usd};
    if (!round.empty() && !guard_verdict(scene.left, with, scene.best).empty()) continue;
    round.push_back(index);
    total = with;
  }
  return round;
}

// Step 1: the smallest count of each type that was not probed yet, cheapest probe first.
Decision initial_design(const Scene& scene) {
  const auto& space = *scene.snapshot.space;
  std::vector<bool> begun(space.offers.size(), false);
  for (const auto& probe : scene.snapshot.probes) begun[scene.at(*space.find(probe.deployment)).type] = true;
  Decision decision;
  std::vector<size_t> ranked;
  for (size_t i = 0; i < space.candidates.size(); ++i) {
    const size_t type = space.candidates[i].type;
    if (begun[type]) continue;
    begun[type] = true;  // candidates of a type come in ascending counts
    const auto verdict = guard_verdict(scene.left, probe_cost(space.candidates[i]), scene.best);
    if (verdict.empty()) {
      ranked.push_back(i);
    } else {
      decision.notes.push_back(
          cat(to_text(space.candidates[i].deployment), " is not probed first: ", verdict));
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(), [&](size_t a, size_t b) {
    return space.candidates[a].probe_usd < space.candidates[b].probe_usd;
  });
  decision.probes = fill_round(scene, ranked);
  if (!ranked.empty())
    decision.reason = cat("initial design: the smallest count of each type, cheapest first; ", ranked.size(),
                          ranked.size() == 1 ? " type" : " types", " to go");
  return decision;
}

// Step 3: the largest count worth looking at, per type: the right point of the first pair of neighbours among
// the measured counts whose speed falls by more than the tolerance.
std::vector<double> prune_limits(const Scene& scene, std::vector<std::string>& notes) {
  const auto& space = *scene.snapshot.space;
  std::vector<double> limit(space.offers.size(), std::numeric_limits<double>::infinity());
  if (scene.options.prune == Prune::off) return limit;
  std::vector<std::map<int64_t, double>> curves(space.offers.size());
  for (const auto& probe : scene.snapshot.probes)
    if (!probe.failed())
      curves[scene.at(*space.find(probe.deployment)).type][probe.deployment.nodes] = probe.samples_per_s;
  for (size_t type = 0; type < curves.size(); ++type) {
    for (auto b = curves[type].begin(); b != curves[type].end(); ++b) {
      if (b == curves[type].begin()) continue;
      const auto a = std::prev(b);
      if (b->second >= (1 - scene.options.tolerance) * a->second) continue;
      limit[type] = static_cast<double>(b->first);
      notes.push_back(cat(space.offers[type].instance, ": ", b->first, " nodes are ",
                          number(100 * (1 - b->second / a->second)), " % slower than ", a->first,
                          scene.options.prune == Prune::hard ? "; larger counts are dropped"
                                                             : "; larger counts rank ten times lower"));
      break;
    }
  }
  return limit;
}

// Step 5: does any market fit what is left after the probe, at the speed's 95 % upper bound?
bool can_fit(const Scene& scene, const Candidate& c, double speed) {
  return speed > 0 &&
         best_plan(c, 0, scene.snapshot.goal, scene.left_after(c), scene.samples, speed).has_value();
}

// Without an incumbent there is no reserve to lose, and all that was seen are small counts, which tell little
// about large ones: then the bound is linear growth from the nearest smaller count of the type, if that is
// higher.
double optimistic_speed(const Scene& scene, const Candidate& c, const Belief& belief) {
  double speed = belief.quantile(scene.options.confidence_z);
  if (scene.best) return speed;
  double nearest = 0, linear = 0;
  for (const auto& probe : scene.snapshot.probes) {
    const auto n = static_cast<double>(probe.deployment.nodes);
    if (probe.failed() || probe.deployment.instance != c.deployment.instance || n <= nearest ||
        probe.deployment.nodes > c.deployment.nodes)
      continue;
    nearest = n;
    linear = probe.samples_per_s * static_cast<double>(c.deployment.nodes) / n;
  }
  return std::max(speed, linear);
}

// Step 6 and 7: what probing c is expected to save, in hours or USD of the job. Feasibility counts: a speed
// at which the limits break saves nothing. On raw speed the specification's formula, with the tie speed for
// "best".
double expected_gain(const Scene& scene, const Candidate& c, const Belief& belief) {
  const auto& goal = scene.snapshot.goal;
  const double current = objective(goal, scene.best->training);
  const auto left = scene.left_after(c);
  double gain = 0;
  for (const auto& market : c.markets) {
    const auto unit = training(market, scene.samples, 1);  // at one sample per second
    const double work = objective(goal, unit), tie = work / current;
    if (!belief.logarithmic) {
      gain = std::max(gain, current - work / (tie + belief.expected_improvement(tie)));
      continue;
    }
    const double needed = std::max({tie, unit.hours / left.hours, unit.usd / left.usd});
    gain = std::max(gain, belief.expected_saving(current, work, needed));
  }
  return gain;
}

// What candidates are ranked by: the expected saving less what the probe takes of the same quantity; on raw
// speed the specification's expected improvement, over the speed at which c would tie with the incumbent.
double merit(const Scene& scene, const Candidate& c, const Belief& belief, double gain) {
  if (belief.logarithmic) return gain - objective(scene.snapshot.goal, probe_cost(c));
  const double current = objective(scene.snapshot.goal, scene.best->training);
  double best = 0;
  for (const auto& market : c.markets) {
    const double tie = objective(scene.snapshot.goal, training(market, scene.samples, 1)) / current;
    best = std::max(best, belief.expected_improvement(tie));
  }
  return best;
}

// Without an incumbent: the probability that c meets the limits.
double chance_to_fit(const Scene& scene, const Candidate& c, const Belief& belief) {
  const auto left = scene.left_after(c);
  double chance = 0;
  for (const auto& market : c.markets) {
    const auto unit = training(market, scene.samples, 1);
    chance =
        std::max(chance, belief.probability_above(std::max(unit.hours / left.hours, unit.usd / left.usd)));
  }
  return chance;
}

double ranking_cost(const Scene& scene, const Candidate& c) {
  const bool money = scene.snapshot.goal.minimise == Goal::Minimise::time && scene.snapshot.goal.budget_usd;
  return money ? c.probe_usd : c.probe_hours;
}

View weigh(const Scene& scene, size_t index, const Belief& belief, bool pruned) {
  const auto& c = scene.at(index);
  View view{.candidate = index, .belief = belief};
  if (pruned && scene.options.prune == Prune::hard) {
    view.verdict = "dropped: a smaller count of this type was already past its peak";
    return view;
  }
  view.verdict = guard_verdict(scene.left, probe_cost(c), scene.best);
  if (!view.verdict.empty()) return view;
  if (!can_fit(scene, c, optimistic_speed(scene, c, belief))) {
    view.verdict = "dropped: breaks the limit even at the upper bound of its speed";
    return view;
  }
  if (scene.best) {
    view.gain = expected_gain(scene, c, belief);
    view.score = merit(scene, c, belief, view.gain) / std::pow(ranking_cost(scene, c), scene.options.alpha);
    if (view.gain <= objective(scene.snapshot.goal, probe_cost(c)))
      view.verdict = "no net gain: the probe costs more than it is expected to save";
  } else {
    view.score = chance_to_fit(scene, c, belief) / c.probe_usd;
  }
  if (pruned) view.score /= 10;
  return view;
}

std::string stop_reason(const Scene& scene, const std::vector<View>& views) {
  if (views.empty()) return "every deployment that can be probed was probed";
  const auto count = [&](const char* word) {
    return std::count_if(views.begin(), views.end(),
                         [&](const View& v) { return v.verdict.find(word) != std::string::npos; });
  };
  const auto gainless = count("net gain"), pruned = count("past its peak"), limits = count("limit");
  std::string detail = cat(" (", views.size(), " open: ", gainless, " without net gain, ", limits,
                           " past a limit, ", pruned, " past a peak)");
  if (!scene.best) return "no feasible deployment is known and none that fits the limits is left" + detail;
  return (gainless > 0 ? "no probe is expected to pay for itself" : "no probe fits the limits") + detail;
}

Decision decide(const Snapshot& snapshot, const HeterboOptions& options) {
  const Scene scene(snapshot, options);
  if (options.max_probes > 0 && static_cast<int64_t>(snapshot.probes.size()) >= options.max_probes)
    return {.reason = cat("search.max_probes = ", options.max_probes, " reached")};
  Decision decision = initial_design(scene);
  if (!decision.probes.empty()) return decision;

  const auto limits = prune_limits(scene, decision.notes);
  const bool any =
      std::any_of(snapshot.probes.begin(), snapshot.probes.end(), [](const Probe& p) { return !p.failed(); });
  const auto believed = any ? beliefs(snapshot, options.surrogate) : std::vector<Belief>();
  for (size_t i = 0; i < scene.open.size(); ++i) {
    if (!scene.open[i]) continue;
    if (!any) {  // nothing worked so far: the cheapest that can be paid
      const auto verdict = guard_verdict(scene.left, probe_cost(scene.at(i)), scene.best);
      decision.views.push_back({.candidate = i, .score = 1 / scene.at(i).probe_usd, .verdict = verdict});
      continue;
    }
    const bool pruned = static_cast<double>(scene.at(i).deployment.nodes) > limits[scene.at(i).type];
    decision.views.push_back(weigh(scene, i, believed[i], pruned));
  }
  std::vector<size_t> order;
  for (size_t v = 0; v < decision.views.size(); ++v)
    if (decision.views[v].verdict.empty()) order.push_back(v);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return decision.views[a].score > decision.views[b].score; });
  std::vector<size_t> ranked;
  for (const size_t v : order) ranked.push_back(decision.views[v].candidate);
  decision.probes = fill_round(scene, ranked);
  if (decision.probes.empty()) {
    decision.reason = stop_reason(scene, decision.views);
    return decision;
  }
  for (size_t rank = 0; rank < order.size(); ++rank) {
    auto& view = decision.views[order[rank]];
    const bool chosen =
        std::find(decision.probes.begin(), decision.probes.end(), view.candidate) != decision.probes.end();
    view.verdict = chosen ? "probe next" : cat("rank ", rank + 1);
  }
  decision.reason = scene.best ? "the largest expected saving per cost of the probe"
                               : "the best chance per cost to find a deployment that fits the limits";
  return decision;
}

}  // namespace

Amount probe_cost(const Candidate& candidate) {
  return {candidate.probe_hours, candidate.probe_usd};
}

std::string guard_verdict(const Left& left, const Amount& cost, const std::optional<Plan>& incumbent) {
  const auto reserve = incumbent ? incumbent->training : Amount{};
  const auto total = cost + reserve;
  if (left.covers(total)) return {};
  const bool money = total.usd > left.usd;
  const double need = money ? total.usd : total.hours, have = money ? left.usd : left.hours;
  return cat("the limit does not allow it: probe ",
             incumbent ? "and training on the best so far need " : "needs ", money ? "$" : "", number(need),
             money ? "" : " h", " of ", money ? "$" : "", number(std::max(have, 0.0)), money ? "" : " h");
}

Policy make_heterbo(const HeterboOptions& options) {
  return [options](const Snapshot& snapshot) { return decide(snapshot, options); };
}

}  // namespace trireme::deploy
