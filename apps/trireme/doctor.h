#pragma once
// What `trireme doctor` looks at: each check is one function from the machine to a finding.
#include <string>
#include <vector>

#include "trireme/base/units.h"

namespace trireme::app {

struct Finding {
  std::string check;  // "memory", "interface eth0", …
  bool ok = true;
  std::string detail;
};

// Cores that this process may use, memory, instruction sets.
std::vector<Finding> check_machine();
// Interfaces that are up, with addresses and speed, and a TCP connection over the loopback interface.
std::vector<Finding> check_network();
// A message between two UCX endpoints of this process, and which transports this build has.
std::vector<Finding> check_transports();
// A file can be written and synced in `folder`; how much room is left.
Finding check_folder(const std::string& folder);
// A TCP connection to host:port within `timeout`. Error(usage) when the text is not host:port.
Finding check_peer(const std::string& host_and_port, Seconds timeout);
// Version of the torch library in use, and the CUDA devices it sees.
std::vector<Finding> check_torch();

}  // namespace trireme::app
