#include "trireme/comm/engine.h"

#include <algorithm>
#include <utility>

#include "trireme/comm/engine_state.h"
#include "trireme/comm/group.h"

namespace trireme::comm {
namespace {
constexpr auto kNever = Clock::Nanoseconds::max();

bool sends(const Task& task) {
  return task.primitive == Primitive::send;
}
}  // namespace

EngineState::EngineState(transport::Transport& t, ComputeQueue& q, const EngineOptions& o)
    : transport(t),
      queue(q),
      options(o),
      clock_(o.clock != nullptr ? *o.clock : steady_clock()),
      timeout_(static_cast<int64_t>(o.timeout.value * 1e9)),
      peer_progress_(static_cast<size_t>(t.size())),
      lane_end_(2 * static_cast<size_t>(t.size())),
      next_check_(kNever),
      thread_([this] { communicate(); }) {}

void EngineState::post(Run* run, int32_t task) {
  {
    std::lock_guard lock(mutex_);
    commands_.push_back({run, task});
  }
  // On the communication thread itself a completion has just run, so progress() returns anyway.
  if (std::this_thread::get_id() != thread_.get_id()) transport.wake();
}

void EngineState::end_with(Failure why) {
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = std::move(why);
    failed_ = true;
  }
  transport.wake();
}

void EngineState::lost(int rank, Failure why) {
  {
    std::lock_guard lock(mutex_);
    if (loss_ || failure_) return;
    loss_ = {rank, std::move(why)};
  }
  transport.wake();
}

Failure EngineState::failure() const {
  std::lock_guard lock(mutex_);
  return failure_.value_or(Failure{ErrorCode::internal, "an operation ended without its work done"});
}

void EngineState::run_begins() {
  std::lock_guard lock(mutex_);
  ++running_;
}

// Wakes under the lock: without it the thread could end, and the transport with it, before the wake.
void EngineState::run_ends() {
  std::lock_guard lock(mutex_);
  if (--running_ == 0 && stop_) transport.wake();
}

void EngineState::join() {
  bool outstanding = false;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    outstanding = running_ > 0;
  }
  if (outstanding) end_with({ErrorCode::cancelled, "the engine was closed with operations outstanding"});
  transport.wake();
  thread_.join();
}

void EngineState::communicate() {
  try {
    while (turn()) {
    }
  } catch (const std::exception& e) {
    check_failed("the communication thread runs without exceptions", __FILE__, __LINE__, e.what());
  }
}

bool EngineState::turn() {
  std::vector<Command> batch;
  std::optional<Failure> cancel_now;
  std::optional<Loss> loss;
  {
    std::lock_guard lock(mutex_);
    loss.swap(loss_);
  }
  if (loss) end_with(explain(*loss));
  {
    std::lock_guard lock(mutex_);
    batch.swap(commands_);
    if (!cancelled_) cancel_now = failure_;
    if (stop_ && batch.empty() && running_ == 0 && !cancel_now) return false;
  }
  if (cancel_now) {
    cancelled_ = true;
    transport.cancel(*cancel_now);
  }
  for (const Command& command : batch) start_transfer(command);
  if (cancel_now) return true;  // the wake of a join that came before it is spent: look again before sleeping
  transport.progress({outstanding_.empty() ? kNever : next_check_});
  check_timeouts();
  return true;
}

void EngineState::start_transfer(const Command& command) {
  Run& run = *command.run;
  if (failed()) return run.ended(command.task, false);
  post_message(command.run, command.task, clock_.now(), run.length_to_announce(command.task) != nullptr);
}

// Messages of one id match in the order of posting, so a length and its payload need no two ids.
void EngineState::post_message(Run* r, int32_t t, Clock::Nanoseconds since, bool announces) {
  Run& run = *r;
  const uint64_t id = next_id_++;
  outstanding_.emplace(id, Outstanding{r, t, since, announces});
  if (outstanding_.size() == 1) next_check_ = clock_.now() + timeout_;
  auto done = [this, id](Status status) { transfer_ended(id, std::move(status)); };
  const auto length = [&] { return std::as_writable_bytes(std::span(run.length_to_announce(t), 1)); };
  try {
    if (sends(run.task(t))) {
      transport.send(run.peer_rank(t), run.message(t), announces ? length() : run.bytes_read(t), done);
    } else {
      transport.receive(run.peer_rank(t), run.message(t), announces ? length() : run.bytes_written(t), done);
    }
  } catch (const Error& e) {
    transfer_ended(id, Failure{e.code(), e.what()});
  }
}

