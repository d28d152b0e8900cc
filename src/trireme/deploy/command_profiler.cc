#include "trireme/deploy/command_profiler.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme::deploy {
namespace {

std::string plain(double value) {
  std::string text = std::to_string(value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

bool safe_for_a_shell(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-+:/@").find(c) != std::string_view::npos;
  });
}

std::string value_of(const std::string& word, const ProbeRequest& request) {
  if (word == "instance") return request.deployment.instance;
  if (word == "nodes") return std::to_string(request.deployment.nodes);
  if (word == "minutes") return plain(request.planned_hours * 60);
  if (word == "usd_per_hour") return plain(request.usd_per_hour);
  if (word == "spot") return request.spot ? "true" : "false";
  fail(ErrorCode::usage, "{", word,
       "} in a command; there are {instance} {nodes} {minutes} {usd_per_hour} {spot}");
}

std::string last_line(const std::string& text) {
  const auto end = text.find_last_not_of("\n ");
  if (end == std::string::npos) return "";
  const auto begin = text.find_last_of('\n', end);
  return ": " + text.substr(begin == std::string::npos ? 0 : begin + 1,
                            end - (begin == std::string::npos ? 0 : begin + 1) + 1)
                    .substr(0, 200);
}

// One probe while it runs.
struct Watch {
  Process& process;
  const ProbeRequest& request;
  const WatchRules& rules;
  const Clock& clock;
  Clock::Nanoseconds start = clock.now();
  std::vector<double> speeds;
  std::optional<double> told_sd, told_minutes;
  std::string error;
  bool ended_early = false, stopped = false, cancelled = false;

  double hours() const { return std::chrono::duration<double>(clock.now() - start).count() / 3600; }

  // False when the line says that the probe can end.
  bool take(const std::string& line) {
    const auto reading = parse_reading(line);
    if (!reading) return true;
    if (!(std::isfinite(reading->samples_per_s) && reading->samples_per_s > 0)) {
      error = cat("no speed: \"", line.substr(0, 80), "\"");
      return false;
    }
    speeds.push_back(reading->samples_per_s);
    told_sd = reading->relative_sd;
    if (reading->minutes && *reading->minutes > 0 && std::isfinite(*reading->minutes))
      told_minutes = reading->minutes;
    const auto verdict = judge(estimate(speeds), rules.early_end ? request.needed_samples_per_s : 0,
                               rules.precision, hours() >= request.planned_hours);
    ended_early = verdict == Verdict::too_slow || verdict == Verdict::fast_enough;
    return verdict == Verdict::go_on;
  }

  void run() {
    const auto deadline = Deadline::after(clock, request.planned_hours * rules.longest * 3600);
    for (std::string line;;) {
      const auto event = process.next_line(line, deadline);
      if (event == Process::Event::end) return;
      if (event == Process::Event::line && take(line)) continue;
      cancelled = event == Process::Event::cancelled;
      if (event == Process::Event::timeout && speeds.empty())
        error = cat("no speed within ", plain(std::round(request.planned_hours * rules.longest * 6000) / 100),
                    " min");
      stopped = true;
      return process.stop(rules.grace_seconds);
    }
  }

  Measurement result() {
    const auto speed = estimate(speeds);
    Measurement m{.samples_per_s = speed.samples_per_s,
                  .relative_sd = told_sd && *told_sd >= 0 ? *told_sd : speed.relative_sd,
                  .hours = told_minutes ? *told_minutes / 60 : hours(),
                  .ended_early = ended_early,
                  .cancelled = cancelled,
                  .error = error};
    if (cancelled) {
      m.error = "stopped from outside";
    } else if (!stopped && process.exit_code() != 0) {
      m.error = cat("ended with exit code ", process.exit_code(), last_line(process.last_error()));
    } else if (m.error.empty() && speeds.empty()) {
      m.error = cat("printed no speed", last_line(process.last_error()));
    }
    return m;
  }
};

}  // namespace

std::string fill_command(const std::string& command, const ProbeRequest& request) {
  if (!safe_for_a_shell(request.deployment.instance))
    fail(ErrorCode::usage, "the type's name \"", request.deployment.instance,
         "\" cannot stand in a command: letters, digits and ._-+:/@ can");
  std::string out;
  for (size_t at = 0; at < command.size();) {
    const size_t end = command.find('}', at);
    const bool word = command[at] == '{' && end != std::string::npos && end > at + 1 &&
                      std::all_of(command.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                                  command.begin() + static_cast<std::ptrdiff_t>(end),
                                  [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; }) &&
                      (at == 0 || command[at - 1] != '$');  // ${variable} is the shell's
    if (!word) {
      out += command[at++];
      continue;
    }
    out += value_of(command.substr(at + 1, end - at - 1), request);
    at = end + 1;
  }
  return out;
}

Measurement watch(Process& process, const ProbeRequest& request, const WatchRules& rules,
                  const Clock& clock) {
  Watch watching{process, request, rules, clock};
  watching.run();
  return watching.result();
}

Measurement CommandProfiler::measure(const ProbeRequest& request) {
  const auto process = processes_.start({"/bin/sh", "-c", fill_command(command_, request)});
  return watch(*process, request, rules_, clock_);
}

}  // namespace trireme::deploy
