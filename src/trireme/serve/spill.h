#pragma once
// Requests that this server cannot answer in time go to another endpoint: any server of the protocol over
// HTTP, or an AWS Lambda function by a signed invoke (docs/reference/serving.md). By libcurl, on one thread.
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/serve/batch_times.h"
#include "trireme/serve/batching.h"
#include "trireme/serve/values.h"

namespace trireme::serve {

enum class SpillKind : uint8_t { http, lambda };

struct SpillOptions {
  std::string url;
  SpillKind kind = SpillKind::http;
  std::string model;  // its name there
  double slo_s = 0;   // 0: every refused request is spilled
  double slo_share = 0.98;
  double timeout_s = 10;
  int64_t most_at_once = 64;
  // Lambda only.
  std::string region, access_key, secret_key, session_token;
};

// http unless the path ends with /invocations. Error(usage) names what is missing: a region that is neither
// in the URL nor in AWS_REGION, keys that are not in the environment. `environment` gives a variable or
// nothing.
SpillOptions resolve_spill(const std::string& url, const std::string& model,
                           const std::function<std::optional<std::string>(const char*)>& environment);

// The event that a Lambda function gets, in the form of an HTTP request as API gateways make it, and its
// reply.
std::string lambda_event(const std::string& model, const std::string& body);
// RequestError(failed) when the function failed or replies something else.
std::string lambda_reply(const std::string& text);

class Spill {
 public:
  explicit Spill(const SpillOptions& options);
  ~Spill();  // cancels what is under way

  // Takes both arguments and calls `done` once; or leaves them and returns why not: too many at once, or the
  // endpoint's own time, as observed, does not fit into the SLO any more.
  std::optional<Rejection> send(InferRequest& request, Time arrived, Done& done);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::serve
