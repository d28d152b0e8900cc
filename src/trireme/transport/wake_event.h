#pragma once
// One wake-up for a thread that sleeps in poll or epoll, from any thread.
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::transport {

class WakeEvent {
 public:
  WakeEvent() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (fd_ < 0) fail(ErrorCode::io, "eventfd: ", std::strerror(errno));
  }
  ~WakeEvent() { close(fd_); }
  WakeEvent(const WakeEvent&) = delete;
  WakeEvent& operator=(const WakeEvent&) = delete;
  int fd() const { return fd_; }
  void set() {
    if (set_.exchange(true)) return;
    const uint64_t one = 1;
    [[maybe_unused]] const auto written = write(fd_, &one, sizeof one);  // cannot fail below 2^64 - 1 events
  }
  bool take() { return set_.exchange(false); }
  // After the descriptor woke the sleeper. The flag is the truth and the descriptor only a bell: at worst it
  // rings in vain.
  void drain() {
    uint64_t count = 0;
    [[maybe_unused]] const auto got = read(fd_, &count, sizeof count);
  }

 private:
  int fd_;
  std::atomic<bool> set_ = false;
};

}  // namespace trireme::transport
