#include "trireme/transport/sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::transport {
namespace {

// Strangers may fill the queue faster than it is emptied.
constexpr int kBacklog = 1024;

void set(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

sockaddr_storage any_address(int family, int port, bool loopback_only, socklen_t& size) {
  sockaddr_storage storage{};
  if (family == AF_INET6) {
    auto& address = reinterpret_cast<sockaddr_in6&>(storage);
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<uint16_t>(port));
    address.sin6_addr = loopback_only ? in6addr_loopback : in6addr_any;
    size = sizeof address;
  } else {
    auto& address = reinterpret_cast<sockaddr_in&>(storage);
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
    size = sizeof address;
  }
  return storage;
}

Socket try_listen(int family, int port, bool loopback_only) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return {};
  set(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (family == AF_INET6) set(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  socklen_t size = 0;
  const auto address = any_address(family, port, loopback_only, size);
  if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return {};
  if (::listen(socket.fd(), kBacklog) != 0) return {};
  return socket;
}

bool finish_connect(const Socket& socket, Deadline deadline, std::string& problem) {
  if (!wait_for(socket.fd(), POLLOUT, deadline)) {
    problem = "no answer";
    return false;
  }
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) problem = std::strerror(error);
  return error == 0;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

Socket listen_on(int port, bool loopback_only) {
  // 127.0.0.1 is what local ranks are given, and ::1 does not answer there.
  if (!loopback_only) {
    if (Socket both = try_listen(AF_INET6, port, false)) return both;
  }
  if (Socket four = try_listen(AF_INET, port, loopback_only)) return four;
  if (errno == EADDRINUSE) {
    fail(ErrorCode::io, "port ", port,
         " is taken on this machine: end the program that holds it or set MASTER_PORT to a free one");
  }
  fail(ErrorCode::io, "cannot listen on port ", port, ": ", std::strerror(errno));
}

int port_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size);
  const bool six = address.ss_family == AF_INET6;
  return ntohs(six ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

Socket accept_from(const Socket& listener) {
  Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) set(socket.fd(), IPPROTO_TCP, TCP_NODELAY, 1);
  return socket;
}

Socket connect_to(const std::string& host, int port, Deadline deadline, std::string& problem) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    problem = ::gai_strerror(error);
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    Socket socket(::socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) continue;
    const bool at_once = ::connect(socket.fd(), a->ai_addr, a->ai_addrlen) == 0;
    if (!at_once && errno != EINPROGRESS) {
      problem = std::strerror(errno);
      continue;
    }
    if (!at_once && !finish_connect(socket, deadline, problem)) continue;
    set(socket.fd(), IPPROTO_TCP, TCP_NODELAY, 1);
    return socket;
  }
  return {};
}

std::string peer_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host.data(), host.size(), port.data(),
                    port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "somebody";
  }
  std::string_view text = host.data();
  if (text.starts_with("::ffff:")) text.remove_prefix(7);  // an IPv4 address on a socket for both
  return cat(text, ":", port.data());
}

Io read_some(const Socket& socket, std::string& into) {
  std::array<char, 16384> chunk;
  for (;;) {
    const ssize_t n = ::recv(socket.fd(), chunk.data(), chunk.size(), 0);
    if (n > 0) {
      into.append(chunk.data(), static_cast<size_t>(n));
      return Io::done;
    }
    if (n < 0 && errno == EINTR) continue;
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? Io::again : Io::closed;
  }
}

Io write_some(const Socket& socket, std::string& out) {
  while (!out.empty()) {
    const ssize_t n = ::send(socket.fd(), out.data(), out.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      out.erase(0, static_cast<size_t>(n));
      continue;
    }
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? Io::again : Io::closed;
  }
  return Io::done;
}

bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd wait{fd, events, 0};
    const int n = ::poll(&wait, 1, poll_timeout(deadline));
    if (n > 0) return true;
    if (n == 0 || errno != EINTR) return false;
  }
}

int poll_timeout(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.at - steady_clock().now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
}

}  // namespace trireme::transport
