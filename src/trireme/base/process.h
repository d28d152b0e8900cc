#pragma once
// Child processes as an interface, so that tests need none: started with words, read line by line, stopped.
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/clock.h"

namespace trireme {

class Process {
 public:
  enum class Event { line, end, timeout, cancelled };
  virtual ~Process() = default;
  // The next line of standard output without its newline; end once the process has ended and all lines were
  // read; timeout at the deadline; cancelled after Processes::cancel().
  virtual Event next_line(std::string& line, Deadline deadline) = 0;
  // SIGTERM to the process and those it started, SIGKILL after `grace_seconds`; returns when it has ended.
  // Lines it wrote meanwhile can still be read.
  virtual void stop(double grace_seconds) = 0;
  // Waits for the end whatever cancel() says, for work that must not be left half done; false at the
  // deadline.
  virtual bool finish(Deadline deadline) = 0;
  // After `end`, stop() or finish(): what the process returned, or 128 + the signal that ended it.
  virtual int exit_code() = 0;
  // The last lines it wrote to standard error, at most some kB: for messages.
  virtual std::string last_error() = 0;
};

class Processes {
 public:
  virtual ~Processes() = default;
  // words[0] is looked up on PATH. Error(usage) when it cannot be started. The process is stopped when the
  // value goes, and killed when this thread ends.
  virtual std::unique_ptr<Process> start(const std::vector<std::string>& words) = 0;
  // Ends every wait of next_line, now and later. Safe to call from any thread.
  virtual void cancel() = 0;
};

std::unique_ptr<Processes> system_processes();

}  // namespace trireme
