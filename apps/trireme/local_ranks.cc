#include "local_ranks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "stop_signals.h"
#include "trireme/base/clock.h"
#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace trireme::app {
namespace {

constexpr double kKillAfterSeconds = 10;
constexpr size_t kLongestLine = 1 << 16;

[[noreturn]] void fail_errno(std::string_view doing) {
  const int error = errno;
  fail(ErrorCode::io, "--nproc: cannot ", doing, ": ", std::strerror(error));
}

// A port that was free a moment ago; rank 0 opens it.
int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail_errno("open a socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(fd);
  if (!bound) fail_errno("find a free port on 127.0.0.1");
  return ntohs(address.sin_port);
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;  // a terminal that went away does not end the training
    text.remove_prefix(static_cast<size_t>(n));
  }
}

// One output stream of one rank: cuts it into lines.
struct Stream {
  int from = -1;  // non-blocking read end; -1 after its end
  int to = -1;
  std::string prefix;
  std::string pending;

  void forward() {
    std::array<char, 65536> chunk;
    while (from >= 0) {
      const ssize_t n = ::read(from, chunk.data(), chunk.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) return close();
      pending.append(chunk.data(), static_cast<size_t>(n));
      emit_lines();
    }
  }

  void close() {
    if (!pending.empty()) write_all(to, prefix + pending + "\n");
    pending.clear();
    if (from >= 0) ::close(from);
    from = -1;
  }

 private:
  void emit_lines() {
    size_t begin = 0;
    std::string out;
    for (size_t end; (end = pending.find('\n', begin)) != std::string::npos; begin = end + 1) {
      out += prefix + pending.substr(begin, end + 1 - begin);
    }
    pending.erase(0, begin);
    if (pending.size() > kLongestLine) out += prefix + std::exchange(pending, {}) + "\n";
    write_all(to, out);  // one write, so that lines of two ranks do not mix
  }
};

struct Rank {
  pid_t process = -1;  // -1 after it was reaped
  std::array<Stream, 2> streams;
};

class LocalRanks {
 public:
  explicit LocalRanks(const LocalJob& job) : job_(job), ranks_(static_cast<size_t>(job.plan.start_ranks)) {
    watched_ = stop_signals();
    sigaddset(&watched_, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &watched_, &mask_before_);
    signals_ = ::signalfd(-1, &watched_, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_ < 0) fail_errno("watch signals");
  }

  ~LocalRanks() {
    for (auto& rank : ranks_) {
      if (rank.process > 0) ::kill(rank.process, SIGKILL);
    }
    ::close(signals_);
    ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  }
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  int run() {
    for (int restarts = 0;; ++restarts) {
      const int code = run_once(restarts);
      const bool mends = code != 0 && code != exit_code(ErrorCode::usage) && !stopped_;
      if (!mends || restarts == job_.max_restarts) return code;
      log::warning(cat("starting all ranks again, restart ", restarts + 1, " of ", job_.max_restarts));
    }
  }

 private:
  int run_once(int restarts) {
    first_failure_.reset();
    kill_at_.reset();
    const int port = job_.plan.port > 0 ? job_.plan.port : free_port();
    for (size_t r = 0; r < ranks_.size(); ++r) start(static_cast<int>(r), port, restarts);
    while (alive() > 0) {
      wait_for_event();
      read_signals();
      reap();
      kill_late_ones();
    }
    for (auto& rank : ranks_) {
      for (auto& stream : rank.streams) {
        stream.forward();
        stream.close();  // a grandchild may still hold the other end; its output is not the run's
      }
    }
    return first_failure_.value_or(0);
  }

  size_t alive() const {
    return static_cast<size_t>(
        std::count_if(ranks_.begin(), ranks_.end(), [](auto& r) { return r.process > 0; }));
  }

  int number(size_t local_rank) const { return job_.plan.rank + static_cast<int>(local_rank); }

  void start(int local_rank, int port, int restarts) {
    const auto slot = static_cast<size_t>(local_rank);
    const auto environment = environment_with({{"RANK", std::to_string(number(slot))},
                                               {"WORLD_SIZE", std::to_string(job_.plan.world)},
                                               {"LOCAL_RANK", std::to_string(local_rank)},
                                               {"LOCAL_WORLD_SIZE", std::to_string(ranks_.size())},
                                               {"MASTER_ADDR", job_.plan.host},
                                               {"MASTER_PORT", std::to_string(port)},
                                               {kLocalLauncher, job_.plan.launcher},
                                               {kRestartCount, std::to_string(restarts)}});
    std::array<std::array<int, 2>, 2> pipes;
    for (auto& pipe : pipes) {
      if (::pipe2(pipe.data(), O_CLOEXEC) != 0) fail_errno("open a pipe");
    }
    // Everything that allocates happens before the fork; after it the child may only make system calls.
    std::vector<char*> argv{const_cast<char*>("trireme")}, envp;
    for (const auto& a : job_.arguments) argv.push_back(const_cast<char*>(a.c_str()));
    for (const auto& e : environment) envp.push_back(const_cast<char*>(e.c_str()));
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) fail_errno("start a process");
    if (child == 0) become_rank(parent, pipes, argv.data(), envp.data());

