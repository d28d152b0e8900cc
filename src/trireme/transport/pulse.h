#pragma once
// Who has been silent for too long; a value that is told the time.
#include <optional>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/units.h"

namespace trireme::transport {

class Pulse {
 public:
  // Members are watched once they were heard. `silence`: what is too long.
  Pulse(int members, Seconds silence)
      : silence_(static_cast<int64_t>(silence.value * 1e9)), heard_(static_cast<size_t>(members)) {}
  void heard(int member, Clock::Nanoseconds now) { heard_[static_cast<size_t>(member)] = now; }
  void forget(int member) { heard_[static_cast<size_t>(member)].reset(); }

  struct Overdue {
    int member;
    Clock::Nanoseconds silent;
  };
  // To be asked several times within `silence`. When we were not asked for half of it, it was this process
  // that stood still (stopped, or its machine suspended), so everybody's time begins anew.
  std::optional<Overdue> overdue(Clock::Nanoseconds now);
  // How often to ask, and to give a sign of life oneself.
  Clock::Nanoseconds interval() const { return silence_ / 8; }

 private:
  Clock::Nanoseconds silence_;
  std::vector<std::optional<Clock::Nanoseconds>> heard_;
  std::optional<Clock::Nanoseconds> asked_;
};

}  // namespace trireme::transport
