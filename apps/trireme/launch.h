#pragma once
// Who this process is among the ranks of a run, read from what its launcher left in the environment.
#include <functional>
#include <optional>
#include <string>

namespace trireme::app {

struct LaunchPlan {
  std::string launcher;  // for people: "one process", "--nproc", "torchrun", "Open MPI", …
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;  // among the ranks of this machine
  // Where rank 0 is met. Unused when world == 1; port 0, which only start_ranks has: a free one.
  std::string host;
  int port = 0;
  bool agent_store = false;  // the launcher's agent holds a c10d store there; else rank 0 opens the port
  std::string attempt;       // names this start of the job: the same on all ranks, another after a restart
  int restarts = 0;          // times that the launcher has started this job again
  bool prefixed_output = false;  // the launcher puts "[rank r]" before this process's lines
  // Above 0: this process is no rank; it starts that many, from `rank` on.
  int start_ranks = 0;
  bool operator==(const LaunchPlan&) const = default;
};

// A variable's value, or nothing when it is unset or empty.
using Lookup = std::function<std::optional<std::string>(const char* name)>;

struct LaunchRequest {
  int nproc = 0;                 // --nproc; 0: not given
  int (*gpu_count)() = nullptr;  // of this machine; asked only where the launcher leaves the number to us
  // The process that started this one; PMI's launcher names its jobs by nothing else.
  int parent_process = 0;
};

// Pure: the same variables give the same plan. Error(usage) names the variable that is missing or impossible.
// The first of these that is there:
//   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (LOCAL_RANK, LOCAL_WORLD_SIZE): --nproc's own ranks, torchrun,
//     or set by hand. With TORCHELASTIC_USE_AGENT_STORE=True the launcher's agent holds the store.
//   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE: Open MPI
//   PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS: MPICH and Intel MPI (PMI)
//   SLURM_STEP_ID, SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_NODELIST: srun
//   PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE, PET_MASTER_ADDR, PET_MASTER_PORT: one process a machine,
//     which starts the local ranks (Kubeflow's trainer)
//   SKYPILOT_NODE_RANK, SKYPILOT_NODE_IPS, SKYPILOT_NUM_GPUS_PER_NODE: likewise (SkyPilot)
//   none: one process, or --nproc ranks here
// MASTER_ADDR and MASTER_PORT say where rank 0 is met wherever the launcher does not. --nproc counts the
// local ranks under the launchers that start one process a machine.
LaunchPlan resolve_launch(const Lookup& lookup, const LaunchRequest& request = {});

// "rank 1 of 4 (torchrun; store at 10.0.0.1:29500)".
std::string to_text(const LaunchPlan& plan);

// The first machine of a Slurm node list: "gpu[03-07,11],login" gives "gpu03".
std::string first_host(const std::string& node_list);

// Set for the processes that this program starts: the launcher's name, and how often it has started them
// again.
inline constexpr const char* kLocalLauncher = "TRIREME_LOCAL_LAUNCHER";
inline constexpr const char* kRestartCount = "TRIREME_RESTART_COUNT";

}  // namespace trireme::app
