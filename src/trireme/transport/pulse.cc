#include "trireme/transport/pulse.h"

#include <utility>

namespace trireme::transport {

std::optional<Pulse::Overdue> Pulse::overdue(Clock::Nanoseconds now) {
  const auto before = std::exchange(asked_, now);
  if (before && now - *before > silence_ / 2) {
    for (auto& when : heard_) {
      if (when) when = now;
    }
    return {};
  }
  std::optional<Overdue> longest;
  for (size_t m = 0; m < heard_.size(); ++m) {
    if (!heard_[m] || now - *heard_[m] <= silence_) continue;
    if (!longest || now - *heard_[m] > longest->silent) longest = {static_cast<int>(m), now - *heard_[m]};
  }
  return longest;
}

}  // namespace trireme::transport
