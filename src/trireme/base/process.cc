#include "trireme/base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr size_t kLongestLine = 1 << 16, kKeptError = 1 << 12;

[[noreturn]] void fail_errno(const char* doing) {
  fail(ErrorCode::io, "cannot ", doing, ": ", std::strerror(errno));
}

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Descriptor() { close(); }
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

std::array<Descriptor, 2> make_pipe() {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("open a pipe");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

class SystemProcess : public Process {
 public:
  SystemProcess(const std::vector<std::string>& words, int cancel) : cancel_(cancel) {
    TRIREME_CHECK(!words.empty());
    auto out = make_pipe(), err = make_pipe(), failure = make_pipe();
    std::vector<char*> argv;
    for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const pid_t parent = ::getpid();
    child_ = ::fork();
    if (child_ < 0) fail_errno("start a process");
    if (child_ == 0) become(parent, argv.data(), out[1].get(), err[1].get(), failure[1].get());
    ::setpgid(child_, child_);  // also here: a stop may come before the child's own call
    failure[1].close();
    int error = 0;
    if (::read(failure[0].get(), &error, sizeof error) == sizeof error) {
      ::waitpid(child_, nullptr, 0);
      child_ = -1;
      fail(ErrorCode::usage, "cannot run ", words[0], ": ", std::strerror(error));
    }
    ended_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, child_, 0)));
    if (!ended_.open()) fail_errno("watch a process");
    out_ = std::move(out[0]);
    err_ = std::move(err[0]);
    for (const auto* fd : {&out_, &err_}) ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
  }

  ~SystemProcess() override {
    if (child_ > 0) kill_group(SIGKILL);
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
  }

  Event next_line(std::string& line, Deadline deadline) override {
    for (;;) {
      if (take_line(line)) return Event::line;
      if (child_ < 0 && !out_.open()) return Event::end;
      if (!wait(deadline, true)) return cancelled_ ? Event::cancelled : Event::timeout;
    }
  }

  void stop(double grace_seconds) override {
    if (child_ > 0) kill_group(SIGTERM);
    const auto kill_at = Deadline::after(steady_clock(), grace_seconds);
    while (child_ > 0 && wait(kill_at, false)) continue;
    if (child_ < 0) return;
    kill_group(SIGKILL);
    while (child_ > 0) wait(Deadline::after(steady_clock(), 1), false);
  }

  bool finish(Deadline deadline) override {
    while (child_ > 0 && wait(deadline, false)) continue;
    return child_ < 0;
  }

  int exit_code() override { return exit_code_; }
  std::string last_error() override { return error_; }

 private:
  [[noreturn]] static void become(pid_t parent, char** argv, int out, int err, int failure) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::setpgid(0, 0);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    ::execvp(argv[0], argv);
    const int error = errno;
    if (::write(failure, &error, sizeof error) < 0) ::_exit(126);
    ::_exit(127);
  }

  void kill_group(int signal) { ::kill(-child_, signal); }

  // Sleeps until something happened, and takes it in. False at the deadline or, if `heed` it, after a cancel.
  bool wait(Deadline deadline, bool heed) {
    std::vector<pollfd> waits;
    if (heed) waits.push_back({cancel_, POLLIN, 0});
    if (child_ > 0) waits.push_back({ended_.get(), POLLIN, 0});
    for (const auto* fd : {&out_, &err_})
      if (fd->open()) waits.push_back({fd->get(), POLLIN, 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.at - steady_clock().now());
    const int timeout = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
    const int ready = ::poll(waits.data(), waits.size(), timeout);
    if (ready < 0 && errno != EINTR) fail_errno("wait for a process");
    if (heed && ready > 0 && waits[0].revents != 0) {
      cancelled_ = true;
      return false;
    }
    if (ready == 0) return false;
    drain(out_, pending_, 0);
    drain(err_, error_, kKeptError);
    reap();
    return true;
  }

  // A process that ended may leave a grandchild holding the pipe: what it says is not waited for.
  void reap() {
    int status = 0;
    if (child_ <= 0 || ::waitpid(child_, &status, WNOHANG) != child_) return;
    child_ = -1;
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    drain(out_, pending_, 0);
    drain(err_, error_, kKeptError);
    out_.close();
    err_.close();
  }

  static void drain(Descriptor& from, std::string& into, size_t keep) {
    std::array<char, 65536> chunk;
    while (from.open()) {
      const ssize_t n = ::read(from.get(), chunk.data(), chunk.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) return from.close();
      into.append(chunk.data(), static_cast<size_t>(n));
      if (keep > 0 && into.size() > keep) into.erase(0, into.size() - keep);
    }
  }

  bool take_line(std::string& line) {
    const auto end = pending_.find('\n');
    const bool last = child_ < 0 && !out_.open() && !pending_.empty();
    if (end == std::string::npos && !last && pending_.size() < kLongestLine) return false;
    line = pending_.substr(0, end);
    pending_.erase(0, end == std::string::npos ? pending_.size() : end + 1);
    return true;
  }

  int cancel_;
  pid_t child_ = -1;  // -1 after it was reaped
  Descriptor ended_, out_, err_;
  std::string pending_, error_;
  int exit_code_ = 0;
  bool cancelled_ = false;
};

class SystemProcesses : public Processes {
 public:
  SystemProcesses() : cancel_(::eventfd(0, EFD_CLOEXEC)) {
    if (!cancel_.open()) fail_errno("make an event");
  }
  std::unique_ptr<Process> start(const std::vector<std::string>& words) override {
    return std::make_unique<SystemProcess>(words, cancel_.get());
  }
  void cancel() override { ::eventfd_write(cancel_.get(), 1); }

 private:
  Descriptor cancel_;
};

}  // namespace

std::unique_ptr<Processes> system_processes() {
  return std::make_unique<SystemProcesses>();
}

}  // namespace trireme
