#pragma once
// Where a rank can be reached, as it publishes it in the store: "<host> <n> ip:port ip:port …". With
// interfaces named there are n of them, one address for each; else n is 0 and any address may serve.
#include <optional>
#include <string>
#include <vector>

#include "trireme/transport/interfaces.h"
#include "trireme/transport/tcp/socket.h"

namespace trireme::transport::tcp {

struct Places {
  std::string host;  // equal where 127.0.0.1 is the same place
  size_t interfaces = 0;
  std::vector<Address> addresses;
  bool operator==(const Places&) const = default;
};

std::string to_text(const Places& places);
std::optional<Places> parse_places(const std::string& text);

// This machine and its network namespace.
std::string host_name();
// All addresses at which a listener on every interface is reached, loopback last.
std::vector<Address> addresses_of(const std::vector<Interface>& interfaces, uint16_t port);
// In the order in which to try them for connection `index`: the same host first, then networks that `own`
// interfaces are on.
std::vector<Address> candidates(const Places& peer, const std::string& own_host,
                                const std::vector<Interface>& own, int index);

}  // namespace trireme::transport::tcp
