#pragma once
// The progress line: redrawn in place on a terminal, else plain lines, at most one in two seconds and the
// last.
#include <cstdint>
#include <ostream>

#include "trireme/base/clock.h"

namespace trireme::train {

class Progress {
 public:
  Progress(std::ostream& out, const Clock& clock, bool terminal, int64_t first_step, int64_t last_step);
  // Ends the redrawn line, so that what follows starts on its own.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // `samples` of the whole run and `bytes` sent and received by this rank, both of this step.
  void step(int64_t step, double loss, int64_t samples, int64_t bytes);

 private:
  void print(int64_t step, double loss);
  double since(Clock::Nanoseconds begin) const;

  std::ostream& out_;
  const Clock& clock_;
  bool terminal_;
  int64_t first_step_, last_step_;
  Clock::Nanoseconds start_, printed_;
  int64_t samples_ = 0, bytes_ = 0;  // since the last line
  bool any_ = false;
};

}  // namespace trireme::train
