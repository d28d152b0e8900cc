#pragma once
// HTTP/1.1 over TCP with keep-alive, by Boost.Beast.
#include <cstdint>
#include <memory>
#include <string>

#include "trireme/serve/service.h"

namespace trireme::serve {

class HttpServer {
 public:
  // Listens and serves from now on, with threads of its own. Error(io) names address and port when they
  // cannot be had.
  HttpServer(Service& service, const ServerOptions& options);
  ~HttpServer();  // closes what is still open
  uint16_t port() const;

  // Answers what has come in, tells clients to close, takes no new connections. Returns when all are gone, or
  // after `timeout_s`; true when nothing was cut off.
  bool drain(double timeout_s);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::serve
