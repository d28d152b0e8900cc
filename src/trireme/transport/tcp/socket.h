#pragma once
// Sockets as owned values. IPv4; non-blocking; closed on exec.
#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"

namespace trireme::transport::tcp {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

struct Address {    // of a socket
  uint32_t ip = 0;  // host order; 0: any
  uint16_t port = 0;
  bool operator==(const Address&) const = default;
};
std::string to_text(const Address& address);  // "10.0.0.1:4711"
std::optional<Address> parse_address(std::string_view text);
// The IPv4 addresses of a host name or number; empty when there are none.
std::vector<uint32_t> resolve(const std::string& host);

inline constexpr uint32_t kLoopback = 0x7f000001;

// Listens at `address`, on that interface alone where one is named and the system permits it. Error(io).
Fd listen_at(const Address& address, const std::string& interface_name = "");
Address address_of(const Fd& socket);
// A connection that is being made: writable when it is done, error_of() then says how it went. Failure when
// it cannot even begin.
Result<Fd> begin_connect(const Address& to, uint32_t from_ip = 0, const std::string& interface_name = "");
// The pending error of a socket as text; empty: none.
std::string error_of(const Fd& socket);
struct Accepted {
  Fd socket;
  Address from;
};
// A waiting connection; nothing when there is none, or no descriptor is free for it.
std::optional<Accepted> accept_from(const Fd& listener);

// Reads or writes as much as goes at once: bytes, 0 when it would block. Failure when the connection is over.
Result<size_t> read_some(const Fd& socket, std::span<std::byte> into);
Result<size_t> write_some(const Fd& socket, std::span<const std::byte> bytes);

}  // namespace trireme::transport::tcp
