#include "trireme/transport/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>

#include "trireme/base/error.h"

namespace trireme::transport {
namespace {

uint32_t number(const sockaddr* address) {
  return address == nullptr ? 0 : ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
}

}  // namespace

std::vector<Interface> list_interfaces() {
  ifaddrs* head = nullptr;
  if (getifaddrs(&head) != 0) fail(ErrorCode::io, "cannot list network interfaces: ", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(head, freeifaddrs);
  std::map<std::string, Interface> all;
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    Interface& found = all[i->ifa_name];
    found.name = i->ifa_name;
    found.up = found.up || (i->ifa_flags & IFF_UP) != 0;
    found.loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
    if (i->ifa_addr != nullptr && i->ifa_addr->sa_family == AF_INET) {
      found.ipv4.push_back({number(i->ifa_addr), number(i->ifa_netmask)});
    }
  }
  std::vector<Interface> out;
  for (auto& [name, found] : all) out.push_back(std::move(found));
  return out;
}

Interface find_interface(const std::string& name) {
  const auto all = list_interfaces();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Interface& i) { return i.name == name; });
  if (found == all.end()) {
    std::string names;
    for (const Interface& other : all) names += (names.empty() ? "" : ", ") + other.name;
    fail(ErrorCode::input, "transport.interface = \"", name,
         "\": no such interface here; there are: ", names);
  }
  if (!found->up) fail(ErrorCode::input, "transport.interface = \"", name, "\": the interface is down");
  if (found->ipv4.empty()) {
    fail(ErrorCode::input, "transport.interface = \"", name, "\": the interface has no IPv4 address");
  }
  return *found;
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

void check_interfaces(const std::string& list) {
  for (const auto& name : names_in(list)) find_interface(name);
}

}  // namespace trireme::transport
