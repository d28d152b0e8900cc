#pragma once
// Time as an interface, so that tests need not sleep.
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace trireme {

class Clock {
 public:
  using Nanoseconds = std::chrono::nanoseconds;
  virtual ~Clock() = default;
  // Monotonic; the origin is arbitrary.
  virtual Nanoseconds now() const = 0;
  virtual void sleep_until(Nanoseconds when) = 0;
};

// The machine's steady clock; one shared instance without state.
Clock& steady_clock();

// Stands still until advance(). sleep_until returns once another thread has advanced past `when`.
class FakeClock : public Clock {
 public:
  Nanoseconds now() const override;
  void sleep_until(Nanoseconds when) override;
  void advance(Nanoseconds by);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Nanoseconds now_{0};
};

// A point on a Clock after which a wait gives up. Every wait in Trireme takes one.
struct Deadline {
  Clock::Nanoseconds at;
  static Deadline after(const Clock& clock, double seconds) {
    return {clock.now() + std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9))};
  }
};

}  // namespace trireme
