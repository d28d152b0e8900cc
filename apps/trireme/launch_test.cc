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

LaunchPlan resolve(const Variables& variables, const LaunchRequest& request = {}) {
  return resolve_launch(lookup_in(variables), request);
}

void expect_refused(const Variables& variables, const std::string& part, const LaunchRequest& request = {}) {
  try {
    const auto plan = resolve(variables, request);
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
  EXPECT_FALSE(plan.agent_store);
  EXPECT_EQ(plan.local_rank, 0);
  EXPECT_EQ(plan.local_world, 1);
  EXPECT_EQ(to_text(plan), "rank 3 of 4 (RANK and WORLD_SIZE; store at 10.0.0.1:29500)");
}

TEST(Launch, TorchrunsAgentMayHoldTheStore) {
  EXPECT_FALSE(resolve(with(kTwoMachines, {{"RANK", "0"}})).agent_store);
  const Variables agent{{"RANK", "0"},
                        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                        {"TORCHELASTIC_RUN_ID", "none"},
                        {"TORCHELASTIC_RESTART_COUNT", "2"}};
  const auto joined = resolve(with(kTwoMachines, agent));
  EXPECT_EQ(joined.attempt, "none/2");
  EXPECT_EQ(joined.restarts, 2);
  EXPECT_TRUE(joined.agent_store);
  EXPECT_EQ(joined.launcher, "torchrun");
  EXPECT_FALSE(
      resolve(with(kTwoMachines, {{"RANK", "0"}, {"TORCHELASTIC_USE_AGENT_STORE", "False"}})).agent_store);
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
  EXPECT_EQ(plan.port, 0);
}

TEST(Launch, LocalLauncherPrefixesTheOutput) {
  const auto plan = resolve(with(kTwoMachines, {{kLocalLauncher, "--nproc"}, {kRestartCount, "3"}}));
  EXPECT_TRUE(plan.prefixed_output);
  EXPECT_EQ(plan.launcher, "--nproc");
  EXPECT_EQ(plan.restarts, 3);
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

// --- launchers that start one process a rank

const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                         {"PMIX_NAMESPACE", "3412525057"}};

TEST(Launch, OpenMpiOnOneMachineMeetsOnLoopback) {
  const auto plan = resolve(kOpenMpi);
  EXPECT_EQ(plan.rank, 3);
  EXPECT_EQ(plan.local_world, 4);
  EXPECT_EQ(plan.host, "127.0.0.1");
  EXPECT_GE(plan.port, 20000);
  EXPECT_LT(plan.port, 30000);
  EXPECT_EQ(plan.attempt, "3412525057");
  const auto other_rank = resolve(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}}));
  EXPECT_EQ(other_rank.port, plan.port) << "all ranks of a job find the same port";
  EXPECT_NE(resolve(with(kOpenMpi, {{"PMIX_NAMESPACE", "77"}})).port, plan.port) << "and other jobs another";
}

TEST(Launch, OpenMpiOnSeveralMachinesNeedsAPlace) {
  const auto spread =
      with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  expect_refused(spread, "MASTER_ADDR");
  const auto plan = resolve(with(spread, {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "29501"}}));
  EXPECT_EQ(to_text(plan), "rank 3 of 4 (Open MPI; store at head:29501)");
  EXPECT_EQ(plan.local_rank, 1);
}

