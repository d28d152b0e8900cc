#include "trireme/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/base/error.h"

namespace trireme::train {

double factor(const Schedule& schedule, int64_t step) {
  if (step < schedule.warmup) return static_cast<double>(step + 1) / static_cast<double>(schedule.warmup);
  if (schedule.kind == "constant") return 1;
  const int64_t last = schedule.steps - 1;
  if (last <= schedule.warmup) return 1;  // no room to decay
  const double done = std::min(
      1.0, static_cast<double>(step - schedule.warmup) / static_cast<double>(last - schedule.warmup));
  const double left = schedule.kind == "cosine" ? 0.5 * (1 + std::cos(std::numbers::pi * done)) : 1 - done;
  TRIREME_CHECK(schedule.kind == "cosine" || schedule.kind == "linear", schedule.kind);
  return schedule.final_share + (1 - schedule.final_share) * left;
}

}  // namespace trireme::train
