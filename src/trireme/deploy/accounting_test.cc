#include "trireme/deploy/accounting.h"

#include <gtest/gtest.h>

#include "trireme/deploy/test_table.h"

namespace trireme::deploy {
namespace {

TEST(Accounting, MoneyAddsUpOverProbesTimeOverRounds) {
  const std::vector<Probe> probes{{.hours = 1, .usd = 2, .round = 0},
                                  {.hours = 3, .usd = 4, .round = 0},
                                  {.hours = 0.5, .usd = 1, .round = 1}};
  EXPECT_EQ(spent_on(probes), (Amount{3.5, 7}));
}

TEST(Accounting, TheMarginIsKeptOfEachLimit) {
  Goal goal{.deadline_hours = 10, .budget_usd = 100, .margin = 0.1};
  const auto left = left_of(goal, {1, 20});
  EXPECT_DOUBLE_EQ(left.hours, 8);
  EXPECT_DOUBLE_EQ(left.usd, 70);
  EXPECT_TRUE(left.covers({8, 70}));
  EXPECT_FALSE(left.covers({8.001, 70}));
  EXPECT_TRUE(left_of({}, {1, 1}).covers({1e9, 1e9}));
}

TEST(Accounting, NoiseBeyondTheMarginIsTakenOffTheSpeed) {
  EXPECT_EQ(planning_speed(100, 0, 0.05), 100);
  EXPECT_EQ(planning_speed(100, 0.01, 0.05), 100);  // three standard errors are within the margin
  EXPECT_DOUBLE_EQ(planning_speed(100, 0.05, 0.05), 90);
  EXPECT_GT(planning_speed(100, 10, 0.05), 0);
}

TEST(Accounting, TrainedSamplesAreDeducted) {
  const std::vector<Probe> probes{{.samples_trained = 30}, {.samples_trained = 50}};
  EXPECT_EQ(samples_left(100, probes), 20);
  EXPECT_EQ(samples_left(10, probes), 0);
}

TEST(Accounting, SpotIsChosenWhereItPays) {
  // $1 against $0.3 an hour, but with 10 nodes an interruption every hour that costs 0.2 h: 20 % more time.
  const auto offers = std::vector<spec::Offer>{{.instance = "a",
                                                .usd_per_hour = 1,
                                                .max_nodes = 10,
                                                .spot_usd_per_hour = 0.3,
                                                .spot_interruptions_per_hour = 0.1}};
  SpaceRules rules;
  rules.nodes = {10};
  rules.spot = SpotUse::automatic;
  const auto space = make_space(offers, rules);
  const auto& c = space.candidates.front();
  ASSERT_EQ(c.markets.size(), 2U);
  EXPECT_NEAR(c.markets[1].stretch, 1.2, 1e-12);
  EXPECT_NEAR(c.probe_usd, c.probe_hours * 3, 1e-12);
  const double samples = 3600 * 10, speed = 1;  // ten hours on demand
  const auto cheapest = best_plan(c, 0, deadline(13), left_of(deadline(13), {}), samples, speed);
  EXPECT_EQ(cheapest->market, 1U);
  EXPECT_NEAR(cheapest->training.usd, 36, 1e-9);
  const auto hurried = best_plan(c, 0, deadline(11), left_of(deadline(11), {}), samples, speed);
  EXPECT_EQ(hurried->market, 0U);
  EXPECT_FALSE(best_plan(c, 0, deadline(9), left_of(deadline(9), {}), samples, speed));
}

TEST(Accounting, FailedProbesCloseACandidateAfterTheAttempts) {
  const auto space = example_space();
  std::vector<Probe> probes{{.deployment = {"t2.small", 8}, .error = "no"}};
  const size_t index = space.find({"t2.small", 8}).value();
  EXPECT_FALSE(open_candidates({&space, {}, 1, probes, 1})[index]);
  EXPECT_TRUE(open_candidates({&space, {}, 1, probes, 2})[index]);
  probes[0].interrupted = true;  // the search's own end is no fault of the deployment, up to a point
  EXPECT_TRUE(open_candidates({&space, {}, 1, probes, 1})[index]);
  probes.insert(probes.end(), 2, probes[0]);
  EXPECT_FALSE(open_candidates({&space, {}, 1, probes, 1})[index]);
}

}  // namespace
}  // namespace trireme::deploy
