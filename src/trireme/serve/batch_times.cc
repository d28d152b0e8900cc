#include "trireme/serve/batch_times.h"

#include <algorithm>

namespace trireme::serve {

double table_seconds(const BatchTimes& times, int64_t rows) {
  const auto& table = times.table;
  if (table.empty()) return 0;
  const auto above =
      std::ranges::lower_bound(table, rows, {}, [](const BatchTime& entry) { return entry.rows; });
  if (above == table.begin()) return above->seconds;
  if (table.size() == 1)  // one size known: the time per row
    return table[0].seconds * static_cast<double>(rows) / static_cast<double>(table[0].rows);
  const auto& high = above == table.end() ? table.back() : *above;
  const auto& low = above == table.end() ? table[table.size() - 2] : *std::prev(above);
  const double slope = std::max(0.0, high.seconds - low.seconds) / static_cast<double>(high.rows - low.rows);
  return low.seconds + slope * static_cast<double>(rows - low.rows);
}

double BatchTimes::mean(int64_t rows) const {
  return mean_ratio * table_seconds(*this, rows);
}

double BatchTimes::tail(int64_t rows) const {
  return std::max(mean_ratio, tail_ratio) * table_seconds(*this, rows);
}

BatchTimes observe(BatchTimes times, int64_t rows, double seconds, double share) {
  constexpr double kWeight = 0.02, kStep = 0.05;
  // One slow run (a page fault, a neighbour) must not shut the door for long.
  constexpr double kLowest = 0.05, kHighest = 20;
  if (times.table.empty()) {
    times.table.push_back({rows, seconds});
    return times;
  }
  const double expected = table_seconds(times, rows);
  if (expected <= 0) return times;
  const double ratio = std::clamp(seconds / expected, kLowest, kHighest);
  times.mean_ratio += kWeight * (ratio - times.mean_ratio);
  times.tail_ratio += kStep * times.mean_ratio * (ratio > times.tail_ratio ? share : share - 1);
  times.tail_ratio = std::clamp(times.tail_ratio, kLowest, kHighest);
  return times;
}

}  // namespace trireme::serve
