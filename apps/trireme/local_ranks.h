#pragma once
// --nproc N: this program N times on this machine, as ranks 0 … N-1 of one run.
#include <string>
#include <vector>

namespace trireme::app {

// Starts the ranks with `arguments` after the program's name, forwards their output line by line behind
// "[rank r] ", and SIGINT, SIGTERM, SIGHUP to them. When one fails it is named, the others get SIGTERM and
// after 10 s SIGKILL; the result is the first failure's exit code (1 for a signal), else 0. The ranks die
// with this process. Error(io) when a process cannot be started. To be called from a process with one thread.
int run_local_ranks(const std::vector<std::string>& arguments, int count);

}  // namespace trireme::app
