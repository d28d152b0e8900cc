#pragma once
// Load over time: counts per minute or second, or single arrivals; and the arrivals drawn from it.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "trireme/base/rng.h"

namespace trireme::serve {

// A span of constant rate.
struct LoadSpan {
  double seconds = 0;
  double requests = 0;
  bool operator==(const LoadSpan&) const = default;
};

struct Trace {
  std::vector<LoadSpan> spans;   // one after the other
  std::vector<double> arrivals;  // or single arrivals: seconds from the start, rising
  double seconds() const;
  bool operator==(const Trace&) const = default;
};

// A CSV with a head line: columns "minute" or "second", and "requests" (rising by 1; other columns are
// ignored), or "TIMESTAMP" with one arrival a line, as 2023-11-16 18:17:03.97996 (the Azure traces).
// Error(input) names file and line.
Trace parse_trace(std::string_view text, const std::filesystem::path& path);
Trace read_trace(const std::filesystem::path& path);
Trace constant_rate(double requests_per_s, double seconds);

enum class Gaps : uint8_t {
  exponential,  // a Poisson process
  even,         // as regular as the rate allows
};

// Intended send times of a trace, in seconds from its start. Rates are multiplied by `scale`; single arrivals
// keep their number, and their times are divided by it.
class Arrivals {
 public:
  Arrivals(Trace trace, Gaps gaps, double scale, uint64_t seed);
  std::optional<double> next();

 private:
  Trace trace_;
  Gaps gaps_;
  double scale_;
  PhiloxStream random_;
  bool first_ = true;
  size_t at_ = 0;     // span or arrival
  double begin_ = 0;  // of the span
  double used_ = 0;   // seconds of the span that have passed
};

}  // namespace trireme::serve
