#pragma once
// The engine behind engine.h: one communication thread, and the bookkeeping that it shares with operations.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "trireme/comm/engine.h"

namespace trireme::comm {

// One operation's run: task counters, slots, and the wait for its end.
class Run final : public Operation {
 public:
  Run(std::shared_ptr<EngineState> engine, Engine::Description description);
  ~Run() override;

  void use(void* data) override;
  void start(uint32_t step, int priority) override;
  bool done() const override;
  void wait() override;

  // The rest is the engine's.
  const Task& task(int32_t t) const { return description_.graph.tasks[static_cast<size_t>(t)]; }
  const std::string& name() const { return description_.name; }
  int peer_rank(int32_t t) const { return description_.ranks[static_cast<size_t>(task(t).peer)]; }
  transport::MessageId message(int32_t t) const;
  std::span<std::byte> bytes_read(int32_t t) const {
    return bytes(task(t), task(t).from, task(t).from_offset);
  }
  std::span<std::byte> bytes_written(int32_t t) const {
    return bytes(task(t), task(t).to, task(t).to_offset);
  }
  // Payloads whose length depends on their content travel after a message that holds it. Null for others.
  // Sent: the length of the payload; received: what bytes_written then returns, after check_length.
  uint32_t* length_to_announce(int32_t t);
  Status check_length(int32_t t) const;
  // A task has ended; starts those that waited for it. `ok` false: it did not do its work.
  void ended(int32_t t, bool ok);
  Clock::Nanoseconds last_progress() const { return Clock::Nanoseconds(last_progress_.load()); }

 private:
  void launch(int32_t t);
  void compute(int32_t t);
  void apply(int32_t t, const Task& task);
  void release();  // gives up one count of in_flight_
  std::span<std::byte> bytes(const Task& task, int32_t slot, int64_t offset) const;
  bool is_wire(int32_t slot) const;
  codec::Call call_of(int32_t t) const;
  void apply_round(int32_t t);
  void encode(int32_t t);

  std::shared_ptr<EngineState> engine_;
  Engine::Description description_;
  std::vector<tensor::Buffer> scratch_;
  std::vector<std::byte*> slots_;
  bool fixed_size_ = true;                 // all payloads have their bound's length
  std::vector<uint32_t> lengths_;          // by slot: of the payload in it, where not
  std::vector<std::span<float>> numbers_;  // by round
  std::vector<std::vector<int32_t>> successors_;
  std::vector<std::atomic<int32_t>> pending_;  // dependencies that have not ended, by task
  std::atomic<int32_t> remaining_ = 0;         // tasks that have not done their work
  std::atomic<int32_t> in_flight_ = 0;         // tasks that run or will: memory is in use until it is 0
  std::atomic<int64_t> last_progress_ = 0;
  uint32_t step_ = 0;
  int priority_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  bool running_ = false;
};

class EngineState {
 public:
  EngineState(transport::Transport& transport, ComputeQueue& queue, const EngineOptions& options);

  // Any thread.
  void post(Run* run, int32_t task);  // to the communication thread
  void end_with(Failure why);         // the first one counts
  void lost(int rank, Failure why);
  bool failed() const { return failed_.load(); }
  Failure failure() const;
  void run_begins();
  void run_ends();
  Clock::Nanoseconds now() const { return clock_.now(); }

  // Owner.
  void join();

  transport::Transport& transport;
  ComputeQueue& queue;
  const EngineOptions options;
  std::atomic<int64_t> codec_nanoseconds = 0;
  std::atomic<uint32_t> channels = 0;

 private:
  struct Command {
    Run* run;
    int32_t task;
  };
  struct Loss {
    int rank;
    Failure why;
  };
  struct Outstanding {  // a posted transfer
    Run* run;
    int32_t task;
    Clock::Nanoseconds since;
    bool announces;  // this message holds a length; the payload follows
  };
  void communicate();
  bool turn();  // false: the thread shall end
  void start_transfer(const Command& command);
  void post_message(Run* run, int32_t task, Clock::Nanoseconds since, bool announces);
  void transfer_ended(uint64_t id, Status status);
  void check_timeouts();
  Clock::Nanoseconds last_sign(const Outstanding& o) const;
  std::string describe(const Outstanding& o) const;
  Failure explain(const Loss& loss) const;
  void trace(const Outstanding& o, Clock::Nanoseconds end);

  const Clock& clock_;
  const Clock::Nanoseconds timeout_;

  mutable std::mutex mutex_;  // of the six below
  std::vector<Command> commands_;
  std::optional<Loss> loss_;  // not yet turned into a failure
  std::optional<Failure> failure_;
  bool stop_ = false;
  int running_ = 0;  // operations between start and end
  std::atomic<bool> failed_ = false;

  // The communication thread's own.
  std::unordered_map<uint64_t, Outstanding> outstanding_;
  uint64_t next_id_ = 0;
  std::vector<Clock::Nanoseconds> peer_progress_;
  std::vector<Clock::Nanoseconds> lane_end_;  // traces: by direction and peer
  Clock::Nanoseconds next_check_;
  bool cancelled_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace trireme::comm