TEST(Launch, PmiOfMpichAndIntelMpi) {
  const Variables second{
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  const auto plan = resolve(second, {.parent_process = 4711});
  EXPECT_EQ(plan.launcher, "PMI");
  EXPECT_EQ(plan.rank, 1);
  EXPECT_EQ(plan.local_rank, 1);
  EXPECT_EQ(plan.host, "127.0.0.1");
  EXPECT_EQ(resolve(with(second, {{"PMI_RANK", "0"}}), {.parent_process = 4711}).port, plan.port);
  EXPECT_NE(resolve(second, {.parent_process = 4712}).port, plan.port) << "another job";
  expect_refused({{"PMI_RANK", "1"}}, "PMI_SIZE is not set");
}

const Variables kSlurm{{"SLURM_JOB_ID", "812"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", "4"},
                       {"SLURM_STEP_NUM_TASKS", "5"},
                       {"SLURM_NODEID", "2"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                       {"SLURM_STEP_NODELIST", "gpu[07-08,11]"}};

TEST(Launch, SlurmMeetsOnTheFirstMachineOfTheStep) {
  const auto plan = resolve(kSlurm);
  EXPECT_EQ(plan.launcher, "Slurm");
  EXPECT_EQ(plan.rank, 4);
  EXPECT_EQ(plan.world, 5);
  EXPECT_EQ(plan.local_world, 1);
  EXPECT_EQ(plan.host, "gpu07");
  EXPECT_EQ(plan.attempt, "812.0/0");
  const auto second = resolve(with(kSlurm, {{"SLURM_PROCID", "2"}, {"SLURM_NODEID", "1"}}));
  EXPECT_EQ(second.local_world, 2);
  EXPECT_EQ(second.port, plan.port);
  EXPECT_EQ(resolve(with(kSlurm, {{"SLURM_RESTART_COUNT", "1"}})).restarts, 1);
  EXPECT_EQ(resolve(with(kSlurm, {{"MASTER_ADDR", "10.0.0.7"}})).host, "10.0.0.7");
}

TEST(Launch, SlurmWithPmiVariablesIsSlurm) {
  EXPECT_EQ(resolve(with(kSlurm, {{"PMI_RANK", "4"}, {"PMI_SIZE", "5"}})).launcher, "Slurm");
}

TEST(Launch, ABatchScriptIsNoStep) {
  EXPECT_EQ(resolve(with(kSlurm, {{"SLURM_STEP_ID", ""}})).launcher, "one process");
}

TEST(Launch, AnInteractiveStepMayStartItsOwnRanks) {
  const Variables shell{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}};
  EXPECT_EQ(to_text(resolve(shell)), "rank 0 of 1 (Slurm)");
  EXPECT_EQ(resolve(shell, {.nproc = 2}).start_ranks, 2);
}

TEST(Launch, BrokenSlurmVariablesAreNamed) {
  expect_refused(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x"}}), "SLURM_STEP_TASKS_PER_NODE='2(x'");
  expect_refused(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "0"}}), "SLURM_STEP_TASKS_PER_NODE='0'");
  expect_refused(with(kSlurm, {{"SLURM_STEP_NODELIST", "gpu[07"}}), "SLURM_STEP_NODELIST='gpu[07'");
  expect_refused(with(kSlurm, {{"SLURM_PROCID", "5"}}), "SLURM_PROCID='5'");
}

TEST(Launch, FirstHostOfANodeList) {
  EXPECT_EQ(first_host("alone"), "alone");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("gpu[03-07,11],login"), "gpu03");
  EXPECT_EQ(first_host("gpu[11,03-07]"), "gpu11");
  EXPECT_EQ(first_host("r[1-2]n[05-06].site"), "r1n05.site");
  EXPECT_EQ(first_host(""), "");
}

// --- launchers that start one process a machine

const Variables kPet{{"PET_NNODES", "2"},
                     {"PET_NPROC_PER_NODE", "4"},
                     {"PET_NODE_RANK", "1"},
                     {"PET_MASTER_ADDR", "job-node-0-0.job"},
                     {"PET_MASTER_PORT", "29400"}};

int two_gpus() {
  return 2;
}

TEST(Launch, PetStartsTheRanksOfItsMachine) {
  const auto plan = resolve(kPet);
  EXPECT_EQ(plan.start_ranks, 4);
  EXPECT_EQ(plan.rank, 4);
  EXPECT_EQ(plan.world, 8);
  EXPECT_EQ(to_text(plan), "ranks 4 to 7 of 8 (PET; store at job-node-0-0.job:29400)");
  EXPECT_EQ(resolve(kPet, {.nproc = 3}).rank, 3) << "--nproc counts the local ranks";
}

TEST(Launch, PetLeavesTheNumberToTheGpus) {
  const auto automatic = with(kPet, {{"PET_NPROC_PER_NODE", "auto"}});
  EXPECT_EQ(resolve(automatic, {.gpu_count = two_gpus}).start_ranks, 2);
  const auto cpu = resolve(automatic);
  EXPECT_EQ(cpu.start_ranks, 0) << "a machine's only rank is this process";
  EXPECT_EQ(cpu.rank, 1);
  EXPECT_EQ(cpu.world, 2);
  EXPECT_EQ(cpu.port, 29400);
}

