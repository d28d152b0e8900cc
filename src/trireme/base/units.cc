#include "trireme/base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <span>

#include "trireme/base/error.h"

namespace trireme {
namespace {

struct Scale {
  std::string_view suffix;
  double factor;
};

constexpr std::array<Scale, 10> kSizes{{{"", 1},
                                        {"B", 1},
                                        {"kB", 1e3},
                                        {"MB", 1e6},
                                        {"GB", 1e9},
                                        {"TB", 1e12},
                                        {"KiB", 0x1p10},
                                        {"MiB", 0x1p20},
                                        {"GiB", 0x1p30},
                                        {"TiB", 0x1p40}}};
constexpr std::array<Scale, 4> kBits{
    {{"bit", 1. / 8}, {"kbit", 1e3 / 8}, {"mbit", 1e6 / 8}, {"gbit", 1e9 / 8}}};
constexpr std::array<Scale, 4> kTimes{{{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}}};

constexpr std::string_view kSizeSpellings =
    "a number of bytes, or one with kB, MB, GB, TB, KiB, MiB, GiB or TiB";
constexpr std::string_view kRateSpellings =
    "kbit, mbit or gbit per second, or a size per second such as 100MB";
constexpr std::string_view kTimeSpellings = "a number of seconds, or one with us, ms or s";

const Scale* find_scale(std::span<const Scale> scales, std::string_view suffix) {
  for (const auto& scale : scales) {
    if (scale.suffix == suffix) return &scale;
  }
  return nullptr;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// The value in base units, or nothing when the text is not a finite non-negative number with one of the
// suffixes.
bool parse_scaled(std::string_view text, std::span<const Scale> scales, double& value) {
  text = trimmed(text);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) return false;
  const auto suffix = trimmed(text.substr(static_cast<size_t>(end - text.data())));
  const Scale* scale = find_scale(scales, suffix);
  if (scale == nullptr) return false;
  // Dividing by the exact reciprocal rounds once: 0.2ms is then the same double as 0.0002.
  value = scale->factor < 1 ? number / std::round(1 / scale->factor) : number * scale->factor;
  return std::isfinite(value);
}

std::string shortest(double value) {
  std::array<char, 32> text;
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), result.ptr};
}

std::string three_digits(double value) {
  std::array<char, 32> text;
  // %g would turn 1234 into 1.23e+03.
  const int whole = value < 1 ? 1 : static_cast<int>(std::floor(std::log10(value) + 1e-12)) + 1;
  const int length = std::snprintf(text.data(), text.size(), "%.*f", std::max(0, 3 - whole), value);
  return {text.data(), static_cast<size_t>(length)};
}

struct Step {
  double from;
  const char* unit;
};

// Counted in the largest step that leaves at least 1, taken at the value's three-digit rounding: 999.9 kB
// is 1.00 MB.
std::string in_steps(double value, std::span<const Step> largest_first) {
  for (const auto& step : largest_first) {
    if (value >= step.from * 0.9995) return three_digits(value / step.from) + " " + step.unit;
  }
  const auto& last = largest_first.back();
  return (value == 0 ? "0" : shortest(value / last.from)) + " " + last.unit;
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  const auto plain = trimmed(text);
  int64_t whole = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), whole);
  if (error == std::errc{} && end == plain.data() + plain.size() && whole >= 0) return {whole};
  double value = 0;
  if (!parse_scaled(text, kSizes, value) || value >= 0x1p63 || value != std::floor(value)) {
    fail(ErrorCode::usage, "'", text, "' is not a size: write ", kSizeSpellings);
  }
  return {static_cast<int64_t>(value)};
}

Rate parse_rate(std::string_view text) {
  double value = 0;
  if (!parse_scaled(text, kBits, value) && !parse_scaled(text, kSizes, value)) {
    fail(ErrorCode::usage, "'", text, "' is not a rate: write ", kRateSpellings);
  }
  return {value};
}

Seconds parse_seconds(std::string_view text) {
  double value = 0;
  if (!parse_scaled(text, kTimes, value)) {
    fail(ErrorCode::usage, "'", text, "' is not a time: write ", kTimeSpellings);
  }
  return {value};
}

std::string to_text(Bytes value) {
  for (const char* suffix : {"GiB", "MiB", "KiB", "GB", "MB", "kB"}) {
    const auto factor = static_cast<int64_t>(find_scale(kSizes, suffix)->factor);
    if (value.value != 0 && value.value % factor == 0) return std::to_string(value.value / factor) + suffix;
  }
  return std::to_string(value.value);
}

std::string to_text(Rate value) {
  for (const char* suffix : {"gbit", "mbit", "kbit"}) {
    const double count = value.bytes_per_second / find_scale(kBits, suffix)->factor;
    const auto text = shortest(count) + suffix;
    if (count >= 1 && parse_rate(text) == value) return text;
  }
  return shortest(value.bytes_per_second);
}

std::string to_text(Seconds value) {
  for (const auto& [from, suffix] : {std::pair{1e-3, "ms"}, std::pair{1e-6, "us"}}) {
    const double count = std::round(value.value / from);
    const auto text = shortest(count) + suffix;
    if (value.value < 1 && count >= 1 && parse_seconds(text) == value) return text;
  }
  return shortest(value.value);
}

std::string for_people(Bytes value) {
  static constexpr Step steps[] = {{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}, {1, "B"}};
  if (value.value < 1000) return std::to_string(value.value) + " B";
  return in_steps(static_cast<double>(value.value), steps);
}

std::string for_people(Rate value) {
  static constexpr Step steps[] = {{1e9, "Gbit/s"}, {1e6, "Mbit/s"}, {1e3, "kbit/s"}, {1, "bit/s"}};
  return in_steps(value.bytes_per_second * 8, steps);
}

std::string for_people(Seconds value) {
  static constexpr Step steps[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
  return in_steps(value.value, steps);
}

}  // namespace trireme
