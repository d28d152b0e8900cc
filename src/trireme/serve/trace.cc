#include "trireme/serve/trace.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme::serve {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Days since 1970-01-01 in the proleptic Gregorian calendar.
int64_t days_of(int64_t year, int64_t month, int64_t day) {
  const std::chrono::sys_days days = std::chrono::year(static_cast<int>(year)) /
                                     std::chrono::month(static_cast<unsigned>(month)) /
                                     std::chrono::day(static_cast<unsigned>(day));
  return days.time_since_epoch().count();
}

// "2023-11-16 18:17:03.97996" as seconds.
std::optional<double> timestamp(std::string_view text) {
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[13] != ':' || text[16] != ':')
    return std::nullopt;
  const auto year = number<int64_t>(text.substr(0, 4)), month = number<int64_t>(text.substr(5, 2)),
             day = number<int64_t>(text.substr(8, 2)), hour = number<int64_t>(text.substr(11, 2)),
             minute = number<int64_t>(text.substr(14, 2));
  const auto second = number<double>(text.substr(17));
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  return static_cast<double>(days_of(*year, *month, *day) * 86400 + *hour * 3600 + *minute * 60) + *second;
}

// Columns of a trace, by their names in the head line.
class TraceReader {
 public:
  TraceReader(std::string_view head, const std::filesystem::path& path) : path_(path) {
    const auto names = split(head, ',');
    const auto find = [&](std::string_view name) -> std::optional<size_t> {
      const auto found = std::ranges::find(names, name);
      if (found == names.end()) return std::nullopt;
      return static_cast<size_t>(found - names.begin());
    };
    requests_ = find("requests");
    const auto minute = find("minute"), second = find("second");
    time_ = minute ? minute : second;
    step_s_ = minute ? 60 : 1;
    if (const auto stamp = find("TIMESTAMP")) {
      time_ = stamp;
      single_ = true;
    }
    if (!time_ || (!single_ && !requests_))
      fail(ErrorCode::input, path_.string(),
           ":1: the head line must name the columns minute,requests or second,requests, or TIMESTAMP");
  }

  void line(std::string_view text, size_t line_number, Trace& trace) {
    const auto cells = split(text, ',');
    const auto refuse = [&](const auto&... what) {
      fail(ErrorCode::input, path_.string(), ":", line_number, ": ", what...);
    };
    if (cells.size() <= std::max(*time_, requests_.value_or(0))) refuse("columns are missing");
    if (single_) {
      const auto at = timestamp(cells[*time_]);
      if (!at) refuse("'", cells[*time_], "' is not a time such as 2023-11-16 18:17:03.97");
      if (trace.arrivals.empty()) first_ = *at;
      if (!trace.arrivals.empty() && *at - first_ < trace.arrivals.back()) refuse("times must rise");
      trace.arrivals.push_back(*at - first_);
      return;
    }
    const auto at = number<int64_t>(cells[*time_]);
    const auto requests = number<double>(cells[*requests_]);
    if (!at || !requests || *requests < 0)
      refuse("'", text, "' does not hold a time and a number of requests");
    if (!trace.spans.empty() && *at != last_ + 1) refuse(*at, " does not follow ", last_);
    last_ = *at;
    trace.spans.push_back({step_s_, *requests});
  }

 private:
  std::filesystem::path path_;
  std::optional<size_t> time_, requests_;
  bool single_ = false;
  double step_s_ = 60, first_ = 0;
  int64_t last_ = 0;
};

}  // namespace

double Trace::seconds() const {
  double all = arrivals.empty() ? 0 : arrivals.back();
  for (const auto& span : spans) all += span.seconds;
  return all;
}

Trace parse_trace(std::string_view text, const std::filesystem::path& path) {
  Trace trace;
  std::optional<TraceReader> reader;
  size_t line_number = 0;
  for (auto line : split(text, '\n')) {
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (reader)
      reader->line(line, line_number, trace);
    else
      reader.emplace(line, path);
  }
  if (trace.spans.empty() && trace.arrivals.empty())
    fail(ErrorCode::input, path.string(), ": the trace is empty");
  return trace;
}

Trace read_trace(const std::filesystem::path& path) {
  return parse_trace(read_file(path), path);
}

Trace constant_rate(double requests_per_s, double seconds) {
  return {{{seconds, requests_per_s * seconds}}, {}};
}

Arrivals::Arrivals(Trace trace, Gaps gaps, double scale, uint64_t seed)
    : trace_(std::move(trace)), gaps_(gaps), scale_(scale), random_(seed, 0) {}

std::optional<double> Arrivals::next() {
  if (!trace_.arrivals.empty()) {
    if (at_ == trace_.arrivals.size()) return std::nullopt;
    return trace_.arrivals[at_++] / scale_;
  }
  // The integral of the rate up to the next arrival: exponential with mean 1, or 1. Even ones begin with a
  // half, so that they lie clear of the ends of spans, where rounding would decide.
  double left = gaps_ == Gaps::exponential ? -std::log1p(-random_.next_double()) : first_ ? 0.5 : 1;
  first_ = false;
  for (; at_ < trace_.spans.size(); ++at_) {
    const auto& span = trace_.spans[at_];
    const double rate = scale_ * span.requests / span.seconds;
    const double gap = rate > 0 ? left / rate : span.seconds;
    if (rate > 0 && used_ + gap <= span.seconds) {
      used_ += gap;
      return begin_ + used_;
    }
    left -= rate * (span.seconds - used_);
    begin_ += span.seconds;
    used_ = 0;
  }
  return std::nullopt;
}

}  // namespace trireme::serve
