#pragma once
// What the ranks of a run must have in common, and small exchanges of plain values. All ranks call these in
// the same order.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/group.h"

namespace trireme::train {

// By rank; plain numbers of equal type on all ranks.
std::vector<uint64_t> gather(comm::Group& group, uint64_t value);
std::vector<double> gather(comm::Group& group, double value);
// `text` of `root`, on all ranks.
std::string broadcast_text(comm::Group& group, std::string text, int root);

struct RunFacts {
  std::string version;  // of program and LibTorch
  std::string config;   // what OptionList::digest_text gives, or a digest of it
  uint64_t graph_fingerprint = 0;
  int64_t samples = 0, evaluation_samples = 0;
};
// Before the ranks have connections. Error(usage) on all ranks when one differs from rank 0: names rank,
// fact, and the first config line that differs. Error(timeout) on all naming a rank that does not come.
void agree(transport::Store& store, int rank, int world, const RunFacts& facts, Seconds timeout);

// Runs `work` on all ranks at once and returns when all are done. It may take longer than a wait's time-out,
// on one rank alone (a checkpoint on a slow disk): messages every quarter of `timeout` keep the others
// patient. Throws what this rank's work threw.
void run_together(comm::Group& group, Seconds timeout, const std::function<void()>& work);

}  // namespace trireme::train
