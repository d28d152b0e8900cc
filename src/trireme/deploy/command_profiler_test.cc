#include "trireme/deploy/command_profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/deploy/fake_process.h"

namespace trireme::deploy {
namespace {

class Command : public testing::Test {
 protected:
  Measurement measure(Script script, double needed = 0) {
    processes.scripts["probe"] = std::move(script);
    CommandProfiler profiler("probe {instance} {nodes}", {}, processes, clock);
    return profiler.measure({.deployment = {"c5.large", 4},
                             .planned_hours = 0.1,
                             .usd_per_hour = 2,
                             .needed_samples_per_s = needed});
  }
  FakeClock clock;
  FakeProcesses processes{clock};
};

TEST_F(Command, ChargesTheTimeItRan) {
  const auto m = measure({.lines = {{60, "starting"}, {90, "250"}}, .ends_after = 180});
  EXPECT_EQ(processes.started.front(), "/bin/sh -c probe c5.large 4");
  EXPECT_TRUE(m.error.empty());
  EXPECT_EQ(m.samples_per_s, 250);
  EXPECT_NEAR(m.hours, 180.0 / 3600, 1e-12);
}

TEST_F(Command, TakesTheMinutesThatTheCommandTells) {
  EXPECT_NEAR(measure({.lines = {{1, R"({"samples_per_s": 5, "minutes": 12})"}}, .ends_after = 2}).hours, 0.2,
              1e-12);
}

TEST_F(Command, FailuresAreChargedAndSaySo) {
  auto m = measure({.ends_after = 36, .exit_code = 3, .last_error = "first\nno capacity in zone\n"});
  EXPECT_EQ(m.error, "ended with exit code 3: no capacity in zone");
  EXPECT_NEAR(m.hours, 0.01, 1e-12);
  m = measure({.lines = {{1, "hello"}}, .ends_after = 36});
  EXPECT_EQ(m.error, "printed no speed");
  m = measure({.lines = {{36, "nan"}}});
  EXPECT_EQ(m.error, "no speed: \"nan\"");
  EXPECT_NEAR(m.hours, 0.01, 1e-12);
  m = measure({});  // says nothing for ever
  EXPECT_EQ(m.error, "no speed within 12 min");
  EXPECT_NEAR(m.hours, 0.2, 1e-9);
}

TEST_F(Command, EndsEarlyOnceTheComparisonIsSettled) {
  Script script;
  for (int i = 1; i <= 100; ++i)
    script.lines.emplace_back(10.0 * i, i % 2 == 0 ? "samples_per_s=100" : "samples_per_s=101");
  const auto slow = measure(script, 200);
  EXPECT_TRUE(slow.ended_early);
  EXPECT_TRUE(slow.error.empty());
  EXPECT_LT(slow.hours, 0.02);
  const auto close = measure(script, 100.5);
  EXPECT_FALSE(close.ended_early);
  EXPECT_NEAR(close.hours, 0.1, 0.003);  // steady at the planned end
}

TEST_F(Command, IsLengthenedWhileUnstableButNotForEver) {
  Script script;
  for (int i = 1; i <= 1000; ++i)
    script.lines.emplace_back(5.0 * i, i % 3 == 0 ? "30" : i % 3 == 1 ? "100" : "400");
  const auto m = measure(script);
  EXPECT_TRUE(m.error.empty());
  EXPECT_NEAR(m.hours, 0.2, 1e-9);
  EXPECT_GT(m.relative_sd, 0.03);
}

TEST(FillCommand, KnowsItsWordsAndRefusesOthers) {
  const ProbeRequest r{.deployment = {"a.b", 3}, .planned_hours = 0.175, .usd_per_hour = 1.5, .spot = true};
  EXPECT_EQ(fill_command("x {instance} {nodes} {minutes} {usd_per_hour} {spot} ${HOME} {} {A}", r),
            "x a.b 3 10.5 1.5 true ${HOME} {} {A}");
  EXPECT_THROW(fill_command("{node}", r), Error);
  EXPECT_THROW(fill_command("x", {.deployment = {"a; rm -rf /", 1}}), Error);
}

}  // namespace
}  // namespace trireme::deploy
