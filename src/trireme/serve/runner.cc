#include "trireme/serve/runner.h"

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/serve/request_check.h"

namespace trireme::serve {
namespace {

constexpr Time kNever = Time::max();

Time seconds(double s) {
  return std::chrono::duration_cast<Time>(std::chrono::duration<double>(s));
}
double to_seconds(Time t) {
  return std::chrono::duration<double>(t).count();
}
uint64_t micros(Time t) {
  return static_cast<uint64_t>(std::max<int64_t>(0, t.count()) / 1000);
}
Time now() {
  return steady_clock().now();
}

uint64_t hash(const std::vector<int64_t>& key) {
  uint64_t h = 0;
  for (const int64_t k : key) h = mix(h, static_cast<uint64_t>(k));
  return h;
}

Rejection rejection_of(const Error& e) {
  const bool client = e.code() == ErrorCode::input || e.code() == ErrorCode::usage;
  return {client ? Reason::invalid : Reason::failed, e.what()};
}

}  // namespace

ModelRunner::ModelRunner(ModelInfo info, Instances instances, const RunnerOptions& options,
                         std::shared_ptr<ModelMetrics> metrics)
    : info_(std::move(info)), options_(options), metrics_(std::move(metrics)), times_(options.times) {
  TRIREME_CHECK(!instances.empty());
  for (auto& backend : instances) instances_.push_back({std::move(backend), {}, {}});
  for (auto& instance : instances_) instance.thread = std::thread([this, &instance] { serve(instance); });
  timer_thread_ = std::thread([this] { watch_deadlines(); });
}

ModelRunner::~ModelRunner() {
  stop();
}

void ModelRunner::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  timer_.notify_all();
  for (auto& instance : instances_)
    if (instance.thread.joinable()) instance.thread.join();
  if (timer_thread_.joinable()) timer_thread_.join();
}

Verdict ModelRunner::verdict(int64_t rows, double age_s, Time at) const {
  std::vector<double> running;
  for (const auto& instance : instances_)
    running.push_back(instance.expected_end > at ? to_seconds(instance.expected_end - at) : 0);
  const Load load{static_cast<int64_t>(queue_.size()), waiting_rows_, running};
  return admit(load, rows, age_s, times_, batching_now(at), options_.limits);
}

Batching ModelRunner::batching_now(Time at) const {
  // While stopping nobody will join, so nobody waits for them.
  if (stopping_) return {options_.batching.max_rows, Time(0)};
  return at_rate(options_.batching, rows_per_s(arrivals_, at));
}

std::variant<ModelRunner::Ticket, Rejection> ModelRunner::submit(InferRequest& request, int64_t rows,
                                                                 Time arrived, Done& done) {
  Job job;
  job.key = join_key(info_, request);
  job.priority = request.priority == 0 ? std::numeric_limits<int64_t>::max() : request.priority;
  job.arrived = arrived;
  job.deadline = kNever;
  if (options_.limits.slo_s > 0) job.deadline = arrived + seconds(options_.limits.slo_s);
  if (options_.timeout_s > 0) job.deadline = std::min(job.deadline, arrived + seconds(options_.timeout_s));
  // A wait of more than a year is no deadline, and would overflow.
  constexpr int64_t kYearUs = 365LL * 86400 * 1000000;
  if (request.timeout_us && *request.timeout_us < kYearUs)
    job.deadline = std::min(job.deadline, arrived + std::chrono::microseconds(*request.timeout_us));
  const std::unique_lock lock(mutex_);
  if (stopping_) return Rejection{Reason::unavailable, "the model is being unloaded"};
  const Time at = now();
  arrivals_ = observe_arrival(arrivals_, rows, at);
  const Verdict verdict = this->verdict(rows, to_seconds(at - arrived), at);
  if (!verdict.admitted) return Rejection{Reason::overloaded, cat("refused: ", verdict.why)};
  job.request = std::move(request);
  job.done = std::move(done);
  const Ticket ticket = next_ticket_++;
  const Waiting waiting{ticket, rows, hash(job.key), arrived};
  const auto place = std::ranges::upper_bound(queue_, job.priority, {},
                                              [this](const Waiting& w) { return jobs_.at(w.id).priority; });
  queue_.insert(place, waiting);
  const bool new_deadline = job.deadline != kNever;
  jobs_.emplace(ticket, std::move(job));
  waiting_rows_ += rows;
  ++metrics_->pending;
  work_.notify_one();
  if (new_deadline) timer_.notify_one();
  return ticket;
}

void ModelRunner::remove_from_queue(size_t position) {
  waiting_rows_ -= queue_[position].rows;
  --metrics_->pending;
  queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(position));
}

void ModelRunner::cancel(Ticket ticket) {
  Taken taken;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(queue_, ticket, &Waiting::id);
    if (found == queue_.end()) return;
    taken.waiting = *found;
    remove_from_queue(static_cast<size_t>(found - queue_.begin()));
    taken.job = std::move(jobs_.extract(ticket).mapped());
  }
  answer(taken, Rejection{Reason::cancelled, "the client went away"});
}

// Runs all the time, so that a request does not have to wait for the end of a run to learn that it is late.
void ModelRunner::watch_deadlines() {
  std::unique_lock lock(mutex_);
  while (!stopping_ || !queue_.empty()) {
    Time next = kNever;
    for (const auto& waiting : queue_) next = std::min(next, jobs_.at(waiting.id).deadline);
    if (next == kNever) {
      if (stopping_) return;
      timer_.wait(lock);
      continue;
    }
    if (const Time at = now(); next > at) {
      timer_.wait_for(lock, next - at);
      continue;
    }
    std::vector<size_t> late;
    for (size_t i = 0; i < queue_.size(); ++i)
      if (jobs_.at(queue_[i].id).deadline <= next) late.push_back(i);
    auto expired = take(late);
    lock.unlock();
    for (auto& taken : expired)
      answer(taken, Rejection{Reason::expired, "its time limit passed while it waited in the queue"});
    lock.lock();
  }
}

