#pragma once
// The training loop: one call trains one rank of a run to the end.
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>

#include "trireme/codec/codec.h"
#include "trireme/train/options.h"
#include "trireme/train/run_files.h"
#include "trireme/transport/rendezvous.h"

namespace trireme::train {

// Set by a signal handler or a test; the loop ends after the running step, writes a checkpoint and throws
// Error(cancelled).
struct StopFlag {
  std::atomic<bool> requested{false};
  std::atomic<bool> heeded{false};  // set by the loop: from now on it looks; before, there is nothing to save
};

struct RankContext {
  int rank = 0, world = 1, local_rank = 0, local_world = 1;
  std::shared_ptr<transport::Rendezvous> rendezvous;  // null when world == 1
  std::filesystem::path out;
  std::optional<std::filesystem::path> resume;
  const codec::CodecSet* codecs = nullptr;
  StopFlag* stop = nullptr;     // null: never
  bool terminal = false;        // progress redraws one line, else prints lines
  std::string resolved_config;  // config.toml's text, with origins
  std::string config_digest;    // compared between ranks
};

// Returns the summary (the same on all ranks, except for this rank's own times, bytes and memory). Errors:
//   usage, input: names key or file
//   diverged: NaN or Inf loss, with step, rank and first bad tensor; replicas that differ, with the parameter
//   peer_lost, timeout: names rank, operation and waiting time
// Whatever ends this rank, the others are told by the rendezvous.
Summary train(const Config& config, const RankContext& context);

}  // namespace trireme::train
