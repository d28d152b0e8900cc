#pragma once
// Real training as probe and as launch: `trireme train` with a fixed global batch, whose steps count.
#include <filesystem>

#include "trireme/base/process.h"
#include "trireme/deploy/command_profiler.h"

namespace trireme::deploy {

struct TrainingOptions {
  std::string program;            // the trireme program
  std::filesystem::path config;   // CONFIG.toml of the training
  std::filesystem::path runs;     // folder of the attempts; each continues from the newest checkpoint in it
  std::vector<std::string> sets;  // --set of every attempt; may hold the words of fill_command
  int64_t global_batch = 0;       // samples per step over all ranks; every count of nodes divides it
  double samples = 0;             // of the whole training
};

// A checkpoint step_N below `runs`.
struct Checkpoint {
  int64_t step = 0;
  std::filesystem::path folder;
};
// The complete one of most steps in any attempt, or nothing.
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& runs);

// One `trireme train` that is running. metrics.jsonl of its own folder tells each step.
class TrainingRun {
 public:
  // Starts it in a new folder below options.runs, from the newest checkpoint.
  TrainingRun(const TrainingOptions& options, const ProbeRequest& request, Processes& processes);
  Process& process() { return *process_; }
  // Speeds of the steps written since the last call, global samples per second.
  std::vector<double> new_speeds();
  // Samples that this attempt trained and that a checkpoint holds; after the process has ended.
  int64_t samples_kept() const;
  // Samples trained by this attempt so far, kept or not.
  double samples_seen() const { return static_cast<double>(steps_seen_ * batch_); }

 private:
  std::filesystem::path folder_;
  int64_t batch_, first_step_ = 0, steps_seen_ = 0;
  size_t read_ = 0;  // bytes of metrics.jsonl
  std::unique_ptr<Process> process_;
};

// A probe is the job itself, run until its speed is known; stopped by SIGTERM, it leaves a checkpoint, and
// the next probe or the launch goes on from there. One at a time.
class TrainingProfiler : public Profiler {
 public:
  TrainingProfiler(TrainingOptions options, WatchRules rules, Processes& processes, const Clock& clock)
      : options_(std::move(options)), rules_(rules), processes_(processes), clock_(clock) {}
  Measurement measure(const ProbeRequest& request) override;

 private:
  TrainingOptions options_;
  WatchRules rules_;
  Processes& processes_;
  const Clock& clock_;
};

}  // namespace trireme::deploy
