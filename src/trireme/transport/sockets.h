#pragma once
// TCP sockets without exceptions for what the other side does. All are non-blocking and close-on-exec.
#include <netdb.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/clock.h"

namespace trireme::transport {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Listens on `port` (0: a free one) of the loopback interface or of all, over IPv6 and IPv4 where both are.
// Error(io) naming the port when it is taken.
Socket listen_on(int port, bool loopback_only);
int port_of(const Socket& socket);
// Empty when nobody waits. errno stays that of accept().
Socket accept_from(const Socket& listener);
// Empty, with `problem` filled, when nobody answers before the deadline.
Socket connect_to(const std::string& host, int port, Deadline deadline, std::string& problem);
// "10.0.0.9:41234", of the other side.
std::string peer_of(const Socket& socket);

enum class Io { done, again, closed };
// Appends what is there to `into`.
Io read_some(const Socket& socket, std::string& into);
// Sends the beginning of `out` and removes it.
Io write_some(const Socket& socket, std::string& out);

// Waits until `fd` is ready for `events` (POLLIN, POLLOUT); false at the deadline.
bool wait_for(int fd, short events, Deadline deadline);
// What poll() takes: milliseconds until then, rounded up, 0 when it has passed.
int poll_timeout(Deadline deadline);

}  // namespace trireme::transport
