#include "trireme/deploy/surrogate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trireme/deploy/test_table.h"

namespace trireme::deploy {
namespace {

// The slow reference: the expectation as a sum over a fine grid of the belief.
template <typename F>
double expectation(const Belief& b, F value) {
  double sum = 0;
  constexpr int kSteps = 40000;
  for (int i = 0; i < kSteps; ++i) {
    const double z = -10 + 20 * (i + 0.5) / kSteps;
    const double v = b.mean + z * b.sd;
    sum +=
        value(b.logarithmic ? std::exp(v) : v) * std::exp(-0.5 * z * z) / std::sqrt(2 * M_PI) * 20 / kSteps;
  }
  return sum;
}

TEST(Belief, ExpectationsAgreeWithTheirDefinition) {
  for (const bool logarithmic : {true, false})
    for (const double sd : {0.05, 0.5, 1.2}) {
      const Belief b{.mean = logarithmic ? 1.5 : 4, .sd = sd, .logarithmic = logarithmic};
      for (const double best : {2.0, 4.5, 9.0})
        EXPECT_NEAR(b.expected_improvement(best),
                    expectation(b, [&](double y) { return std::max(y - best, 0.0); }), 1e-4);
    }
  const Belief b{.mean = 1.5, .sd = 0.6};
  for (const double needed : {2.0, 5.0, 20.0})
    EXPECT_NEAR(b.expected_saving(10, 20, needed),
                expectation(b, [&](double y) { return y >= needed ? 10 - 20 / y : 0.0; }), 1e-3);
}

TEST(Belief, WithoutDoubtThereIsNoLottery) {
  const Belief b{.mean = std::log(4), .sd = 0};
  EXPECT_NEAR(b.expected_improvement(3), 1, 1e-9);
  EXPECT_EQ(b.expected_improvement(5), 0);
  EXPECT_NEAR(b.expected_saving(10, 20, 1), 5, 1e-9);
  EXPECT_EQ(b.probability_above(3), 1);
  EXPECT_EQ(b.probability_above(5), 0);
}

TEST(Beliefs, PassThroughPreciseMeasurements) {
  const auto space = example_space();
  const auto probes =
      probes_of(space, example_table(), {{"t2.medium", 4}, {"t2.medium", 8}, {"t2.xlarge", 2}});
  const auto believed = beliefs({&space, {}, 1, probes, 1}, {});
  for (const auto& p : probes) {
    const auto& b = believed[space.find(p.deployment).value()];
    EXPECT_NEAR(b.speed() / p.samples_per_s, 1, 0.05);
    EXPECT_LT(b.sd, 0.1);
  }
  EXPECT_GT(believed[space.find({"t2.small", 80}).value()].sd, 0.3);
}

TEST(Beliefs, PredictedSpeedsArePriorNotFact) {
  auto space = example_space();
  for (auto& c : space.candidates)  // twice as fast as in truth, but of the right shape
    c.predicted_samples_per_s = 2 * example_table().rows.at(c.deployment).samples_per_s;
  const auto probes = probes_of(space, example_table(), {{"t2.medium", 4}});
  const auto believed = beliefs({&space, {}, 1, probes, 1}, {});
  for (size_t i = 0; i < space.candidates.size(); ++i)
    EXPECT_NEAR(believed[i].speed(), example_table().rows.at(space.candidates[i].deployment).samples_per_s,
                1e-6);
}

TEST(Beliefs, FeaturesJoinLikeTypes) {
  SpeedTable table = example_table();
  auto offers = example_offers();
  const std::vector<double> vcpus{1, 2, 4, 8};
  for (size_t i = 0; i < offers.size(); ++i) offers[i].vcpus = vcpus[i];
  const auto space = space_of(table, offers);
  ASSERT_EQ(space.features.size(), 4U);
  const auto probes = probes_of(space, table, {{"t2.small", 8}});
  const auto believed = beliefs({&space, {}, 1, probes, 1}, {});
  EXPECT_LT(believed[space.find({"t2.medium", 8}).value()].sd,
            believed[space.find({"t2.2xlarge", 8}).value()].sd);
}

}  // namespace
}  // namespace trireme::deploy
