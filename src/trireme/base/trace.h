#pragma once
// Spans of a run, written as a Chrome trace (opens in Perfetto). Thread-safe; a null Tracer* costs one
// branch.
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/base/clock.h"

namespace trireme {

class Tracer {
 public:
  explicit Tracer(const Clock& clock, int rank = 0, size_t max_events = 200'000)
      : clock_(clock), rank_(rank), max_events_(max_events) {}
  // A finished span on a named lane ("main", "compute", "communication").
  void add(std::string lane, std::string name, Clock::Nanoseconds begin, Clock::Nanoseconds end);
  const Clock& clock() const { return clock_; }
  // {"traceEvents": [...]}: complete events, microseconds. Events past max_events are counted, not kept.
  std::string to_json() const;

 private:
  struct Event {
    std::string lane, name;
    Clock::Nanoseconds begin, end;
  };
  const Clock& clock_;
  int rank_;
  size_t max_events_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  size_t dropped_ = 0;
};

// Adds a span from construction to destruction.
class Span {
 public:
  Span(Tracer* tracer, const char* lane, std::string name) : tracer_(tracer), lane_(lane) {
    if (tracer_ != nullptr) {
      name_ = std::move(name);
      begin_ = tracer_->clock().now();
    }
  }
  ~Span() {
    if (tracer_ != nullptr) tracer_->add(lane_, std::move(name_), begin_, tracer_->clock().now());
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Tracer* tracer_;
  const char* lane_;
  std::string name_;
  Clock::Nanoseconds begin_{};
};

}  // namespace trireme
