#pragma once
// How long a run of b rows takes: a measured table, and how the present differs from it.
#include <cstdint>
#include <vector>

namespace trireme::serve {

struct BatchTime {
  int64_t rows = 1;
  double seconds = 0;
  bool operator==(const BatchTime&) const = default;
};

struct BatchTimes {
  std::vector<BatchTime> table;  // rising rows; empty: not measured yet
  // Time of a run over that of the table: its mean, and its quantile `share`.
  double mean_ratio = 1, tail_ratio = 1;
  bool operator==(const BatchTimes&) const = default;

  // Linear between entries and beyond the last; 0 while nothing was measured.
  double mean(int64_t rows) const;
  double tail(int64_t rows) const;
};

// The table's value alone.
double table_seconds(const BatchTimes& times, int64_t rows);

// The estimate after one more run. The mean is an exponential average over about 50 runs; the quantile is
// followed by stochastic approximation (Robbins and Monro 1951): up by step x share when a run was longer,
// else down by step x (1 - share). A run without a table makes the table.
BatchTimes observe(BatchTimes times, int64_t rows, double seconds, double share);

}  // namespace trireme::serve