void EngineState::transfer_ended(uint64_t id, Status status) {
  const auto found = outstanding_.find(id);
  TRIREME_CHECK(found != outstanding_.end(), "a transfer completed twice");
  const Outstanding o = found->second;
  outstanding_.erase(found);
  const auto now = clock_.now();
  if (status.ok() && o.announces && !failed()) {
    if (!sends(o.run->task(o.task))) status = o.run->check_length(o.task);
    if (status.ok()) {
      peer_progress_[static_cast<size_t>(o.run->peer_rank(o.task))] = now;
      return post_message(o.run, o.task, o.since, false);
    }
  }
  if (status.ok()) {
    peer_progress_[static_cast<size_t>(o.run->peer_rank(o.task))] = now;
    trace(o, now);
  } else if (!failed()) {
    const Failure& why = status.failure();
    end_with({why.code, cat(describe(o), " failed after ",
                            for_people(Seconds{(now - o.since).count() * 1e-9}), ": ", why.message)});
  }
  o.run->ended(o.task, status.ok());
}

Clock::Nanoseconds EngineState::last_sign(const Outstanding& o) const {
  return std::max(
      {o.since, o.run->last_progress(), peer_progress_[static_cast<size_t>(o.run->peer_rank(o.task))]});
}

// Runs once in a timeout: between two checks nothing can have become due that started after the first.
void EngineState::check_timeouts() {
  if (outstanding_.empty() || failed()) return;
  const auto now = clock_.now();
  if (now < next_check_) return;
  const Outstanding* oldest = nullptr;
  for (const auto& [id, o] : outstanding_) {
    if (oldest == nullptr || last_sign(o) < last_sign(*oldest)) oldest = &o;
  }
  next_check_ = last_sign(*oldest) + timeout_;
  if (next_check_ > now) return;
  end_with({ErrorCode::timeout,
            cat(describe(*oldest), " has waited ", for_people(Seconds{(now - oldest->since).count() * 1e-9}),
                " without a sign of it (limit: transport.timeout = ", for_people(options.timeout),
                "); that rank may be stuck, overloaded or unreachable")});
}

// Of the transfers that wait, one with the lost rank, and the oldest of these.
Failure EngineState::explain(const Loss& loss) const {
  const auto rank_of = [](const Outstanding& o) { return o.run->peer_rank(o.task); };
  const Outstanding* waiting = nullptr;
  for (const auto& [id, o] : outstanding_) {
    const auto order = [&](const Outstanding& x) { return std::pair(rank_of(x) != loss.rank, x.since); };
    if (waiting == nullptr || order(o) < order(*waiting)) waiting = &o;
  }
  if (waiting == nullptr) return {loss.why.code, cat("rank ", transport.rank(), ": ", loss.why.message)};
  const Seconds waited{static_cast<double>((clock_.now() - waiting->since).count()) * 1e-9};
  return {loss.why.code, cat(describe(*waiting), " has waited ", for_people(waited), ": ", loss.why.message)};
}

std::string EngineState::describe(const Outstanding& o) const {
  const bool send = sends(o.run->task(o.task));
  return cat("rank ", transport.rank(), ": ", o.run->name(), ": ", send ? "send to" : "receive from",
             " rank ", o.run->peer_rank(o.task));
}

// Transfers overlap; a lane shows when its link was at work, so a span begins where the one before it ended.
void EngineState::trace(const Outstanding& o, Clock::Nanoseconds end) {
  if (options.tracer == nullptr) return;
  const bool send = sends(o.run->task(o.task));
  const auto peer = static_cast<size_t>(o.run->peer_rank(o.task));
  auto& lane_end = lane_end_[2 * peer + (send ? 1 : 0)];
  options.tracer->add(cat(send ? "send to " : "receive from ", peer), o.run->name(),
                      std::max(o.since, lane_end), end);
  lane_end = end;
}

Engine::Engine(transport::Transport& transport, ComputeQueue& queue, const EngineOptions& options)
    : state_(std::make_shared<EngineState>(transport, queue, options)) {}

Engine::~Engine() {
  state_->join();
}

std::unique_ptr<Operation> Engine::prepare(Description description) {
  return std::make_unique<Run>(state_, std::move(description));
}

EngineTimes Engine::take_times() {
  return {.codec_s = state_->codec_nanoseconds.exchange(0) * 1e-9};
}

void Engine::cancel(const Failure& why) {
  state_->end_with(why);
}

void Engine::lost(int rank, const Failure& why) {
  state_->lost(rank, why);
}

transport::Transport& Engine::transport() {
  return state_->transport;
}

uint16_t Engine::next_channel() {
  const uint32_t channel = Group::kOwnChannels + state_->channels++;
  if (channel >= transport::kChannels)
    fail(ErrorCode::usage, "more than ", transport::kChannels - Group::kOwnChannels, " groups on one engine");
  return static_cast<uint16_t>(channel);
}

}  // namespace trireme::comm
