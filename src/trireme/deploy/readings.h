#pragma once
// Speeds as a running probe reports them, and when enough of them were seen.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::deploy {

// What one line of a probe's output says. Taken: a number alone; {"samples_per_s": x, …} with optional
// "relative_sd" and "minutes" (the minutes to charge); "samples_per_s = x" or "samples_per_s: x" anywhere in
// the line.
struct Reading {
  double samples_per_s = 0;  // as printed, so possibly senseless
  std::optional<double> relative_sd, minutes;
};
std::optional<Reading> parse_reading(std::string_view line);

struct SpeedEstimate {
  double samples_per_s = 0, relative_sd = 0;  // mean and its standard error, relative
  double low = 0, high = 0;                   // 95 % bounds; 0 and infinity below three readings
};
// From three readings on the first is left out: it holds the warm-up.
SpeedEstimate estimate(const std::vector<double>& readings);

enum class Verdict { go_on, too_slow, fast_enough, precise };
// May the probe end? too_slow: even the upper bound is below what is needed. fast_enough: the lower bound is
// above it, and the bounds are within `precision` of the mean. precise: the planned time is over and the
// bounds are.
Verdict judge(const SpeedEstimate& speed, double needed_samples_per_s, double precision,
              bool planned_time_over);

}  // namespace trireme::deploy
