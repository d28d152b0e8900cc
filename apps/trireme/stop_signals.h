#pragma once
// SIGINT, SIGTERM and SIGHUP without handlers: they are blocked in all threads and read where they are waited
// for.
#include <csignal>
#include <functional>
#include <thread>

namespace trireme::app {

// Those of the three that were not ignored when the program started (nohup ignores SIGHUP).
sigset_t stop_signals();

// A thread that waits for stop signals. Make it before any other thread exists, because later ones inherit
// the mask.
class StopWatch {
 public:
  // `on_stop` runs in the watching thread for the first signal and says whether the program will now stop by
  // itself. If it will not, and at a second signal, the process ends as if it were not watched.
  explicit StopWatch(std::function<bool(int signal)> on_stop);
  ~StopWatch();
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

 private:
  void watch();
  std::function<bool(int)> on_stop_;
  int signals_ = -1, ended_ = -1;  // signalfd, eventfd
  std::thread thread_;
};

}  // namespace trireme::app
