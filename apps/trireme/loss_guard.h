#pragma once
// A rank that cannot end by itself after another one is lost, because it computes for long or a disk hangs.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "trireme/transport/rendezvous.h"

namespace trireme::app {

class LossGuard {
 public:
  // Once `rendezvous` reports a loss this process has `patience` to end, else `end` is called from the
  // guard's thread. Before, it names the loss, for those who wait. Destroyed in time, the guard does nothing.
  LossGuard(transport::Rendezvous& rendezvous, Seconds patience, std::function<void(const Failure&)> end);
  ~LossGuard();
  LossGuard(const LossGuard&) = delete;
  LossGuard& operator=(const LossGuard&) = delete;

 private:
  void guard();
  const Seconds patience_;
  const std::function<void(const Failure&)> end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Failure> why_;
  bool over_ = false;
  std::thread thread_;
  transport::Rendezvous::Watch watch_;  // last: it uses all of the above
};

}  // namespace trireme::app
