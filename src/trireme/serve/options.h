#pragma once
// Every key of `trireme serve CONFIG.toml`.
#include <string>
#include <vector>

#include "trireme/base/options.h"

namespace trireme::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int64_t http_port = 8000, grpc_port = 8001;
  int64_t http_threads = 2;
  Bytes max_body{64LL << 20};
  int64_t max_connections = 1000;
  Seconds idle_timeout{60}, request_timeout{30}, drain_timeout{30};
  std::string model_control = "explicit";
  void list(OptionList& o);
};

struct ModelOptions {
  std::string name, version = "1", path, weights, device = "cpu", profile, spill_url, spill_model;
  int64_t max_batch = 32, instances = 1, threads = 0, max_queue = 1024, spill_at_once = 64;
  double slo_ms = 0, slo_share = 0.98, margin_ms = 1, timeout_ms = 0;
  AutoNumber batch_wait_ms;
  void list(OptionList& o);
};

struct ServeConfig {
  ServerOptions server;
  std::vector<ModelOptions> models;
  void list(OptionList& o);
  // Error(usage) names the key: missing or repeated names, a version that is not a number, …
  void check() const;
};

}  // namespace trireme::serve
