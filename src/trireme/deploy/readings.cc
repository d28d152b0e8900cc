#include "trireme/deploy/readings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/spec/json_guard.h"

namespace trireme::deploy {
namespace {

constexpr std::string_view kKey = "samples_per_s";

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t' || s.back() == '\r')) s.remove_suffix(1);
  return s;
}

// A number at the front of the text; `whole`: and nothing behind it.
std::optional<double> number_at(std::string_view text, bool whole) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || (whole && end != text.data() + text.size())) return std::nullopt;
  return value;
}

std::optional<Reading> from_json(std::string_view line) {
  const auto in = nlohmann::json::parse(line, nullptr, false);
  if (!in.is_object() || !in.contains(kKey)) return std::nullopt;
  const auto field = [&](const char* key) -> std::optional<double> {
    const auto found = in.find(key);
    if (found == in.end() || found->is_null()) return std::nullopt;
    return found->is_number() ? found->get<double>() : std::nan("");
  };
  return Reading{field("samples_per_s").value_or(std::nan("")), field("relative_sd"), field("minutes")};
}

// Student's t for 95 % two-sided bounds.
double t_quantile(size_t degrees) {
  constexpr std::array<double, 10> kSmall{12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23};
  return degrees <= kSmall.size() ? kSmall[degrees - 1] : 1.96 + 2.7 / static_cast<double>(degrees);
}

}  // namespace

std::optional<Reading> parse_reading(std::string_view line) {
  line = trimmed(line);
  if (const auto value = number_at(line, true)) return Reading{*value, {}, {}};
  if (line.starts_with('{')) {
    spec::check_json_depth(line);
    return from_json(line);
  }
  const auto at = line.find(kKey);
  if (at == std::string_view::npos) return std::nullopt;
  auto rest = trimmed(line.substr(at + kKey.size()));
  if (rest.empty() || (rest.front() != '=' && rest.front() != ':')) return std::nullopt;
  rest.remove_prefix(1);
  return Reading{number_at(trimmed(rest), false).value_or(std::nan("")), {}, {}};
}

SpeedEstimate estimate(const std::vector<double>& readings) {
  SpeedEstimate out{.low = 0, .high = std::numeric_limits<double>::infinity()};
  if (readings.empty()) return out;
  const size_t skip = readings.size() >= 3 ? 1 : 0, count = readings.size() - skip;
  double mean = 0, square = 0;
  for (size_t i = skip; i < readings.size(); ++i) mean += readings[i] / static_cast<double>(count);
  out.samples_per_s = mean;
  if (count < 2) return out;
  for (size_t i = skip; i < readings.size(); ++i) square += (readings[i] - mean) * (readings[i] - mean);
  const double error = std::sqrt(square / static_cast<double>(count - 1) / static_cast<double>(count));
  out.relative_sd = error / mean;
  if (readings.size() < 3) return out;
  out.low = std::max(0.0, mean - t_quantile(count - 1) * error);
  out.high = mean + t_quantile(count - 1) * error;
  return out;
}

Verdict judge(const SpeedEstimate& speed, double needed, double precision, bool planned_time_over) {
  if (std::isinf(speed.high)) return Verdict::go_on;
  const bool precise = speed.high - speed.samples_per_s <= precision * speed.samples_per_s;
  if (needed > 0 && speed.high < needed) return Verdict::too_slow;
  if (needed > 0 && speed.low > needed && precise) return Verdict::fast_enough;
  return planned_time_over && precise ? Verdict::precise : Verdict::go_on;
}

}  // namespace trireme::deploy
