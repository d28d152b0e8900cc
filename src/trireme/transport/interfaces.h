#pragma once
// Network interfaces of this machine.
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::transport {

struct Interface {
  std::string name;
  bool up = false, loopback = false;
  struct Ipv4 {
    uint32_t ip = 0, mask = 0;  // host order
  };
  std::vector<Ipv4> ipv4;
};

// By name. Error(io) when the system gives no list.
std::vector<Interface> list_interfaces();

// Error(input) naming transport.interface, and those that exist, unless `name` is up and has an IPv4 address.
Interface find_interface(const std::string& name);

// "eth0,eth1" as names; empty: none.
std::vector<std::string> names_in(const std::string& list);
// find_interface for each.
void check_interfaces(const std::string& list);

}  // namespace trireme::transport
