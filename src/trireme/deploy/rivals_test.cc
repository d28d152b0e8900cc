#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "trireme/deploy/test_table.h"

namespace trireme::deploy {
namespace {

class Rivals : public testing::Test {
 protected:
  const SpeedTable table = example_table();
  const SearchSpace space = example_space();
  Outcome run(Policy policy, Goal goal = {.margin = 0}) const {
    return search(space, table, goal, std::move(policy), Conclusion::within_the_limit);
  }
  Deployment chosen(const Outcome& o) const { return space.candidates[o.chosen->candidate].deployment; }
};

TEST_F(Rivals, ExhaustiveProbesAllAndFindsTheOptimum) {
  const auto outcome = run(make_exhaustive());
  EXPECT_EQ(outcome.probes.size(), 24U);
  EXPECT_EQ(chosen(outcome), (Deployment{"t2.xlarge", 20}));
  EXPECT_NEAR(outcome.spent.usd, 9.49, 0.005);
}

TEST_F(Rivals, RandomKeepsToItsCountAndSeed) {
  const auto a = run(make_random(1, 6)), b = run(make_random(1, 6)), c = run(make_random(2, 6));
  EXPECT_EQ(a.probes.size(), 6U);
  EXPECT_EQ(a.probes, b.probes);
  EXPECT_NE(deployments_after(a, 0), deployments_after(c, 0));
  EXPECT_EQ(run(make_random(1, 100)).probes.size(), 24U);
}

TEST_F(Rivals, BayesStopsAfterAtLeastSixProbes) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const auto outcome = run(make_bayes({.seed = seed}), budget(7));
    EXPECT_GE(outcome.probes.size(), 6U);
    EXPECT_LT(outcome.probes.size(), 24U);
    EXPECT_EQ(run(make_bayes({.max_probes = 4, .seed = seed})).probes.size(), 4U);
  }
}

TEST_F(Rivals, CherryPickLeansToWhatKeepsTheLimit) {
  double plain = 0, weighed = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    plain += run(make_bayes({.seed = seed}), budget(6)).spent.usd;
    weighed += run(make_bayes({.weigh_limits = true, .seed = seed}), budget(6)).spent.usd;
  }
  EXPECT_LT(weighed, plain);
}

TEST_F(Rivals, GuardedBayesKeepsTheBudget) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto outcome =
        search(space, table, budget(8), make_bayes({.smallest_start = true, .guard = true, .seed = seed}));
    EXPECT_TRUE(outcome.feasible);
    EXPECT_LE(outcome.total.usd, 8);
  }
}

// Speeds that follow the fitted form exactly: three probes a type, then the optimum at once.
TEST_F(Rivals, ErnestFindsTheOptimumOfItsOwnForm) {
  SpeedTable form;
  for (const auto& c : space.candidates) {
    const auto n = static_cast<double>(c.deployment.nodes);
    form.rows[c.deployment] = {
        1 / (1e-4 + 4e-3 / n + 1e-5 * std::log(n) + 2e-5 * n) * (1 + static_cast<double>(c.type)), 0};
  }
  const auto outcome = search(space, form, {.margin = 0}, make_ernest(), Conclusion::within_the_limit);
  EXPECT_LE(outcome.probes.size(), 14U);
  const auto best = oracle({.space = &space, .goal = {.margin = 0}, .samples = kExampleSamples}, form);
  EXPECT_EQ(outcome.chosen->candidate, best.chosen->candidate);
}

TEST_F(Rivals, OracleSaysWhenNothingFits) {
  EXPECT_FALSE(oracle({.space = &space, .goal = budget(1), .samples = kExampleSamples}, table).feasible);
}

}  // namespace
}  // namespace trireme::deploy
