#pragma once
// Network interfaces of this machine.
#include <string>

namespace trireme::transport {

// Error(input) naming transport.interface, and those that exist, unless `name` is up and has an IPv4 address.
void check_interface(const std::string& name);

}  // namespace trireme::transport
