#include "stop_signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "trireme/base/error.h"

namespace trireme::app {
namespace {

[[noreturn]] void end_by(int signal) {
  ::signal(signal, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

}  // namespace

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  return set;
}

StopWatch::StopWatch(std::function<bool(int)> on_stop) : on_stop_(std::move(on_stop)) {
  const sigset_t set = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC);
  ended_ = ::eventfd(0, EFD_CLOEXEC);
  TRIREME_CHECK(signals_ >= 0 && ended_ >= 0, "no file descriptors left");
  thread_ = std::thread([this] { watch(); });
}

StopWatch::~StopWatch() {
  ::eventfd_write(ended_, 1);
  thread_.join();
  ::close(signals_);
  ::close(ended_);
  const sigset_t set = stop_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void StopWatch::watch() {
  bool stopping = false;
  while (true) {
    pollfd waits[] = {{signals_, POLLIN, 0}, {ended_, POLLIN, 0}};
    if (::poll(waits, 2, -1) < 0 && errno != EINTR) return;
    if (waits[1].revents != 0) return;
    signalfd_siginfo info;
    if (waits[0].revents == 0 || ::read(signals_, &info, sizeof info) != sizeof info) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    if (stopping || !on_stop_(signal)) end_by(signal);
    stopping = true;
  }
}

}  // namespace trireme::app
