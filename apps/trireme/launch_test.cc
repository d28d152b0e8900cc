#include "launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "trireme/base/error.h"

namespace trireme::app {
namespace {
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Lookup lookup_in(Variables variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
  };
}

LaunchPlan resolve(const Variables& variables) {
  return resolve_launch(lookup_in(variables));
}

void expect_refused(const Variables& variables, const std::string& part) {
  try {
    const auto plan = resolve(variables);
    ADD_FAILURE() << "accepted as " << to_text(plan);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

const Variables kTwoMachines{
    {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

TEST(Launch, WithoutVariablesItIsOneProcess) {
  LaunchPlan expected;
  expected.launcher = "one process";
  EXPECT_EQ(resolve({}), expected);
  EXPECT_EQ(resolve({{"MASTER_ADDR", "10.0.0.1"}, {"RANK", ""}}), expected);
  EXPECT_EQ(to_text(resolve({})), "rank 0 of 1 (one process)");
}

TEST(Launch, PlainVariablesNameRankAndStore) {
  const auto plan = resolve(kTwoMachines);
  EXPECT_EQ(plan.rank, 3);
  EXPECT_EQ(plan.world, 4);
  EXPECT_EQ(plan.host, "10.0.0.1");
  EXPECT_EQ(plan.port, 29500);
  EXPECT_FALSE(plan.serve_store);
  EXPECT_EQ(plan.local_rank, 0);
  EXPECT_EQ(plan.local_world, 1);
  EXPECT_EQ(to_text(plan), "rank 3 of 4 (RANK and WORLD_SIZE; store at 10.0.0.1:29500)");
}

TEST(Launch, RankZeroOpensTheStoreUnlessAnAgentHoldsIt) {
  EXPECT_TRUE(resolve(with(kTwoMachines, {{"RANK", "0"}})).serve_store);
  const Variables agent{{"RANK", "0"},
                        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                        {"TORCHELASTIC_RUN_ID", "none"},
                        {"TORCHELASTIC_RESTART_COUNT", "2"}};
  const auto joined = resolve(with(kTwoMachines, agent));
  EXPECT_EQ(joined.attempt, "2");
  EXPECT_FALSE(joined.serve_store);
  EXPECT_EQ(joined.launcher, "torchrun");
  EXPECT_TRUE(
      resolve(with(kTwoMachines, {{"RANK", "0"}, {"TORCHELASTIC_USE_AGENT_STORE", "False"}})).serve_store);
}

TEST(Launch, LocalRanksComeFromTheirVariables) {
  const auto both = resolve(with(kTwoMachines, {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}}));
  EXPECT_EQ(both.local_rank, 1);
  EXPECT_EQ(both.local_world, 2);
  const auto size_only = resolve(with(kTwoMachines, {{"LOCAL_WORLD_SIZE", "2"}}));
  EXPECT_EQ(size_only.local_rank, 1);
}

TEST(Launch, AMasterOnLoopbackMeansThatAllRanksAreHere) {
  for (const char* host : {"127.0.0.1", "localhost", "::1"}) {
    const auto plan = resolve(with(kTwoMachines, {{"MASTER_ADDR", host}}));
    EXPECT_EQ(plan.local_rank, 3) << host;
    EXPECT_EQ(plan.local_world, 4) << host;
  }
}

TEST(Launch, OneRankNeedsNoStore) {
  const auto plan = resolve({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(plan.world, 1);
  EXPECT_FALSE(plan.serve_store);
}

TEST(Launch, LocalLauncherPrefixesTheOutput) {
  const auto plan = resolve(with(kTwoMachines, {{kLocalLauncher, "1"}}));
  EXPECT_TRUE(plan.prefixed_output);
  EXPECT_EQ(plan.launcher, "--nproc");
  EXPECT_FALSE(resolve(kTwoMachines).prefixed_output);
}

TEST(Launch, MissingVariablesAreNamed) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    expect_refused(with(kTwoMachines, {{name, ""}}), std::string(name) + " is not set");
  }
}

TEST(Launch, ImpossibleValuesAreNamed) {
  expect_refused(with(kTwoMachines, {{"RANK", "4"}}),
                 "RANK='4' in the environment: must be a whole number from 0 to 3");
  expect_refused(with(kTwoMachines, {{"RANK", "-1"}}), "RANK='-1'");
  expect_refused(with(kTwoMachines, {{"RANK", "one"}}), "RANK='one'");
  expect_refused(with(kTwoMachines, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE='0'");
  expect_refused(with(kTwoMachines, {{"WORLD_SIZE", "4x"}}), "WORLD_SIZE='4x'");
  expect_refused(with(kTwoMachines, {{"MASTER_PORT", "70000"}}), "MASTER_PORT='70000'");
  expect_refused(with(kTwoMachines, {{"LOCAL_RANK", "9"}}), "LOCAL_RANK='9'");
  expect_refused(with(kTwoMachines, {{"LOCAL_WORLD_SIZE", "5"}}), "LOCAL_WORLD_SIZE='5'");
}

}  // namespace
}  // namespace trireme::app
