#include "trireme/base/clock.h"

#include <thread>

namespace trireme {
namespace {
class SteadyClock : public Clock {
 public:
  Nanoseconds now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
  void sleep_until(Nanoseconds when) override {
    std::this_thread::sleep_until(std::chrono::steady_clock::time_point(when));
  }
};
}  // namespace

Clock& steady_clock() {
  static SteadyClock clock;
  return clock;
}

Clock::Nanoseconds FakeClock::now() const {
  std::lock_guard lock(mutex_);
  return now_;
}

void FakeClock::sleep_until(Nanoseconds when) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return now_ >= when; });
}

void FakeClock::advance(Nanoseconds by) {
  {
    std::lock_guard lock(mutex_);
    now_ += by;
  }
  changed_.notify_all();
}

}  // namespace trireme
