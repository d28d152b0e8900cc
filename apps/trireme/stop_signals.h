#pragma once
// SIGINT, SIGTERM and SIGHUP without handlers: they are blocked in all threads and read where they are waited
// for.
#include <atomic>
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
  // `on_stop` runs in the watching thread for the first signal after graceful(); a signal before that, or a
  // second one, ends the process as if it were not watched.
  explicit StopWatch(std::function<void(int signal)> on_stop);
  ~StopWatch();
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;
  void graceful() { graceful_ = true; }

 private:
  void watch();
  std::function<void(int)> on_stop_;
  std::atomic<bool> graceful_{false};
  int signals_ = -1, ended_ = -1;  // signalfd, eventfd
  std::thread thread_;
};

}  // namespace trireme::app
