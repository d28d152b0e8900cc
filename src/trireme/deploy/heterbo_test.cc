#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/deploy/test_table.h"

namespace trireme::deploy {
namespace {

using testing::ElementsAre;

HeterboOptions raw_speed_heterbo() {
  HeterboOptions options;
  options.surrogate = raw_speed_surrogate();
  options.alpha = 1;
  return options;
}

class WorkedExample : public testing::Test {
 protected:
  const SpeedTable table = example_table();
  const SearchSpace space = example_space();
  const std::vector<Probe> initial =
      probes_of(space, table, {{"t2.medium", 4}, {"t2.small", 8}, {"t2.xlarge", 2}, {"t2.2xlarge", 1}});
  Snapshot after_initial(Goal goal) const { return {&space, goal, kExampleSamples, initial, 1}; }
  static const View& view(const Decision& decision, const SearchSpace& space, const Deployment& d) {
    for (const auto& v : decision.views)
      if (space.candidates[v.candidate].deployment == d) return v;
    throw std::runtime_error("no view of " + to_text(d));
  }
};

TEST_F(WorkedExample, ProbingAllCosts) {
  double hours = 0, usd = 0;
  for (const auto& c : space.candidates) {
    hours += c.probe_hours;
    usd += c.probe_usd;
  }
  EXPECT_NEAR(hours, 6.35, 0.005);
  EXPECT_NEAR(usd, 9.49, 0.005);
}

TEST_F(WorkedExample, TrueOptimaWithoutProbes) {
  const auto best = [&](Goal goal) {
    const auto o = oracle({.space = &space, .goal = goal, .samples = kExampleSamples}, table);
    return std::make_tuple(space.candidates[o.chosen->candidate].deployment, o.predicted.hours,
                           o.predicted.usd);
  };
  const auto expect = [&](Goal goal, Deployment d, double hours, double usd) {
    const auto [deployment, h, c] = best(goal);
    EXPECT_EQ(deployment, d);
    EXPECT_NEAR(h, hours, 0.005);
    EXPECT_NEAR(c, usd, 0.005);
  };
  expect({.margin = 0}, {"t2.xlarge", 20}, 3.93, 14.58);
  expect(budget(7), {"t2.xlarge", 8}, 4.38, 6.50);
  expect(budget(8), {"t2.xlarge", 8}, 4.38, 6.50);
  expect(budget(10), {"t2.2xlarge", 6}, 4.27, 9.51);
  expect(deadline(8), {"t2.medium", 8}, 7.15, 2.65);
  expect(deadline(6), {"t2.xlarge", 8}, 4.38, 6.50);
}

TEST_F(WorkedExample, AfterTheInitialProbes) {
  const auto spent = spent_on(initial);
  EXPECT_NEAR(spent.usd, 0.195, 0.0005);
  EXPECT_NEAR(spent.hours, 0.717, 0.0005);
  struct Row {
    Deployment d;
    double mean, sd, improvement, probe_minutes, probe_usd, per_usd, gain, guard, at_upper;
  };
  const std::vector<Row> rows{{{"t2.small", 16}, 230.4, 275.6, 19.7, 15, 0.092, 214, 0.47, 5.17, 3.74},
                              {{"t2.small", 80}, 348.1, 486.3, 117.3, 36, 1.104, 106, 2.39, 6.18, 11.13},
                              {{"t2.medium", 8}, 393.6, 260.0, 50.2, 12, 0.074, 676, 1.14, 5.15, 3.14},
                              {{"t2.medium", 40}, 373.4, 481.2, 124.6, 23, 0.711, 175, 2.51, 5.79, 11.06},
                              {{"t2.xlarge", 4}, 476.4, 249.6, 76.0, 11, 0.136, 558, 1.66, 5.21, 5.81},
                              {{"t2.xlarge", 8}, 397.6, 375.8, 93.7, 12, 0.297, 316, 1.98, 5.38, 10.15},
                              {{"t2.xlarge", 20}, 363.5, 459.3, 112.7, 16, 0.990, 114, 2.31, 6.07, 23.04},
                              {{"t2.2xlarge", 6}, 354.2, 393.7, 85.3, 11, 0.408, 209, 1.83, 5.49, 15.44},
                              {{"t2.2xlarge", 10}, 332.5, 422.4, 88.6, 13, 0.804, 110, 1.89, 5.88, 25.09}};
  const auto believed = beliefs(after_initial(budget(10)), raw_speed_surrogate());
  const double best = 527.8;
  for (const auto& row : rows) {
    SCOPED_TRACE(to_text(row.d));
    const size_t i = space.find(row.d).value();
    const auto& c = space.candidates[i];
    EXPECT_NEAR(believed[i].mean, row.mean, 0.08);
    EXPECT_NEAR(believed[i].sd, row.sd, 0.06);
    const double ei = believed[i].expected_improvement(best);
    EXPECT_NEAR(ei, row.improvement, 0.08);
    EXPECT_NEAR(c.probe_hours * 60, row.probe_minutes, 1e-9);
    EXPECT_NEAR(c.probe_usd, row.probe_usd, 0.0006);
    EXPECT_NEAR(ei / c.probe_usd, row.per_usd, 0.8);
    const double s = kExampleSamples / 3600;
    EXPECT_NEAR(s / best - s / (best + ei), row.gain, 0.006);
    EXPECT_NEAR(spent.usd + c.probe_usd + s / best * 2 * 0.1856, row.guard, 0.006);
    EXPECT_NEAR(training(c.markets[0], kExampleSamples, believed[i].quantile(1.645)).usd, row.at_upper,
                0.006);
  }
}

TEST_F(WorkedExample, GuardAndUpperBoundDropWhatTheySay) {
  const auto dropped = [&](double usd, const char* word) {
    std::vector<Deployment> out;
    for (const auto& v : make_heterbo(raw_speed_heterbo())(after_initial(budget(usd))).views)
      if (v.verdict.find(word) != std::string::npos) out.push_back(space.candidates[v.candidate].deployment);
    return out;
  };
  EXPECT_TRUE(dropped(10, "does not allow").empty());
  EXPECT_THAT(dropped(6, "does not allow"),
              ElementsAre(Deployment{"t2.small", 80}, Deployment{"t2.xlarge", 20}));
  EXPECT_EQ(dropped(10, "at the upper bound").size(), 11U);
}

TEST_F(WorkedExample, PlainImprovementGoesToTheFarEdgePerCostDoesNot) {
  BayesOptions plain{.surrogate = raw_speed_surrogate(), .smallest_start = true};
  const auto first = [&](const BayesOptions& options) {
    return space.candidates[make_bayes(options)(after_initial(budget(10))).probes.front()].deployment;
  };
  EXPECT_EQ(first(plain), (Deployment{"t2.medium", 40}));
  plain.per_cost = true;
  EXPECT_EQ(first(plain), (Deployment{"t2.medium", 8}));
}

// The readings of the paper's eq. 6 (docs/reference/search.md, The printed formulas).
TEST_F(WorkedExample, ThePrintedFeasibilityScorePicksTheWorstMachines) {
  const auto believed = beliefs(after_initial(budget(10)), raw_speed_surrogate());
  struct Score {
    double value;
    Deployment d;
  };
  const auto ranked = [&](auto score) {
    std::vector<Score> all;
    for (size_t i = 0; i < space.candidates.size(); ++i) {
      const auto& c = space.candidates[i];
      bool probed = false;
      for (const auto& p : initial) probed = probed || p.deployment == c.deployment;
      if (!probed) all.push_back({score(c, believed[i].expected_improvement(527.8)), c.deployment});
    }
    std::sort(all.begin(), all.end(), [](const Score& a, const Score& b) { return a.value > b.value; });
    return all;
  };
  const double hours = kExampleSamples / 3600, spent = spent_on(initial).usd;
  const auto price = [&](const Candidate& c) { return space.offers[c.type].usd_per_hour; };
  const auto n = [](const Candidate& c) { return static_cast<double>(c.deployment.nodes); };
  const auto printed =
      ranked([&](const Candidate& c, double ei) { return 10 - spent - c.probe_usd - hours / ei * price(c); });
  EXPECT_EQ(printed[0].d, (Deployment{"t2.small", 48}));
  EXPECT_NEAR(printed[0].value, 7.72, 0.006);
  EXPECT_EQ(printed[1].d, (Deployment{"t2.small", 64}));
  EXPECT_EQ(printed[2].d, (Deployment{"t2.small", 32}));
  const auto with_nodes = ranked(
      [&](const Candidate& c, double ei) { return 10 - spent - c.probe_usd - hours / ei * price(c) * n(c); });
  EXPECT_EQ(with_nodes[0].d, (Deployment{"t2.medium", 8}));
  EXPECT_NEAR(with_nodes[0].value, -41.67, 0.3);
  const auto as_speed = ranked([&](const Candidate& c, double ei) {
    return 10 - spent - c.probe_usd - hours / (527.8 + ei) * price(c) * n(c);
  });
  EXPECT_EQ(as_speed[0].d, (Deployment{"t2.medium", 8}));
  EXPECT_NEAR(as_speed[0].value, 5.27, 0.006);
  EXPECT_EQ(std::count_if(as_speed.begin(), as_speed.end(), [](const Score& s) { return s.value > 0; }), 6);
}

struct WholeSearch {
  const char* name;
  double usd;
  Policy policy;
  Conclusion conclusion;
  std::vector<Deployment> probes;
  double probe_usd, probe_hours;
  Deployment chosen;
  double total_usd, total_hours;
  bool feasible;
};

TEST_F(WorkedExample, WholeSearches) {
  const BayesOptions plain{.surrogate = raw_speed_surrogate(), .smallest_start = true};
  auto guarded = plain;
  guarded.guard = true;
  auto per_cost = guarded;
  per_cost.per_cost = true;
  const auto heterbo = make_heterbo(raw_speed_heterbo());
  const Deployment m40{"t2.medium", 40}, s80{"t2.small", 80}, x20{"t2.xlarge", 20}, m8{"t2.medium", 8},
      m16{"t2.medium", 16}, x8{"t2.xlarge", 8}, x2{"t2.xlarge", 2};
  const auto limit = Conclusion::within_the_limit, left = Conclusion::within_what_is_left;
  const std::vector<WholeSearch> searches{
      {"plain", 7, make_bayes(plain), limit, {m40, s80, x20}, 3.00, 1.97, x2, 7.88, 15.1, false},
      {"guard", 7, make_bayes(guarded), left, {m40, s80}, 2.01, 1.70, x2, 6.89, 14.9, true},
      {"per cost and guard", 7, make_bayes(per_cost), left, {m8, m16}, 0.45, 1.17, m8, 3.11, 8.3, true},
      {"per cost and guard", 10, make_bayes(per_cost), left, {m8, m16}, 0.45, 1.17, m8, 3.11, 8.3, true},
      {"specification", 7, heterbo, left, {m8, m16}, 0.45, 1.17, m8, 3.11, 8.3, true},
      {"plain", 10, make_bayes(plain), limit, {m40, s80, x20}, 3.00, 1.97, x2, 7.88, 15.1, true},
      {"specification", 10, heterbo, left, {m8, m16, x8}, 0.75, 1.37, x8, 7.25, 5.75, true}};
  for (const auto& s : searches) {
    SCOPED_TRACE(cat(s.name, " at $", s.usd));
    const auto outcome = search(space, table, budget(s.usd), s.policy, s.conclusion);
    EXPECT_EQ(deployments_after(outcome, 4), s.probes);
    EXPECT_NEAR(outcome.spent.usd, s.probe_usd, 0.006);
    EXPECT_NEAR(outcome.spent.hours, s.probe_hours, 0.006);
    ASSERT_TRUE(outcome.chosen);
    EXPECT_EQ(space.candidates[outcome.chosen->candidate].deployment, s.chosen);
    EXPECT_NEAR(outcome.total.usd, s.total_usd, 0.006);
    EXPECT_NEAR(outcome.total.hours, s.total_hours, 0.06);
    EXPECT_EQ(outcome.feasible, s.feasible);
  }
}

TEST_F(WorkedExample, TheFallOfMediumPrunesItsLargerCounts) {
  auto probes = initial;
  for (const auto& p : probes_of(space, table, {{"t2.medium", 8}, {"t2.medium", 16}})) probes.push_back(p);
  const Snapshot snapshot{&space, budget(10), kExampleSamples, probes, 1};
  const auto decision = make_heterbo(raw_speed_heterbo())(snapshot);
  double avoided = 0;
  std::vector<int64_t> pruned;
  for (const auto& v : decision.views)
    if (v.verdict.find("past its peak") != std::string::npos) {
      avoided += space.candidates[v.candidate].probe_usd;
      pruned.push_back(space.candidates[v.candidate].deployment.nodes);
    }
  EXPECT_THAT(pruned, ElementsAre(24, 32, 40));
  EXPECT_NEAR(avoided, 1.52, 0.006);
  EXPECT_THAT(decision.notes, testing::Contains(testing::HasSubstr("42.7 % slower than 8")));
}

// The GPU table of the reference: falling from 4 to 6 nodes cuts 8, 12 and 16, three quarters of the money.
TEST(Prune, CutsTheCostlyEndOfAGpuCurve) {
  SpeedTable table;
  for (const auto& [n, speed] : {std::pair<int64_t, double>{1, 5192},
                                 {2, 7879},
                                 {3, 10815},
                                 {4, 13264},
                                 {6, 10070},
                                 {8, 9243},
                                 {12, 9662},
                                 {16, 7607}})
    table.rows[{"g4dn.12xlarge", n}] = {speed, 0};
  const auto space = space_of(table, {{.instance = "g4dn.12xlarge", .usd_per_hour = 3.912, .max_nodes = 16}});
  std::vector<double> costs;
  double all = 0;
  for (const auto& c : space.candidates) {
    costs.push_back(c.probe_usd);
    all += c.probe_usd;
  }
  const std::vector<double> expected{0.65, 1.30, 1.96, 2.87, 4.30, 6.26, 10.17, 15.65};
  for (size_t i = 0; i < costs.size(); ++i) EXPECT_NEAR(costs[i], expected[i], 0.006);
  EXPECT_NEAR(all, 43.16, 0.006);
  const auto pruned_money = [&](Prune mode, std::initializer_list<Deployment> seen) {
    const auto probes = probes_of(space, table, seen);
    HeterboOptions options;
    options.prune = mode;
    double money = 0;
    for (const auto& v : make_heterbo(options)({&space, {.margin = 0}, 1e9, probes, 1}).views)
      if (v.verdict.find("past its peak") != std::string::npos)
        money += space.candidates[v.candidate].probe_usd;
    return money;
  };
  const std::string type = "g4dn.12xlarge";
  EXPECT_NEAR(pruned_money(Prune::hard, {{type, 1}, {type, 2}, {type, 3}, {type, 4}, {type, 6}}), 32.08,
              0.006);
  EXPECT_EQ(pruned_money(Prune::hard, {{type, 4}, {type, 16}}), 0);  // a jump cuts nothing
  EXPECT_EQ(pruned_money(Prune::off, {{type, 1}, {type, 2}, {type, 3}, {type, 4}, {type, 6}}), 0);
  EXPECT_EQ(pruned_money(Prune::soft, {{type, 1}, {type, 2}, {type, 3}, {type, 4}, {type, 6}}), 0);
}

TEST(Heterbo, ReportsThatNoDeploymentIsFeasible) {
  const auto space = example_space();
  for (const double usd : {0.001, 0.01, 0.5, 1.0}) {
    const auto outcome = search(space, example_table(), budget(usd), make_heterbo({}));
    EXPECT_FALSE(outcome.feasible) << usd;
    EXPECT_FALSE(outcome.chosen);
    EXPECT_LE(outcome.spent.usd, usd);
    EXPECT_THAT(outcome.stop_reason, testing::HasSubstr("no feasible deployment is known"));
  }
}

TEST(Heterbo, KeepsBudgetAndDeadlineTogether) {
  const auto space = example_space();
  Goal both = budget(8, 0.05);
  both.deadline_hours = 7;
  const auto outcome = search(space, example_table(), both, make_heterbo({}));
  EXPECT_TRUE(outcome.feasible);
  EXPECT_LE(outcome.total.usd, 8 * 0.95 + 1e-9);
  EXPECT_LE(outcome.total.hours, 7 * 0.95 + 1e-9);
}

TEST(Heterbo, ProbesSideBySideWithinTheGuard) {
  const auto space = example_space();
  HeterboOptions options;
  options.parallel = 4;
  const auto outcome = search(space, example_table(), budget(10), make_heterbo(options));
  EXPECT_EQ(outcome.probes[3].round, 0);  // the initial design in one round
  double longest = 0;
  for (size_t i = 0; i < 4; ++i) longest = std::max(longest, outcome.probes[i].hours);
  EXPECT_LE(outcome.total.usd, 10);
  EXPECT_NEAR(spent_on(std::span(outcome.probes).first(4)).hours, longest, 1e-12);
}

// The promise of the method: with a feasible probe after the initial design, the limit is kept.
TEST(Heterbo, NeverOverrunsOnRandomTables) {
  PhiloxStream random(11, 0);
  for (int trial = 0; trial < 60; ++trial) {
    SpeedTable table;
    std::vector<spec::Offer> offers;
    for (int type = 0; type < 4; ++type) {
      const std::string name = cat("m", type);
      offers.push_back(
          {.instance = name, .usd_per_hour = 0.05 * std::exp(3 * random.next_double()), .max_nodes = 64});
      const double base = 50 * std::exp(2 * random.next_double()), peak = 1 + 63 * random.next_double();
      for (int64_t n = 1; n <= 64; n *= 2) {
        const auto x = static_cast<double>(n);
        table.rows[{name, n}] = {base * x / (1 + x * x / peak / peak) * (0.9 + 0.2 * random.next_double()),
                                 0};
      }
    }
    const auto space = space_of(table, offers);
    for (const double usd : {3.0, 10.0, 40.0}) {
      const auto money =
          search(space, table, budget(usd), make_heterbo({}), Conclusion::within_what_is_left, 5e6);
      EXPECT_LE(money.feasible ? money.total.usd : 0, usd * (1 + 1e-9));
      EXPECT_LE(money.spent.usd, usd * (1 + 1e-9));
      const auto time =
          search(space, table, deadline(usd), make_heterbo({}), Conclusion::within_what_is_left, 5e6);
      EXPECT_LE(time.feasible ? time.total.hours : 0, usd * (1 + 1e-9));
      EXPECT_LE(time.spent.hours, usd * (1 + 1e-9));
    }
  }
}

}  // namespace
}  // namespace trireme::deploy
