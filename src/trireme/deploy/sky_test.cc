#include "trireme/deploy/sky.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/files.h"
#include "trireme/deploy/fake_process.h"

namespace trireme::deploy {
namespace {

const ProbeRequest kRequest{
    .deployment = {"p3.2xlarge", 4}, .planned_hours = 0.2, .usd_per_hour = 12.24, .spot = true};

TEST(Sky, WritesTheTaskAsSkyPilotReadsIt) {
  EXPECT_EQ(to_yaml({.cloud = "aws",
                     .workdir = ".",
                     .setup = "pip install x",
                     .run = "a \"b\"\n  c\n",
                     .environment = {"K=v=\"1\""}},
                    kRequest),
            "resources:\n"
            "  cloud: \"aws\"\n"
            "  instance_type: \"p3.2xlarge\"\n"
            "  use_spot: true\n"
            "num_nodes: 4\n"
            "workdir: \".\"\n"
            "envs:\n"
            "  K: \"v=\\\"1\\\"\"\n"
            "setup: |\n"
            "  pip install x\n"
            "run: |\n"
            "  a \"b\"\n"
            "    c\n");
}

class SkyProbe : public testing::Test {
 protected:
  Measurement measure() {
    SkyProfiler profiler({.run = "train"}, folder, "0a1b", {}, processes, clock);
    return profiler.measure(kRequest);
  }
  std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "sky_probe";
  FakeClock clock;
  FakeProcesses processes{clock};
};

TEST_F(SkyProbe, LaunchesReadsAndTakesDownAndChargesAllOfIt) {
  processes.scripts["sky launch"] = {.lines = {{400, "(task, pid=9) samples_per_s=120"}}, .ends_after = 500};
  processes.scripts["sky down"] = {.ends_after = 40};
  const auto m = measure();
  EXPECT_EQ(m.samples_per_s, 120);
  EXPECT_NEAR(m.hours, 540.0 / 3600, 1e-12);
  const auto yaml = (folder / "trireme-0a1b-p3-2xlarge-4.yaml").string();
  EXPECT_THAT(processes.started,
              testing::ElementsAre("sky launch --yes --cluster trireme-0a1b-p3-2xlarge-4 " + yaml,
                                   "sky down --yes trireme-0a1b-p3-2xlarge-4"));
  EXPECT_THAT(read_file(yaml), testing::HasSubstr("num_nodes: 4"));
}

TEST_F(SkyProbe, TakesDownAfterAFailedLaunchToo) {
  processes.scripts["sky launch"] = {
      .ends_after = 60, .exit_code = 1, .last_error = "No resource satisfying the task\n"};
  processes.scripts["sky down"] = {.ends_after = 1};
  EXPECT_EQ(measure().error, "ended with exit code 1: No resource satisfying the task");
  EXPECT_EQ(processes.started.size(), 2U);
}

TEST_F(SkyProbe, AClusterThatStaysUpEndsTheSearchLoudly) {
  processes.scripts["sky launch"] = {.lines = {{1, "5"}}, .ends_after = 2};
  processes.scripts["sky down"] = {.ends_after = 1, .exit_code = 1, .last_error = "network"};
  try {
    measure();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("sky down trireme-0a1b-p3-2xlarge-4 failed"));
  }
}

}  // namespace
}  // namespace trireme::deploy
