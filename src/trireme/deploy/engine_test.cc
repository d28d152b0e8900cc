#include "trireme/deploy/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "trireme/base/error.h"
#include "trireme/deploy/outcome.h"
#include "trireme/deploy/test_table.h"

namespace trireme::deploy {
namespace {

// Answers from the table, except where told otherwise; counts its calls.
class FakeProfiler : public Profiler {
 public:
  explicit FakeProfiler(SpeedTable table) : table_(std::move(table)) {}
  Measurement measure(const ProbeRequest& request) override {
    ++calls;
    last = request;
    auto m = table_.measure(request);
    if (request.deployment == broken) m = {.hours = 0.1, .error = "out of memory"};
    if (request.deployment == nonsense) m.samples_per_s = -3;
    return m;
  }
  std::atomic<int> calls{0};
  ProbeRequest last;
  Deployment broken, nonsense;

 private:
  ReplayProfiler table_;
};

class Engine : public testing::Test {
 protected:
  const SearchSpace space = example_space();
  const SearchSetup setup{.space = &space,
                          .goal = budget(10, 0.05),
                          .samples = kExampleSamples,
                          .attempts = 1,
                          .policy = make_heterbo({})};
  FakeProfiler profiler{example_table()};
  MemoryLog log;
};

TEST_F(Engine, FailedAndSenselessProbesAreChargedOnceAndLogged) {
  profiler.broken = {"t2.medium", 4};
  profiler.nonsense = {"t2.xlarge", 2};
  const auto outcome = run_search(setup, profiler, log);
  int broken = 0, nonsense = 0;
  for (const auto& p : outcome.probes) {
    broken += p.deployment == profiler.broken;
    nonsense += p.deployment == profiler.nonsense;
    if (p.deployment == profiler.broken) {
      EXPECT_EQ(p.error, "out of memory");
      EXPECT_NEAR(p.usd, 0.1 * 4 * 0.0464, 1e-12);
    }
    if (p.deployment == profiler.nonsense) {
      EXPECT_EQ(p.error, "the measured speed is -3 samples/s");
      EXPECT_GT(p.usd, 0);
    }
  }
  EXPECT_EQ(broken, 1);
  EXPECT_EQ(nonsense, 1);
  EXPECT_TRUE(outcome.feasible);
}

TEST_F(Engine, EndsWhenEveryProbeFails) {
  SpeedTable nothing;
  for (const auto& [deployment, row] : example_table().rows) nothing.rows[deployment] = {0, 0};
  FakeProfiler all_fail(nothing);
  const auto outcome = run_search(setup, all_fail, log);
  EXPECT_FALSE(outcome.feasible);
  EXPECT_LE(outcome.spent.usd, 10 * 0.95);
  EXPECT_LE(all_fail.calls, 24);
}

TEST_F(Engine, ASearchThatGoesOnPaysNothingTwice) {
  const auto whole = run_search(setup, profiler, log);
  const int calls = profiler.calls;
  for (size_t cut = 0; cut <= whole.probes.size(); ++cut) {
    MemoryLog resumed;
    resumed.end(std::span(whole.probes).first(cut));
    FakeProfiler again(example_table());
    const auto rest = run_search(setup, again, resumed);
    EXPECT_EQ(again.calls, calls - static_cast<int>(cut));
    EXPECT_EQ(rest.probes, whole.probes);
  }
}

TEST_F(Engine, RequestsTellTheSpeedThatIsNeeded) {
  run_search(setup, profiler, log);
  EXPECT_GT(profiler.last.needed_samples_per_s, 0);
  EXPECT_GT(profiler.last.usd_per_hour, 0);
}

TEST_F(Engine, TrainedSamplesShortenTheJob) {
  auto probes = probes_of(space, example_table(),
                          {{"t2.medium", 4}, {"t2.small", 8}, {"t2.xlarge", 2}, {"t2.2xlarge", 1}});
  probes[0].samples_trained = 5'000'000;
  log.end(probes);
  const auto outcome = run_search(setup, profiler, log);
  EXPECT_EQ(outcome.samples_left, 20e6);
  EXPECT_NEAR(outcome.predicted.hours, 20e6 / 3600 / outcome.chosen->measured_samples_per_s, 1e-9);
}

TEST_F(Engine, EndsWhenItsProbesHaveTrainedTheWholeJob) {
  auto probes = probes_of(space, example_table(), {{"t2.medium", 4}});
  probes[0].samples_trained = setup.samples;
  log.end(probes);
  const auto outcome = run_search(setup, profiler, log);
  EXPECT_EQ(profiler.calls, 0);
  EXPECT_EQ(outcome.samples_left, 0);
  EXPECT_THAT(outcome.stop_reason, testing::HasSubstr("the whole job"));
  EXPECT_TRUE(outcome.feasible);
}

TEST_F(Engine, TellsWhenOnlyTheMarginStandsInTheWay) {
  SpeedTable one;
  one.rows[{"t2.medium", 8}] = {971.8, 0};
  const auto small = space_of(one, example_offers());
  const auto outcome = search(small, one, budget(2.80, 0.05), make_heterbo({}));
  EXPECT_FALSE(outcome.feasible);
  EXPECT_THAT(outcome.notes,
              testing::Contains(testing::HasSubstr("t2.medium x 8 would keep the limit, but not with")));
  EXPECT_THAT(to_table(outcome, {.space = &small, .goal = budget(2.80, 0.05)}),
              testing::HasSubstr("no feasible deployment"));
}

TEST_F(Engine, RealSpeedsBelowTheMeasuredOneStayWithinTheLimitByTheMargin) {
  for (const double usd : {5.5, 7.0, 10.0, 20.0}) {
    auto tight = setup;
    tight.goal = budget(usd, 0.05);
    MemoryLog fresh;
    const auto outcome = run_search(tight, profiler, fresh);
    if (!outcome.feasible) continue;
    const double slower = outcome.predicted.usd / 0.95;  // five per cent below the measured speed
    EXPECT_LE(outcome.spent.usd + slower, usd + 1e-9);
  }
}

}  // namespace
}  // namespace trireme::deploy
