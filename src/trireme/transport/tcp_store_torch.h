#pragma once
#include <memory>
#include <string>

#include "trireme/transport/transport.h"

namespace trireme::transport {
// c10d::TCPStore as a Store. `serve`: this process opens the port (rank 0), else it joins. Error(io) when the
// port is taken, Error(timeout) naming host and port when nobody answers. `prefix` stands before every key: a
// store that outlives its ranks keeps their attempts apart.
std::shared_ptr<Store> make_tcp_store(const std::string& host, int port, bool serve, int world_size,
                                      Seconds timeout, const std::string& prefix = "");
}  // namespace trireme::transport
