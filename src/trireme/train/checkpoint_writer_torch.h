#pragma once
// Checkpoints beside the training: start() copies what is to be saved, a thread of its own writes it.
#include <filesystem>
#include <memory>
#include <thread>

#include "trireme/train/checkpoint_torch.h"

namespace trireme::train {

// Not thread-safe, except for finish() while nothing else is called. At most one write is under way; its
// copy's memory is kept and reused. A write that fails, or a process that is killed during one, leaves the
// checkpoint before intact.
class CheckpointWriter {
 public:
  // Error(io) as save_checkpoint, from the calls below.
  CheckpointWriter(std::filesystem::path checkpoints, int64_t keep_last);
  // Waits for a write under way, but not longer than a process that has failed should live.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Returns once `checkpoint` is copied. Waits for the write before it and throws what that one met.
  void start(const Checkpoint& checkpoint);
  // Waits until nothing is being written; throws what the last write met, once.
  void finish();
  // As finish, when the write has ended already; else nothing.
  void check();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which is left behind when a disk hangs
  std::thread thread_;
};

}  // namespace trireme::train
