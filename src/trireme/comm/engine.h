#pragma once
// Runs task graphs with a compute queue (encode, decode, merge) and a communication thread (send, receive).
// Tasks start when their dependency counters reach zero; both threads sleep otherwise. Errors name rank,
// tensor and primitive.
#include <functional>
#include <memory>
#include <string>

#include "trireme/base/trace.h"
#include "trireme/codec/codec.h"
#include "trireme/comm/task_graph.h"
#include "trireme/tensor/tensor_view.h"
#include "trireme/transport/transport.h"

namespace trireme::comm {

// Where encode, decode and merge run. submit may be called from any thread; jobs with a lower priority number
// first, equal ones in order of submission.
class ComputeQueue {
 public:
  virtual ~ComputeQueue() = default;
  virtual void submit(int priority, std::function<void()> job) = 0;
};
std::unique_ptr<ComputeQueue> make_cpu_queue(int threads = 1);
// Delays and reorders jobs by a seed (tests).
std::unique_ptr<ComputeQueue> make_fake_queue(uint64_t seed);

struct EngineOptions {
  // A transfer fails with timeout, naming what it waits for, when for this long neither its operation went on
  // nor anything else completed with its peer.
  Seconds timeout{60};
  Tracer* tracer = nullptr;
  const Clock* clock = nullptr;  // the transport's; null: the steady clock
};

// Times of all runs since the last take_times().
struct EngineTimes {
  double codec_s = 0;  // busy seconds of encode, decode and merge
};

// A tensor's synchronisation, built once and started every step. Scratch is allocated at construction and
// reused.
class Operation {
 public:
  virtual ~Operation() = default;
  // Other memory for slot 0 from the next start on: as large and aligned as the one described, and outliving
  // that run. Each rank for itself; not while it runs.
  virtual void use(void* data) = 0;
  // `step` numbers the messages and seeds random codecs; the same on all ranks. Not started again before wait
  // returned.
  virtual void start(uint32_t step, int priority) = 0;
  virtual bool done() const = 0;
  // Blocks; throws Error(peer_lost | timeout | …) that names rank, tensor, primitive, peer and waiting time.
  virtual void wait() = 0;
};

// The first failure of any operation ends the engine: what others still expect of each other cannot be known
// then.
class Engine {
 public:
  // Transport and queue outlive the engine; only the engine's thread posts to the transport.
  Engine(transport::Transport& transport, ComputeQueue& queue, const EngineOptions& options);
  ~Engine();  // cancels what is outstanding and joins the thread
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  struct Description {
    std::string name;  // "bucket 3", for errors and traces
    TaskGraph graph;
    tensor::TensorView
        data;  // slot 0; outlives the operation. Any type where the graph only moves data, else float32
    codec::CodecPtr codec;  // of wire slots. Null: float32
    // What the codec remembers of the data, by its state_names(), each as long as the data; outlives the
    // operation.
    std::vector<std::span<float>> codec_state;
    codec::Rounds* rounds = nullptr;  // of the numbers slots; outlives the operation
    uint64_t seed = 0;                // of random codecs; equal on all ranks, another for each tensor
    std::vector<int> ranks;           // group rank -> transport rank
    uint16_t channel = 0, item = 0;
  };
  std::unique_ptr<Operation> prepare(Description description);
  EngineTimes take_times();
  // Ends all operations with `why`, now and later; their waits throw it.
  void cancel(const Failure& why);
  // The same because `rank` is gone: the message also says which transfer waits for it, and for how long.
  void lost(int rank, const Failure& why);
  transport::Transport& transport();
  // Numbers for groups that do not choose one: equal on all ranks that ask in the same order.
  uint16_t next_channel();

 private:
  std::shared_ptr<class EngineState> state_;  // shared with operations, which may be destroyed later
};

}  // namespace trireme::comm
