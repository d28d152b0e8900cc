#pragma once
// The worked example of the tests: 24 deployments of a convolutional network on AWS t2 machines
// (data/deploy/README.md), speeds rounded to 0.1 samples/s; 25 million samples; probes of 10 + floor((n-1)/3)
// minutes.
#include "trireme/deploy/engine.h"

namespace trireme::deploy {

inline SpeedTable example_table() {
  SpeedTable table;
  const auto add = [&](const char* instance, std::initializer_list<std::pair<int64_t, double>> curve) {
    for (const auto& [nodes, speed] : curve) table.rows[{instance, nodes}] = {speed, 0};
  };
  add("t2.small", {{8, 218.3}, {16, 252.8}, {32, 272.4}, {48, 279.1}, {64, 297.6}, {80, 258.5}});
  add("t2.medium", {{4, 453.6}, {8, 971.8}, {16, 556.6}, {24, 623.4}, {32, 589.0}, {40, 574.4}});
  add("t2.xlarge", {{2, 527.8}, {4, 1041.5}, {8, 1585.9}, {12, 1451.4}, {16, 1752.4}, {20, 1767.5}});
  add("t2.2xlarge", {{1, 391.8}, {2, 780.8}, {4, 1035.1}, {6, 1627.1}, {8, 1742.3}, {10, 1207.8}});
  return table;
}

inline std::vector<spec::Offer> example_offers() {
  return {{.instance = "t2.small", .usd_per_hour = 0.023, .max_nodes = 80},
          {.instance = "t2.medium", .usd_per_hour = 0.0464, .max_nodes = 40},
          {.instance = "t2.xlarge", .usd_per_hour = 0.1856, .max_nodes = 20},
          {.instance = "t2.2xlarge", .usd_per_hour = 0.3712, .max_nodes = 10}};
}

inline SearchSpace space_of(const SpeedTable& table, std::vector<spec::Offer> offers) {
  SpaceRules rules;
  rules.only.emplace();
  for (const auto& [deployment, row] : table.rows) rules.only->push_back(deployment);
  return make_space(std::move(offers), rules);
}

inline SearchSpace example_space() {
  return space_of(example_table(), example_offers());
}

constexpr double kExampleSamples = 25e6;

inline Goal budget(double usd, double margin = 0) {
  return {.minimise = Goal::Minimise::time, .deadline_hours = {}, .budget_usd = usd, .margin = margin};
}

inline Goal deadline(double hours, double margin = 0) {
  return {.minimise = Goal::Minimise::money, .deadline_hours = hours, .budget_usd = {}, .margin = margin};
}

// The process of the worked example: raw speed, fixed kernel, mean of the observations.
inline SurrogateOptions raw_speed_surrogate() {
  return {.log_speed = false,
          .learn = false,
          .kernel = {.signal_sd = 500, .length = 2, .noise_sd = 20, .across = 0.5}};
}

// The probes of these deployments as the table answers them.
inline std::vector<Probe> probes_of(const SearchSpace& space, const SpeedTable& table,
                                    std::initializer_list<Deployment> deployments) {
  std::vector<Probe> probes;
  for (const auto& d : deployments) {
    const auto& c = space.candidates[space.find(d).value()];
    probes.push_back({.deployment = d,
                      .samples_per_s = table.rows.at(d).samples_per_s,
                      .hours = c.probe_hours,
                      .usd = c.probe_usd,
                      .round = static_cast<int64_t>(probes.size())});
  }
  return probes;
}

inline Outcome search(const SearchSpace& space, const SpeedTable& table, Goal goal, Policy policy,
                      Conclusion conclusion = Conclusion::within_what_is_left,
                      double samples = kExampleSamples) {
  ReplayProfiler profiler(table);
  MemoryLog log;
  return run_search({.space = &space,
                     .goal = goal,
                     .samples = samples,
                     .attempts = 1,
                     .policy = std::move(policy),
                     .conclusion = conclusion},
                    profiler, log);
}

// "medium 8" of the probes after the first `skip`.
inline std::vector<Deployment> deployments_after(const Outcome& outcome, size_t skip) {
  std::vector<Deployment> out;
  for (size_t i = skip; i < outcome.probes.size(); ++i) out.push_back(outcome.probes[i].deployment);
  return out;
}

}  // namespace trireme::deploy
