#include "loss_guard.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace trireme::app {
namespace {
// A rank that ends sooner names the loss by its own error.
constexpr double kSecondsToName = 2;
}  // namespace

LossGuard::LossGuard(transport::Rendezvous& rendezvous, Seconds patience,
                     std::function<void(const Failure&)> end)
    : patience_(patience),
      end_(std::move(end)),
      thread_([this] { guard(); }),
      watch_(rendezvous.watch([this](const transport::Loss& loss) {
        const std::lock_guard lock(mutex_);
        why_ = loss.why;
        changed_.notify_all();
      })) {}

LossGuard::~LossGuard() {
  watch_.reset();
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LossGuard::guard() {
  std::unique_lock lock(mutex_);
  const auto over_within = [&](double seconds) {
    return changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return over_; });
  };
  changed_.wait(lock, [this] { return why_ || over_; });
  if (over_ || over_within(std::min(kSecondsToName, patience_.value))) return;
  log::error(cat(why_->message, "; this rank ends when it reaches its next exchange"));
  if (!over_within(std::max(0.0, patience_.value - kSecondsToName))) end_(*why_);
}

}  // namespace trireme::app
