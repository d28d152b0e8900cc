#include "trireme/serve/admission.h"

#include <algorithm>
#include <vector>

namespace trireme::serve {
namespace {

// When the last of the batches ahead has started and an instance is free again: each batch goes to the
// instance that is free first.
double time_until_free(std::span<const double> running_s, int64_t batches, double batch_s) {
  std::vector<double> free(running_s.begin(), running_s.end());
  if (free.empty()) free.push_back(0);
  std::ranges::make_heap(free, std::greater<>());
  // Whole rounds over all instances change no order.
  const auto instances = static_cast<int64_t>(free.size());
  const double rounds = static_cast<double>(std::max<int64_t>(0, batches / instances - 1));
  for (int64_t left = batches - static_cast<int64_t>(rounds) * instances; left > 0; --left) {
    std::ranges::pop_heap(free, std::greater<>());
    free.back() += batch_s;
    std::ranges::push_heap(free, std::greater<>());
  }
  return free.front() + rounds * batch_s;
}

// What the table promises, or less.
BatchTimes at_best(BatchTimes times) {
  times.mean_ratio = std::min(times.mean_ratio, 1.0);
  times.tail_ratio = std::min(times.tail_ratio, 1.0);
  return times;
}

}  // namespace

Verdict admit(const Load& load, int64_t rows, double age_s, const BatchTimes& measured,
              const Batching& batching, const AdmissionLimits& limits) {
  if (load.waiting_requests >= limits.max_waiting) return {false, 0, "the queue is full"};
  if (limits.slo_s <= 0 || measured.table.empty()) return {};
  const bool idle =
      load.waiting_requests == 0 && std::ranges::all_of(load.running_s, [](double s) { return s <= 0; });
  const BatchTimes times = idle ? at_best(measured) : measured;
  const int64_t with_own = load.waiting_rows + rows;
  const int64_t ahead = (with_own - 1) / batching.max_rows;  // full batches before the own one
  const int64_t own_rows = std::min(batching.max_rows, std::max(rows, with_own - ahead * batching.max_rows));
  const double free_s = time_until_free(load.running_s, ahead, times.mean(batching.max_rows));
  const double closes_s =
      own_rows >= batching.max_rows ? 0 : std::chrono::duration<double>(batching.max_wait).count();
  const double estimate = std::max(free_s, closes_s) + times.tail(std::max(own_rows, rows));
  const bool in_time = estimate + limits.margin_s <= limits.slo_s - age_s;
  return {in_time, estimate, in_time ? "" : "the answer would come later than the SLO allows"};
}

}  // namespace trireme::serve
