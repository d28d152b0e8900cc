#pragma once
// Which waiting requests run together, and when: a pure function of the queue. Batches close by size or by
// wait (MArk, USENIX ATC'19, section 3.2); rows are counted, not requests; only requests of equal join key
// share a run.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/serve/batch_times.h"

namespace trireme::serve {

using Time = Clock::Nanoseconds;

struct Batching {
  int64_t max_rows = 1;              // N_batch
  Time max_wait{0};                  // W_batch: the longest that a request waits for others to join it
  double waits_from_rows_per_s = 0;  // of arrivals: below this rate nobody waits (at_rate)
  bool operator==(const Batching&) const = default;
};

struct Waiting {
  uint64_t id = 0;
  int64_t rows = 1;
  uint64_t group = 0;  // equal for requests that may share a run
  Time arrived{0};
};

struct Decision {
  std::vector<size_t> run;         // positions in the queue, rising; empty: nothing yet
  std::optional<Time> look_again;  // when a wait ends, if nothing arrives before
};

// `queue` in the order in which requests are to be served. The batch of the request that stands first among
// those whose batch is full or whose wait is over. Later requests that still fit may overtake one that does
// not.
Decision choose_batch(std::span<const Waiting> queue, const Batching& batching, Time now);

// Rows per second that arrive: an exponential average with a time constant of one second.
struct ArrivalRate {
  double rows_per_s = 0;
  Time at{0};
};
ArrivalRate observe_arrival(const ArrivalRate& rate, int64_t rows, Time now);
double rows_per_s(const ArrivalRate& rate, Time now);

// The same without a wait while one request after the other keeps up with the arrivals: then waiting would
// only add to latency.
Batching at_rate(Batching batching, double rows_per_s);

// Limits of one model on one machine, from its measured times.
struct BatchingGoal {
  double slo_s = 0;     // RT_max; 0: no limit
  double margin_s = 0;  // network and parsing
  int64_t max_rows = 1;
};
struct BatchingChoice {
  int64_t rows = 1;       // N_batch
  double wait_s = 0;      // W_batch
  double rows_per_s = 0;  // mu*: of one instance under this setting
};
// The rule (docs/reference/serving.md). For b rows, W_b = (b - 1) T_b / b is the time in which a saturated
// instance receives the other b - 1; it is cut so that both of MArk's conditions hold:
//   (A) T_b (a run that is still going) + W_b + T_b + margin <= SLO
//   (B) W_b + T_b <= b / mu_1, with mu_1 = 1 / T_1: together they finish no later than one by one
// A b without a W_b >= 0 is out. Of the others the one of highest rate b / T_b is taken; a larger b must be 2
// % better.
BatchingChoice choose_batching(const std::vector<BatchTime>& table, const BatchingGoal& goal);

}  // namespace trireme::serve
