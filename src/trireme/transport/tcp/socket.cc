#include "trireme/transport/tcp/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

namespace trireme::transport::tcp {
namespace {

constexpr int kBacklog = 4096;

sockaddr_in to_system(const Address& address) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_addr.s_addr = htonl(address.ip);
  out.sin_port = htons(address.port);
  return out;
}

Address from_system(const sockaddr_in& address) {
  return {ntohl(address.sin_addr.s_addr), ntohs(address.sin_port)};
}

void set(const Fd& socket, int level, int option, int value) {
  setsockopt(socket.get(), level, option, &value, sizeof value);
}

Fd make_socket(const std::string& interface_name) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) fail(ErrorCode::io, "cannot open a socket: ", std::strerror(errno));
  // Where this is not permitted, the interface's address must do.
  if (!interface_name.empty()) {
    setsockopt(socket.get(), SOL_SOCKET, SO_BINDTODEVICE, interface_name.data(),
               static_cast<socklen_t>(interface_name.size()));
  }
  return socket;
}

int bind_to(const Fd& socket, const Address& address) {
  const sockaddr_in at = to_system(address);
  return bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at);
}

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int Fd::release() {
  return std::exchange(fd_, -1);
}

void Fd::reset() {
  if (fd_ >= 0) close(release());
}

std::string to_text(const Address& address) {
  char text[INET_ADDRSTRLEN];
  const in_addr ip{htonl(address.ip)};
  inet_ntop(AF_INET, &ip, text, sizeof text);
  return cat(text, ":", address.port);
}

std::optional<Address> parse_address(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  Address address;
  in_addr ip{};
  if (inet_pton(AF_INET, std::string(text.substr(0, colon)).c_str(), &ip) != 1) return std::nullopt;
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc{} || end != port.data() + port.size()) return std::nullopt;
  address.ip = ntohl(ip.s_addr);
  return address;
}

std::vector<uint32_t> resolve(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<uint32_t> ips;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    ips.push_back(from_system(*reinterpret_cast<const sockaddr_in*>(a->ai_addr)).ip);
  }
  return ips;
}

Fd listen_at(const Address& address, const std::string& interface_name) {
  Fd socket = make_socket(interface_name);
  set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind_to(socket, address) != 0 || listen(socket.get(), kBacklog) != 0) {
    fail(ErrorCode::io, "cannot listen at ", to_text(address), ": ", std::strerror(errno));
  }
  return socket;
}

Address address_of(const Fd& socket) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    fail(ErrorCode::io, "a socket's address: ", std::strerror(errno));
  }
  return from_system(address);
}

Result<Fd> begin_connect(const Address& to, uint32_t from_ip, const std::string& interface_name) {
  Fd socket = make_socket(interface_name);
  if (from_ip != 0 && bind_to(socket, {from_ip, 0}) != 0) {
    return Failure{ErrorCode::io,
                   cat("cannot connect from ", to_text({from_ip, 0}), ": ", std::strerror(errno))};
  }
  const sockaddr_in at = to_system(to);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 && errno != EINPROGRESS) {
    return Failure{ErrorCode::io, std::strerror(errno)};
  }
  return socket;
}

std::string error_of(const Fd& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? "" : std::strerror(error);
}

std::optional<Accepted> accept_from(const Fd& listener) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  Fd socket(
      accept4(listener.get(), reinterpret_cast<sockaddr*>(&address), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return std::nullopt;
  return Accepted{std::move(socket), from_system(address)};
}

Result<size_t> read_some(const Fd& socket, std::span<std::byte> into) {
  const ssize_t n = recv(socket.get(), into.data(), into.size(), 0);
  if (n > 0) return static_cast<size_t>(n);
  if (n < 0 && would_block()) return size_t{0};
  return Failure{ErrorCode::peer_lost, n == 0 ? "it closed the connection" : std::strerror(errno)};
}

Result<size_t> write_some(const Fd& socket, std::span<const std::byte> bytes) {
  const ssize_t n = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (n >= 0) return static_cast<size_t>(n);
  if (would_block()) return size_t{0};
  return Failure{ErrorCode::peer_lost, std::strerror(errno)};
}

}  // namespace trireme::transport::tcp
