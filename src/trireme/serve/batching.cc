#include "trireme/serve/batching.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"

namespace trireme::serve {
namespace {

// A batch that is being gathered; its first request decides when it closes.
struct Gathering {
  uint64_t group;
  Time closes;
  int64_t rows = 0;
  std::vector<size_t> members;
};

}  // namespace

Decision choose_batch(std::span<const Waiting> queue, const Batching& batching, Time now) {
  std::vector<Gathering> batches;
  for (size_t i = 0; i < queue.size(); ++i) {
    const Waiting& request = queue[i];
    auto batch = std::ranges::find(batches, request.group, &Gathering::group);
    if (batch == batches.end())
      batch = batches.insert(batch, {request.group, request.arrived + batching.max_wait});
    const bool fits = batch->members.empty() || batch->rows + request.rows <= batching.max_rows;
    if (!fits) continue;
    batch->rows += request.rows;
    batch->members.push_back(i);
    if (batch == batches.begin() && batch->rows >= batching.max_rows) break;  // nothing can come before it
  }
  Decision decision;
  for (auto& batch : batches) {
    if (batch.rows >= batching.max_rows || batch.closes <= now) {
      decision.run = std::move(batch.members);
      decision.look_again.reset();
      return decision;
    }
    if (!decision.look_again || batch.closes < *decision.look_again) decision.look_again = batch.closes;
  }
  return decision;
}

double rows_per_s(const ArrivalRate& rate, Time now) {
  constexpr double kTime_s = 1;
  return rate.rows_per_s * std::exp(-std::chrono::duration<double>(now - rate.at).count() / kTime_s);
}

ArrivalRate observe_arrival(const ArrivalRate& rate, int64_t rows, Time now) {
  return {rows_per_s(rate, now) + static_cast<double>(rows), now};
}

Batching at_rate(Batching batching, double rows_per_s) {
  if (rows_per_s < batching.waits_from_rows_per_s) batching.max_wait = Time(0);
  return batching;
}

BatchingChoice choose_batching(const std::vector<BatchTime>& table, const BatchingGoal& goal) {
  constexpr double kWorthIt = 1.02;
  TRIREME_CHECK(!table.empty() && table.front().rows == 1);
  const double alone = table.front().seconds;
  BatchingChoice best{1, 0, 1 / alone};
  for (const auto& [rows, seconds] : table) {
    if (rows == 1 || rows > goal.max_rows) continue;
    const auto b = static_cast<double>(rows);
    double wait = (b - 1) * seconds / b;
    if (goal.slo_s > 0) wait = std::min(wait, goal.slo_s - goal.margin_s - 2 * seconds);
    wait = std::min(wait, b * alone - seconds);
    if (wait < 0) continue;
    if (b / seconds > kWorthIt * best.rows_per_s) best = {rows, wait, b / seconds};
  }
  return best;
}

}  // namespace trireme::serve
