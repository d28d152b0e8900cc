#pragma once
// The REST calls of the protocol: what an HTTP request asks for, and the answer. No sockets here.
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/serve/service.h"

namespace trireme::serve {

struct HttpCall {
  std::string verb, target;
  std::optional<std::string> content_type, content_encoding, json_bytes;  // headers
  std::shared_ptr<const std::string> body;
  Time arrived{0};
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::optional<size_t> json_bytes;  // Inference-Header-Content-Length
  std::string reason;                // Trireme-Reason: why there is no result, in one word
  std::string allow;                 // the verb that the path takes, on 405
};

// {"error": message}, with the status of the reason.
HttpAnswer error_answer(const Rejection& rejection);

class HttpApi {
 public:
  struct Limits {
    size_t max_body = 64 << 20;
    bool model_control = true;
  };
  // Makes the answer; called by the thread that writes it.
  using Answer = std::function<HttpAnswer()>;
  // Runs something long elsewhere: loading a model.
  using Aside = std::function<void(std::function<void()>)>;
  // Open connections, for the metrics.
  using Connections = std::function<int64_t()>;
  HttpApi(Service& service, const Limits& limits, Aside aside, Connections connections);

  // Calls `later` once, from any thread, perhaps before it returns.
  Pending handle(HttpCall call, std::function<void(Answer)> later);

 private:
  struct Path;
  HttpAnswer answer_get(const Path& path) const;
  HttpAnswer repository_index() const;
  Pending infer(const Path& path, HttpCall call, std::function<void(Answer)> later);
  void control(const Path& path, std::function<void(Answer)> later);
  InferRequest read_infer(const Path& path, const HttpCall& call) const;

  Service& service_;
  Limits limits_;
  Aside aside_;
  Connections connections_;
};

}  // namespace trireme::serve
