#pragma once
// A scripted process on a clock that stands still: for tests.
#include <algorithm>
#include <map>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/base/process.h"

namespace trireme::deploy {

struct Script {
  std::vector<std::pair<double, std::string>> lines;  // seconds after the start, text
  double ends_after = 1e9;                            // seconds
  int exit_code = 0;
  std::string last_error;
};

class FakeProcess : public Process {
 public:
  FakeProcess(Script script, FakeClock& clock)
      : script_(std::move(script)), clock_(clock), start_(clock.now()) {}
  Event next_line(std::string& line, Deadline deadline) override {
    const bool has_line = next_ < script_.lines.size() && !stopped;
    const double seconds = has_line ? script_.lines[next_].first : script_.ends_after;
    const auto at = start_ + std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
    if (stopped) return Event::end;
    if (at > deadline.at) {
      go_to(deadline.at);
      return Event::timeout;
    }
    go_to(at);
    if (!has_line) return Event::end;
    line = script_.lines[next_++].second;
    return Event::line;
  }
  void stop(double) override { stopped = true; }
  bool finish(Deadline deadline) override {
    const auto at = start_ + std::chrono::nanoseconds(static_cast<int64_t>(script_.ends_after * 1e9));
    go_to(std::min(at, deadline.at));
    return at <= deadline.at;
  }
  int exit_code() override { return stopped ? 143 : script_.exit_code; }
  std::string last_error() override { return script_.last_error; }
  bool stopped = false;

 private:
  void go_to(Clock::Nanoseconds at) {
    if (at > clock_.now()) clock_.advance(at - clock_.now());
  }
  Script script_;
  FakeClock& clock_;
  Clock::Nanoseconds start_;
  size_t next_ = 0;
};

// Starts the script whose key is found in the words; remembers them.
class FakeProcesses : public Processes {
 public:
  explicit FakeProcesses(FakeClock& clock) : clock_(clock) {}
  std::unique_ptr<Process> start(const std::vector<std::string>& words) override {
    std::string all;
    for (const auto& word : words) all += (all.empty() ? "" : " ") + word;
    started.push_back(all);
    for (const auto& [key, script] : scripts)
      if (all.find(key) != std::string::npos) return std::make_unique<FakeProcess>(script, clock_);
    fail(ErrorCode::usage, "cannot run ", words[0]);
  }
  void cancel() override {}
  std::map<std::string, Script> scripts;
  std::vector<std::string> started;

 private:
  FakeClock& clock_;
};

}  // namespace trireme::deploy
