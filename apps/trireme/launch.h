#pragma once
// Who this process is among the ranks of a run, read from what its launcher left in the environment.
#include <functional>
#include <optional>
#include <string>

namespace trireme::app {

struct LaunchPlan {
  std::string launcher;  // for people: "one process", "--nproc", "torchrun", "RANK and WORLD_SIZE"
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;  // among the ranks of this machine
  std::string host;                     // where the store is; host and port are unused when world == 1
  int port = 0;
  bool serve_store = false;  // this rank opens the store; else it joins
  std::string attempt;       // torchrun's restart count: its agent's store still holds what earlier ones left
  bool prefixed_output = false;  // the launcher puts "[rank r]" before this process's lines
  bool operator==(const LaunchPlan&) const = default;
};

// A variable's value, or nothing when it is unset or empty.
using Lookup = std::function<std::optional<std::string>(const char* name)>;

// Pure: the same variables give the same plan. Error(usage) names the variable that is missing or impossible.
//   none of RANK and WORLD_SIZE: one process
//   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (LOCAL_RANK, LOCAL_WORLD_SIZE): rank 0 opens the store
//   the same with TORCHELASTIC_USE_AGENT_STORE=True: the launcher's agent holds it, rank 0 joins as others do
LaunchPlan resolve_launch(const Lookup& lookup);

// "rank 1 of 4 (torchrun; store at 10.0.0.1:29500)".
std::string to_text(const LaunchPlan& plan);

// Set for the processes that --nproc starts.
inline constexpr const char* kLocalLauncher = "TRIREME_LOCAL_LAUNCHER";

}  // namespace trireme::app
