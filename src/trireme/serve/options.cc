#include "trireme/serve/options.h"

#include <algorithm>
#include <set>

#include "trireme/base/error.h"

namespace trireme::serve {

void ServerOptions::list(OptionList& o) {
  o.add("host", host, "address to listen on; 0.0.0.0: all of this machine");
  o.add("http_port", http_port, "0: any free one, which is printed").at_least(0).at_most(65535);
  o.add("grpc_port", grpc_port, "0: any free one, which is printed; -1: no gRPC").at_least(-1).at_most(65535);
  o.add("http_threads", http_threads, "threads that read and write HTTP").at_least(1).at_most(256);
  o.add("max_body", max_body, "largest request body, compressed or not").at_least(1).at_most(2147483647);
  o.add("max_connections", max_connections, "open HTTP connections; one more is answered 503").at_least(1);
  o.add("idle_timeout", idle_timeout, "a connection without a request is closed after this").above(0);
  o.add("request_timeout", request_timeout, "longest time to receive a body, or to send an answer").above(0);
  o.add("drain_timeout", drain_timeout, "after SIGTERM, running requests have this long").above(0);
  o.add("model_control", model_control, "explicit: clients may reload and unload the models of this file")
      .one_of({"explicit", "none"});
}

void ModelOptions::list(OptionList& o) {
  o.add("name", name, "in the URL; required");
  o.add("version", version, "a whole number; several models of one name differ in it");
  o.add("path", path, "inference graph (.pt2 of torch.export); required");
  o.add("weights", weights, "safetensors file or checkpoints/step_N folder; empty: the graph's own weights");
  o.add("device", device, "cpu, or cuda:N");
  o.add("max_batch", max_batch, "most rows in one run").at_least(1).at_most(65536);
  o.add("instances", instances, "copies of the model that run side by side").at_least(1).at_most(256);
  o.add("threads", threads,
        "processor threads of one instance; 0: processors divided by all instances, or OMP_NUM_THREADS")
      .at_least(0)
      .at_most(1024);
  o.add("slo_ms", slo_ms, "answer within this time or refuse at once; 0: no such promise").at_least(0);
  o.add("slo_share", slo_share, "share of the requests taken that must make it").above(0).at_most(1);
  o.add("margin_ms", margin_ms, "part of slo_ms kept for network, reading and writing").at_least(0);
  o.add("batch_wait_ms", batch_wait_ms,
        "longest wait for others to join; auto: from slo_ms and measured times")
      .at_least(0);
  o.add("max_queue", max_queue, "most requests that wait; one more is answered 503").at_least(1);
  o.add("timeout_ms", timeout_ms, "longest wait in the queue; 0: none but slo_ms").at_least(0);
  o.add("profile", profile,
        "times measured by serve --profile-model; empty: measured at load when slo_ms is set");
  o.add("spill_url", spill_url,
        "where requests go that cannot be answered in time: a server of this protocol, or a Lambda function");
  o.add("spill_model", spill_model, "the model's name there; empty: as here");
  o.add("spill_at_once", spill_at_once, "most requests under way there").at_least(1);
}

void ServeConfig::list(OptionList& o) {
  o.section("server", "the process", [this](OptionList& s) { server.list(s); });
  o.rows("model", models, "one model version to serve");
}

namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.size() <= 9 &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

void ServeConfig::check() const {
  if (models.empty()) fail(ErrorCode::usage, "no [[model]] to serve: add one with name and path");
  std::set<std::pair<std::string, std::string>> seen;
  for (const auto& m : models) {
    if (m.name.empty()) fail(ErrorCode::usage, "model.name is missing in a [[model]]");
    if (m.name.find('/') != std::string::npos)
      fail(ErrorCode::usage, "model.name = '", m.name, "': must not contain '/'");
    if (m.path.empty()) fail(ErrorCode::usage, "model.path is missing for model '", m.name, "'");
    if (!is_number(m.version))
      fail(ErrorCode::usage, "model.version = '", m.version, "' of model '", m.name,
           "': must be a whole number");
    if (!seen.emplace(m.name, m.version).second)
      fail(ErrorCode::usage, "model '", m.name, "' version ", m.version,
           " is there twice: give each its version");
    if (m.slo_ms > 0 && m.margin_ms >= m.slo_ms)
      fail(ErrorCode::usage, "model '", m.name, "': margin_ms = ", m.margin_ms,
           " leaves nothing of slo_ms = ", m.slo_ms);
  }
}

}  // namespace trireme::serve
