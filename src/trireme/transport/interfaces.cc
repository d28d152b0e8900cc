#include "trireme/transport/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>

#include "trireme/base/error.h"

namespace trireme::transport {

void check_interface(const std::string& name) {
  ifaddrs* head = nullptr;
  if (getifaddrs(&head) != 0) fail(ErrorCode::io, "cannot list network interfaces: ", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(head, freeifaddrs);
  struct Found {
    bool up = false, ipv4 = false;
  };
  std::map<std::string, Found> all;
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    Found& f = all[i->ifa_name];
    f.up = f.up || (i->ifa_flags & IFF_UP) != 0;
    f.ipv4 = f.ipv4 || (i->ifa_addr != nullptr && i->ifa_addr->sa_family == AF_INET);
  }
  const auto found = all.find(name);
  if (found == all.end()) {
    std::string names;
    for (const auto& [other, f] : all) names += (names.empty() ? "" : ", ") + other;
    fail(ErrorCode::input, "transport.interface = \"", name,
         "\": no such interface here; there are: ", names);
  }
  if (!found->second.up)
    fail(ErrorCode::input, "transport.interface = \"", name, "\": the interface is down");
  if (!found->second.ipv4) {
    fail(ErrorCode::input, "transport.interface = \"", name, "\": the interface has no IPv4 address");
  }
}

}  // namespace trireme::transport