TEST(Launch, PetOnOneMachine) {
  const auto plan = resolve({{"PET_NNODES", "1:1"}, {"PET_NPROC_PER_NODE", "2"}});
  EXPECT_EQ(plan.start_ranks, 2);
  EXPECT_EQ(plan.host, "127.0.0.1");
  EXPECT_EQ(plan.port, 0);
  EXPECT_EQ(resolve({{"PET_NNODES", "1"}}).world, 1);
}

TEST(Launch, ImpossiblePetVariablesAreNamed) {
  expect_refused(with(kPet, {{"PET_NNODES", "1:4"}}), "PET_NNODES='1:4'");
  expect_refused(with(kPet, {{"PET_NODE_RANK", "2"}}), "PET_NODE_RANK='2'");
  expect_refused(with(kPet, {{"PET_NODE_RANK", ""}}), "PET_NODE_RANK is not set");
  expect_refused(with(kPet, {{"PET_MASTER_ADDR", ""}}), "PET_MASTER_ADDR is not set");
  expect_refused(with(kPet, {{"PET_NPROC_PER_NODE", "cpu"}}), "PET_NPROC_PER_NODE='cpu'");
}

const Variables kSkyPilot{{"SKYPILOT_NODE_RANK", "1"},
                          {"SKYPILOT_NODE_IPS", "10.0.0.4\n10.0.0.9\n"},
                          {"SKYPILOT_NUM_GPUS_PER_NODE", "2"},
                          {"SKYPILOT_TASK_ID", "sky-2026-01-01-00-00-00_task_1"}};

TEST(Launch, SkyPilotMeetsOnItsFirstMachine) {
  const auto plan = resolve(kSkyPilot);
  EXPECT_EQ(plan.start_ranks, 2);
  EXPECT_EQ(plan.rank, 2);
  EXPECT_EQ(plan.world, 4);
  EXPECT_EQ(plan.host, "10.0.0.4");
  EXPECT_EQ(plan.port, resolve(with(kSkyPilot, {{"SKYPILOT_NODE_RANK", "0"}})).port);
  const auto cpu = resolve(with(kSkyPilot, {{"SKYPILOT_NUM_GPUS_PER_NODE", "0"}}));
  EXPECT_EQ(cpu.world, 2);
  EXPECT_EQ(cpu.start_ranks, 0);
  EXPECT_EQ(resolve(kSkyPilot, {.nproc = 5}).world, 10);
}

TEST(Launch, SkyPilotOnOneMachine) {
  const auto plan =
      resolve(with(kSkyPilot, {{"SKYPILOT_NODE_RANK", "0"}, {"SKYPILOT_NODE_IPS", "10.0.0.4"}}));
  EXPECT_EQ(plan.start_ranks, 2);
  EXPECT_EQ(plan.host, "127.0.0.1");
}

// --- precedence

TEST(Launch, TheInnermostLauncherCounts) {
  Variables all = kTwoMachines;
  for (const auto* more : {&kOpenMpi, &kSlurm, &kPet, &kSkyPilot}) all.insert(more->begin(), more->end());
  const auto expect_next = [&](const char* launcher, const Variables& variables) {
    EXPECT_EQ(resolve(all).launcher, launcher);
    for (const auto& [name, value] : variables) all.erase(name);
  };
  expect_next("RANK and WORLD_SIZE", {{"RANK", ""}, {"WORLD_SIZE", ""}});
  expect_next("Open MPI", kOpenMpi);
  expect_next("Slurm", kSlurm);
  expect_next("PET", kPet);
  expect_next("SkyPilot", kSkyPilot);
  EXPECT_EQ(resolve(all).launcher, "one process");
}

TEST(Launch, NprocStartsLocalRanks) {
  const auto plan = resolve({}, {.nproc = 3});
  EXPECT_EQ(plan.start_ranks, 3);
  EXPECT_EQ(to_text(plan), "ranks 0 to 2 of 3 (--nproc; all on this machine)");
  EXPECT_EQ(resolve({}, {.nproc = 1}).start_ranks, 0);
}

TEST(Launch, NprocInsideALauncherIsRefused) {
  expect_refused(kTwoMachines, "RANK or WORLD_SIZE is set", {.nproc = 2});
  expect_refused(kOpenMpi, "--nproc starts its own processes, but this is rank 3 of 4 (Open MPI",
                 {.nproc = 2});
}

}  // namespace
}  // namespace trireme::app