    auto& rank = ranks_[slot];
    rank.process = child;
    for (size_t i = 0; i < 2; ++i) {
      ::close(pipes[i][1]);
      ::fcntl(pipes[i][0], F_SETFL, O_NONBLOCK);
      rank.streams[i].from = pipes[i][0];
      rank.streams[i].to = i == 0 ? STDOUT_FILENO : STDERR_FILENO;
      rank.streams[i].prefix = cat("[rank ", number(slot), "] ");
    }
  }

  [[noreturn]] void become_rank(pid_t parent, const std::array<std::array<int, 2>, 2>& pipes, char** argv,
                                char** envp) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // the parent died before the line above
    // An own process group: a Ctrl-C reaches the parent alone, which forwards it once.
    ::setpgid(0, 0);
    ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, STDIN_FILENO);
    ::dup2(pipes[0][1], STDOUT_FILENO);
    ::dup2(pipes[1][1], STDERR_FILENO);
    ::execve("/proc/self/exe", argv, envp);
    ::_exit(127);
  }

  // Sleeps until a rank wrote, a signal came, or it is time to kill.
  void wait_for_event() {
    std::vector<pollfd> waits{{signals_, POLLIN, 0}};
    std::vector<Stream*> streams;
    for (auto& rank : ranks_) {
      for (auto& stream : rank.streams) {
        if (stream.from < 0) continue;
        waits.push_back({stream.from, POLLIN, 0});
        streams.push_back(&stream);
      }
    }
    int timeout_ms = -1;
    if (kill_at_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(kill_at_->at - steady_clock().now());
      timeout_ms = static_cast<int>(std::max<int64_t>(0, left.count()));
    }
    if (::poll(waits.data(), waits.size(), timeout_ms) <= 0) return;
    for (size_t i = 0; i < streams.size(); ++i) {
      if (waits[i + 1].revents != 0) streams[i]->forward();
    }
  }

  void read_signals() {
    signalfd_siginfo info;
    while (::read(signals_, &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;
      log::info(cat("SIG", ::sigabbrev_np(signal), ": forwarded to ", alive(), " ranks"));
      // A second one ends the ranks at once, and one that does not follow (it may be stopped) is killed.
      if (stopped_) kill_at_ = Deadline::after(steady_clock(), kKillAfterSeconds);
      stopped_ = true;
      send_all(signal);
    }
  }

  void reap() {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      int status = 0;
      if (ranks_[r].process <= 0 || ::waitpid(ranks_[r].process, &status, WNOHANG) != ranks_[r].process)
        continue;
      ranks_[r].process = -1;
      for (auto& stream : ranks_[r].streams) stream.forward();
      if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0)) on_failure(r, status);
    }
  }

  void on_failure(size_t rank, int status) {
    if (first_failure_) return;
    first_failure_ = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    // After a signal from outside all ranks end by themselves, each in its time: the last may be writing a
    // checkpoint.
    if (stopped_) return;
    const auto how = WIFEXITED(status) ? cat("ended with exit code ", WEXITSTATUS(status))
                                       : cat("was ended by SIG", ::sigabbrev_np(WTERMSIG(status)));
    log::error(cat("rank ", number(rank), " ", how, alive() > 0 ? "; stopping the others" : ""));
    send_all(SIGTERM);
    kill_at_ = Deadline::after(steady_clock(), kKillAfterSeconds);
  }

  void kill_late_ones() {
    if (!kill_at_ || steady_clock().now() < kill_at_->at) return;
    send_all(SIGKILL);
    kill_at_.reset();
  }

  void send_all(int signal) {
    for (auto& rank : ranks_) {
      if (rank.process > 0) ::kill(rank.process, signal);
    }
  }

  const LocalJob& job_;
  std::vector<Rank> ranks_;
  sigset_t watched_{}, mask_before_{};
  int signals_ = -1;
  bool stopped_ = false;
  std::optional<int> first_failure_;
  std::optional<Deadline> kill_at_;
};

}  // namespace

int run_local_ranks(const LocalJob& job) {
  return LocalRanks(job).run();
}

}  // namespace trireme::app