std::vector<ModelRunner::Taken> ModelRunner::take(const std::vector<size_t>& positions) {
  std::vector<Taken> taken;
  for (auto position = positions.rbegin(); position != positions.rend(); ++position) {
    const Waiting waiting = queue_[*position];
    remove_from_queue(*position);
    taken.push_back({waiting, std::move(jobs_.extract(waiting.id).mapped())});
  }
  std::ranges::reverse(taken);
  return taken;
}

void ModelRunner::serve(Instance& instance) {
  instance.backend->adopt_thread();
  std::unique_lock lock(mutex_);
  while (true) {
    const Time at = now();
    Decision decision = choose_batch(queue_, batching_now(at), at);
    if (decision.run.empty()) {
      if (stopping_ && queue_.empty()) return;
      if (decision.look_again)
        work_.wait_for(lock, *decision.look_again - now());
      else
        work_.wait(lock);
      continue;
    }
    // Equal hashes of unequal shapes must not meet in one run.
    const auto key_at = [this](size_t position) -> const auto& {
      return jobs_.at(queue_[position].id).key;
    };
    std::erase_if(decision.run, [&](size_t p) { return key_at(p) != key_at(decision.run[0]); });
    auto batch = take(decision.run);
    int64_t rows = 0;
    for (const auto& taken : batch) rows += taken.waiting.rows;
    instance.expected_end = now() + seconds(times_.mean(rows));
    const bool more = !queue_.empty();
    lock.unlock();
    if (more) work_.notify_one();  // this thread may have taken the signal that was meant for another
    run_batch(instance, batch);
    lock.lock();
    instance.expected_end = Time(0);
  }
}

std::vector<Tensor> ModelRunner::run_together(Instance& instance, const std::vector<Taken>& batch,
                                              int64_t rows) {
  std::vector<RunInput> inputs(info_.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i].shape = batch[0].job.request.inputs[i].shape;
    if (info_.joinable) inputs[i].shape[0] = rows;
    for (const auto& taken : batch) inputs[i].pieces.push_back(taken.job.request.inputs[i].bytes);
  }
  const Time begin = now();
  auto outputs = instance.backend->run(inputs);
  const double took = to_seconds(now() - begin);
  for (const auto& output : outputs)
    if (info_.joinable && (output.shape.empty() || output.shape[0] != rows))
      fail(ErrorCode::internal, "output '", output.name, "' has shape ", spec::to_text(output.shape), " for ",
           rows, " rows");
  metrics_->rows += static_cast<uint64_t>(rows);
  ++metrics_->runs;
  metrics_->batch_rows.add(static_cast<double>(rows));
  const std::lock_guard lock(mutex_);
  times_ = observe(std::move(times_), rows, took, options_.slo_share);
  return outputs;
}

void ModelRunner::run_batch(Instance& instance, std::vector<Taken>& batch) {
  int64_t rows = 0;
  for (const auto& taken : batch) rows += taken.waiting.rows;
  const auto count = static_cast<int64_t>(batch.size());
  metrics_->running += count;
  const Time begin = now();
  std::vector<Tensor> outputs;
  std::optional<Rejection> failure;
  try {
    outputs = run_together(instance, batch, rows);
  } catch (const Error& e) {
    failure = rejection_of(e);
  } catch (const std::exception& e) {
    failure = Rejection{Reason::failed, e.what()};
  }
  metrics_->running -= count;
  if (failure && batch.size() > 1) {  // one request must not fail the others
    for (auto& taken : batch) {
      std::vector<Taken> alone;
      alone.push_back(std::move(taken));
      run_batch(instance, alone);
    }
    return;
  }
  const uint64_t took = micros(now() - begin);
  int64_t first = 0;
  for (auto& taken : batch) {
    metrics_->queue_us += micros(begin - taken.job.arrived);
    metrics_->queue_s.add(to_seconds(begin - taken.job.arrived));
    metrics_->compute_us += took;
    if (failure) {
      answer(taken, *failure);
      continue;
    }
    InferResponse response{info_.name, info_.version, taken.job.request.id, {}};
    for (const auto& output : outputs) {
      Tensor part = output;
      if (info_.joinable) {
        const size_t row = output.bytes.size() / static_cast<size_t>(rows);
        part.shape[0] = taken.waiting.rows;
        part.bytes = output.bytes.subspan(static_cast<size_t>(first) * row,
                                          static_cast<size_t>(taken.waiting.rows) * row);
      }
      response.outputs.push_back(std::move(part));
    }
    first += taken.waiting.rows;
    answer(taken, std::move(response));
  }
}

namespace {

// Those asked for, in the order asked; all when none was named.
void keep_wanted(InferResponse& response, const std::vector<RequestedOutput>& wanted) {
  if (wanted.empty()) return;
  std::vector<Tensor> kept;
  for (const auto& want : wanted)
    kept.push_back(*std::ranges::find(response.outputs, want.name, &Tensor::name));
  response.outputs = std::move(kept);
}

}  // namespace

void ModelRunner::answer(Taken& taken, InferResult result) {
  if (auto* response = std::get_if<InferResponse>(&result)) {
    keep_wanted(*response, taken.job.request.outputs);
    count_success(*metrics_, now() - taken.job.arrived);
  } else {
    count_rejection(*metrics_, std::get<Rejection>(result).reason);
  }
  taken.job.done(std::move(result));
}

}  // namespace trireme::serve
