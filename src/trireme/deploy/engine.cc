#include "trireme/deploy/engine.h"

#include <algorithm>
#include <cmath>
#include <future>

#include "trireme/base/error.h"

namespace trireme::deploy {
namespace {

Snapshot snapshot_of(const SearchSetup& setup, const ProbeLog& log) {
  return {setup.space, setup.goal, setup.samples, log.probes(), setup.attempts};
}

const Market& cheapest(const Candidate& candidate) {
  return *std::min_element(candidate.markets.begin(), candidate.markets.end(),
                           [](const Market& a, const Market& b) { return a.usd_per_hour < b.usd_per_hour; });
}

// The speed at which a candidate would tie with the best so far, within what is left.
double needed_speed(const Snapshot& snapshot, const Candidate& c, const std::optional<Plan>& best) {
  const auto left = left_of(snapshot.goal, spent_on(snapshot.probes));
  const double samples = samples_left(snapshot.samples, snapshot.probes);
  double least = std::numeric_limits<double>::infinity();
  for (const auto& market : c.markets) {
    const auto unit = training(market, samples, 1);
    double needed = std::max({0.0, unit.hours / left.hours, unit.usd / left.usd});
    if (best)
      needed = std::max(needed, objective(snapshot.goal, unit) / objective(snapshot.goal, best->training));
    least = std::min(least, needed);
  }
  return least;
}

ProbeRequest request_for(const Snapshot& snapshot, size_t index) {
  const auto& c = snapshot.space->candidates[index];
  const auto& market = cheapest(c);
  return {.deployment = c.deployment,
          .planned_hours = c.probe_hours,
          .usd_per_hour = market.usd_per_hour,
          .spot = market.spot,
          .needed_samples_per_s = needed_speed(snapshot, c, incumbent(snapshot))};
}

Probe probe_of(const ProbeRequest& request, Measurement m, int64_t round) {
  if (m.error.empty() && !(std::isfinite(m.samples_per_s) && m.samples_per_s > 0))
    m.error = cat("the measured speed is ", m.samples_per_s, " samples/s");
  return {.deployment = request.deployment,
          .samples_per_s = m.error.empty() ? m.samples_per_s : 0,
          .relative_sd = m.error.empty() ? m.relative_sd : 0,
          .hours = m.hours,
          .usd = m.hours * request.usd_per_hour,
          .round = round,
          .samples_trained = m.samples_trained,
          .ended_early = m.ended_early,
          .interrupted = m.cancelled,
          .error = m.error};
}

std::vector<Probe> measure_round(Profiler& profiler, const std::vector<ProbeRequest>& requests,
                                 int64_t round) {
  if (requests.size() == 1) return {probe_of(requests[0], profiler.measure(requests[0]), round)};
  std::vector<std::future<Measurement>> running;
  for (const auto& request : requests)
    running.push_back(
        std::async(std::launch::async, [&profiler, &request] { return profiler.measure(request); }));
  std::vector<Probe> probes;
  for (size_t i = 0; i < running.size(); ++i)
    probes.push_back(probe_of(requests[i], running[i].get(), round));
  return probes;
}

void run_round(const Snapshot& snapshot, const Decision& decision, Profiler& profiler, ProbeLog& log) {
  int64_t round = 0;
  for (const auto& probe : snapshot.probes) round = std::max(round, probe.round + 1);
  std::vector<ProbeRequest> requests;
  std::vector<Probe> planned;
  for (const size_t index : decision.probes) {
    requests.push_back(request_for(snapshot, index));
    const auto& r = requests.back();
    planned.push_back({.deployment = r.deployment,
                       .hours = r.planned_hours,
                       .usd = r.planned_hours * r.usd_per_hour,
                       .round = round});
  }
  if (profiler.acts_outside()) log.begin(planned);
  log.end(measure_round(profiler, requests, round));
}

void choose(const SearchSetup& setup, const Snapshot& snapshot, Outcome& outcome) {
  const auto left = left_of(setup.goal, outcome.spent);
  const bool plain = setup.conclusion == Conclusion::within_the_limit;
  outcome.chosen = best_probed(snapshot, plain ? left_of(setup.goal, {}) : left);
  outcome.feasible = outcome.chosen && left.covers(outcome.chosen->training);
}

// The margin may be what stands between a deployment and the limit: then say so.
void explain_infeasible(const SearchSetup& setup, const Snapshot& snapshot, Outcome& outcome) {
  if (outcome.feasible || setup.goal.margin == 0) return;
  auto without = snapshot;
  without.goal.margin = 0;
  if (const auto plan = incumbent(without))
    outcome.notes.push_back(cat(to_text(setup.space->candidates[plan->candidate].deployment),
                                " would keep the limit, but not with goal.margin = ", setup.goal.margin));
}

void predict(const SearchSetup& setup, Outcome& outcome) {
  outcome.total = outcome.spent;
  if (!outcome.chosen) return;
  const auto& plan = *outcome.chosen;
  outcome.predicted = training(setup.space->candidates[plan.candidate].markets[plan.market],
                               outcome.samples_left, plan.measured_samples_per_s);
  outcome.total = outcome.spent + outcome.predicted;
}

}  // namespace

Outcome run_search(const SearchSetup& setup, Profiler& profiler, ProbeLog& log, const Observer& observer) {
  Outcome outcome;
  for (;;) {
    const auto snapshot = snapshot_of(setup, log);
    if (samples_left(setup.samples, log.probes()) == 0) {
      outcome.stop_reason = "the probes have trained the whole job";
      break;
    }
    const auto decision = setup.policy(snapshot);
    if (observer.decided) observer.decided(snapshot, decision);
    if (decision.probes.empty()) {
      outcome.stop_reason = decision.reason;
      outcome.notes = decision.notes;
      break;
    }
    const size_t before = snapshot.probes.size();
    run_round(snapshot, decision, profiler, log);
    if (log.probes().back().interrupted)
      fail(ErrorCode::cancelled, "stopped from outside; the same command goes on where this search was");
    if (observer.probed)
      for (const auto& probe : log.probes().subspan(before)) observer.probed(probe);
  }
  const auto snapshot = snapshot_of(setup, log);
  outcome.probes.assign(log.probes().begin(), log.probes().end());
  outcome.spent = spent_on(log.probes());
  outcome.samples_left = samples_left(setup.samples, log.probes());
  choose(setup, snapshot, outcome);
  explain_infeasible(setup, snapshot, outcome);
  predict(setup, outcome);
  return outcome;
}

Outcome oracle(const SearchSetup& setup, const SpeedTable& table) {
  Outcome outcome;
  outcome.samples_left = setup.samples;
  outcome.stop_reason = "the table was known beforehand";
  for (size_t i = 0; i < setup.space->candidates.size(); ++i) {
    const auto& c = setup.space->candidates[i];
    const auto row = table.rows.find(c.deployment);
    if (row == table.rows.end() || row->second.samples_per_s == 0) continue;
    const auto plan =
        best_plan(c, i, setup.goal, left_of(setup.goal, {}), setup.samples, row->second.samples_per_s);
    if (plan && (!outcome.chosen ||
                 objective(setup.goal, plan->training) < objective(setup.goal, outcome.chosen->training)))
      outcome.chosen = plan;
  }
  outcome.feasible = outcome.chosen.has_value();
  predict(setup, outcome);
  return outcome;
}

}  // namespace trireme::deploy
