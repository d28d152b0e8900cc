#pragma once
// One loaded model version: a bounded queue, the instances that serve it, and a timer that ends waits.
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "trireme/serve/admission.h"
#include "trireme/serve/backend.h"
#include "trireme/serve/batching.h"
#include "trireme/serve/metrics.h"
#include "trireme/serve/spill.h"

namespace trireme::serve {

struct RunnerOptions {
  Batching batching;
  AdmissionLimits limits;
  BatchTimes times;
  double slo_share = 0.98;
  double timeout_s = 0;          // longest wait in the queue; 0: none. A request may ask for less.
  std::shared_ptr<Spill> spill;  // where requests go that are refused here; or nowhere
};

class ModelRunner {
 public:
  // `info` is that of the instances, or says less: not joinable, fewer rows.
  ModelRunner(ModelInfo info, Instances instances, const RunnerOptions& options,
              std::shared_ptr<ModelMetrics> metrics);
  ~ModelRunner();  // stop()
  ModelRunner(const ModelRunner&) = delete;
  ModelRunner& operator=(const ModelRunner&) = delete;

  const ModelInfo& info() const { return info_; }
  const RunnerOptions& options() const { return options_; }
  ModelMetrics& metrics() const { return *metrics_; }
  const std::shared_ptr<ModelMetrics>& shared_metrics() const { return metrics_; }

  using Ticket = uint64_t;
  // Takes both arguments and calls `done` once; or refuses and leaves them as they are. The request must have
  // passed check_request, which gave `rows`.
  std::variant<Ticket, Rejection> submit(InferRequest& request, int64_t rows, Time arrived, Done& done);
  // A request that still waits gets Reason::cancelled; one that runs is finished.
  void cancel(Ticket ticket);
  // Serves what waits, then ends the threads; later submits are refused as unavailable. May be called twice.
  void stop();

 private:
  struct Job {
    InferRequest request;
    std::vector<int64_t> key;  // join_key
    int64_t priority = 0;
    Time arrived{0}, deadline{0};
    Done done;
  };
  struct Instance {
    std::unique_ptr<Backend> backend;
    Time expected_end{0};  // of its run; 0 when idle
    std::thread thread;
  };
  struct Taken {
    Waiting waiting;
    Job job;
  };

  void serve(Instance& instance);
  void watch_deadlines();
  std::vector<Taken> take(const std::vector<size_t>& positions);
  void remove_from_queue(size_t position);
  void run_batch(Instance& instance, std::vector<Taken>& batch);
  std::vector<Tensor> run_together(Instance& instance, const std::vector<Taken>& batch, int64_t rows);
  void answer(Taken& taken, InferResult result);
  Verdict verdict(int64_t rows, double age_s, Time now) const;
  Batching batching_now(Time now) const;

  ModelInfo info_;
  const RunnerOptions options_;
  std::shared_ptr<ModelMetrics> metrics_;
  mutable std::mutex mutex_;
  std::condition_variable work_, timer_;
  bool stopping_ = false;
  Ticket next_ticket_ = 1;
  BatchTimes times_;
  ArrivalRate arrivals_;
  int64_t waiting_rows_ = 0;
  std::vector<Waiting> queue_;  // in the order of service
  std::unordered_map<Ticket, Job> jobs_;
  std::vector<Instance> instances_;
  std::thread timer_thread_;
};

}  // namespace trireme::serve
