#pragma once
// The first loss of a run, told once to each who asks to hear of it.
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "trireme/base/clock.h"
#include "trireme/transport/rendezvous.h"

namespace trireme::transport {

// What is said of a rank that gives no sign of life.
inline Loss silent(int rank, Clock::Nanoseconds since) {
  return {rank,
          {ErrorCode::peer_lost, cat("rank ", rank, " has given no sign of life for ",
                                     for_people(Seconds{static_cast<double>(since.count()) * 1e-9}),
                                     ": it is stopped, its machine hangs, or the network to it is cut")}};
}
inline Loss failed(int rank, const std::string& reason) {
  return {rank, {ErrorCode::peer_lost, cat("rank ", rank, " has failed (", reason, ")")}, true};
}

class LossReport {
 public:
  using Listener = std::function<void(const Loss&)>;

  std::shared_ptr<void> listen(Listener listener) {
    const std::lock_guard lock(state_->mutex);
    if (state_->told) {
      listener(*state_->loss);
      return nullptr;
    }
    const int id = state_->next++;
    state_->listeners[id] = std::move(listener);
    return std::shared_ptr<void>(nullptr, [state = state_, id](void*) {
      const std::lock_guard lock(state->mutex);  // a call that runs ends first
      state->listeners.erase(id);
    });
  }

  // Only the first one counts; tell_when_due() tells it.
  void note(const Loss& loss, Clock::Nanoseconds now) {
    const std::lock_guard lock(state_->mutex);
    if (state_->loss) return;
    state_->loss = loss;
    state_->due = loss.told ? now + kGrace : now;
  }
  // True when it was told now.
  bool tell_when_due(Clock::Nanoseconds now) {
    const std::lock_guard lock(state_->mutex);
    if (!state_->loss || state_->told || now < state_->due) return false;
    state_->told = true;
    for (const auto& [id, listener] : state_->listeners) listener(*state_->loss);
    state_->listeners.clear();
    return true;
  }
  // When to call tell_when_due() next; far away when nothing is to be told.
  Clock::Nanoseconds due() const {
    const std::lock_guard lock(state_->mutex);
    return state_->loss && !state_->told ? state_->due : Clock::Nanoseconds::max();
  }

  std::optional<Loss> loss() const {
    const std::lock_guard lock(state_->mutex);
    return state_->loss;
  }
  std::optional<Loss> told() const {
    const std::lock_guard lock(state_->mutex);
    return state_->told ? state_->loss : std::nullopt;
  }

 private:
  static constexpr Clock::Nanoseconds kGrace = std::chrono::seconds(1);
  struct State {
    std::mutex mutex;
    std::map<int, Listener> listeners;
    int next = 0;
    std::optional<Loss> loss;
    Clock::Nanoseconds due{};
    bool told = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace trireme::transport
