#pragma once
// Several ranks of a run as processes of this machine: --nproc, and launchers that start one process a
// machine.
#include <string>
#include <vector>

#include "launch.h"

namespace trireme::app {

struct LocalJob {
  std::vector<std::string> arguments;  // after the program's name, the same for all ranks
  LaunchPlan plan;                     // start_ranks of them, from plan.rank on
  int max_restarts = 0;
};

// Starts the ranks, forwards their output line by line behind "[rank r] ", and SIGINT, SIGTERM, SIGHUP to
// them. When one fails it is named, the others get SIGTERM and after 10 s SIGKILL; then all are started
// again, up to max_restarts times, unless a signal from outside ended them or the exit code says that the
// call or the input is wrong, which a restart does not mend. The result is the last attempt's first failure's
// exit code (1 for a signal), else 0. The ranks die with this process. Error(io) when processes cannot be
// started. No other thread may run.
int run_local_ranks(const LocalJob& job);

}  // namespace trireme::app
