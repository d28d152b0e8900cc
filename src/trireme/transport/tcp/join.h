#pragma once
// How the ranks of a run become connected: each publishes its addresses in the store, and calls every rank
// below it. Every connection proves that it belongs to this run before it counts; strangers are refused.
#include <string>
#include <vector>

#include "trireme/transport/tcp/socket.h"
#include "trireme/transport/transport.h"

namespace trireme::transport::tcp {

struct JoinOptions {
  int rank = 0, size = 1;
  int connections = 1;                  // per pair and interface
  std::vector<std::string> interfaces;  // empty: whichever reaches the peer
  std::string secret;                   // empty: knowing the store's random number is enough
  Seconds timeout{60};
};

// Connections by peer and index; the same index on both sides. Error(timeout | io | input) naming both ranks
// and what to mend.
std::vector<std::vector<Fd>> join(Store& store, const JoinOptions& options);

}  // namespace trireme::transport::tcp
