#pragma once
// The protocol over gRPC (inference.proto), and grpc.health.v1. Its implementation sees Debian's protobuf and
// never torch's.
#include <cstdint>
#include <memory>

#include "trireme/serve/service.h"

namespace trireme::serve {

class GrpcServer {
 public:
  // Listens and serves from now on. Error(io) names address and port when they cannot be had.
  GrpcServer(Service& service, const ServerOptions& options);
  ~GrpcServer();
  uint16_t port() const;

  // Takes no new calls, finishes those under way; after `timeout_s` those left are cancelled.
  void drain(double timeout_s);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::serve
