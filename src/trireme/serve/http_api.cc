#include "trireme/serve/http_api.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/serve/datatypes.h"
#include "trireme/serve/infer_json.h"
#include "trireme/serve/inflate.h"

namespace trireme::serve {
namespace {

using nlohmann::json;

int status_of(Reason reason) {
  switch (reason) {
    case Reason::invalid:
      return 400;
    case Reason::not_found:
      return 404;
    case Reason::wrong_verb:
      return 405;
    case Reason::too_large:
      return 413;
    case Reason::overloaded:
    case Reason::expired:
    case Reason::unavailable:
      return 503;
    case Reason::cancelled:
      return 499;  // nobody reads it
    case Reason::unsupported:
      return 501;
    case Reason::failed:
      return 500;
  }
  return 500;
}

std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

HttpAnswer json_answer(const json& value) {
  HttpAnswer answer;
  answer.body = dump(value);
  return answer;
}

json tensors(const std::vector<TensorSpec>& specs) {
  json list = json::array();
  for (const auto& t : specs)
    list.push_back({{"name", t.name}, {"datatype", datatype_name(t.dtype)}, {"shape", t.shape}});
  return list;
}

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape =
        text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0;
    out += escape ? static_cast<char>(16 * hex(text[i + 1]) + hex(text[i + 2])) : text[i];
    if (escape) i += 2;
  }
  return out;
}

std::vector<std::string> segments(std::string_view target) {
  target = target.substr(0, target.find_first_of("?#"));
  std::vector<std::string> parts;
  while (!target.empty()) {
    target.remove_prefix(target.front() == '/' ? 1 : 0);
    const auto end = std::min(target.find('/'), target.size());
    if (end > 0) parts.push_back(decoded(target.substr(0, end)));
    target.remove_prefix(end);
  }
  return parts;
}

void check_content_type(const std::optional<std::string>& given) {
  if (!given) return;
  std::string type = given->substr(0, given->find(';'));
  std::erase(type, ' ');
  std::ranges::transform(type, type.begin(), [](unsigned char c) { return std::tolower(c); });
  if (type != "application/json" && type != "application/octet-stream")
    throw RequestError(Reason::invalid,
                       cat("content type '", *given,
                           "' is not taken: send application/json, or application/octet-stream "
                           "with binary tensors"));
}

}  // namespace

HttpAnswer error_answer(const Rejection& rejection) {
  HttpAnswer answer = json_answer({{"error", rejection.message}});
  answer.status = status_of(rejection.reason);
  answer.reason = name(rejection.reason);
  return answer;
}

// What a path means.
struct HttpApi::Path {
  enum class Kind : uint8_t {
    live,
    ready,
    server,
    models,
    model,
    model_ready,
    infer,
    index,
    load,
    unload,
    metrics,
    unknown
  };
  Kind kind = Kind::unknown;
  std::string model, version;

  const char* verb() const {
    const bool post =
        kind == Kind::infer || kind == Kind::index || kind == Kind::load || kind == Kind::unload;
    return post ? "POST" : "GET";
  }

  explicit Path(std::string_view target) {
    auto parts = segments(target);
    if (parts == std::vector<std::string>{"metrics"}) kind = Kind::metrics;
    if (parts.empty() || parts[0] != "v2") return;
    parts.erase(parts.begin());
    if (parts.empty())
      kind = Kind::server;
    else if (parts == std::vector<std::string>{"health", "live"})
      kind = Kind::live;
    else if (parts == std::vector<std::string>{"health", "ready"})
      kind = Kind::ready;
    else if (parts == std::vector<std::string>{"repository", "index"})
      kind = Kind::index;
    else if (parts[0] == "models")
      read_model({parts.begin() + 1, parts.end()});
    else if (parts.size() == 4 && parts[0] == "repository" && parts[1] == "models") {
      model = parts[2];
      if (parts[3] == "load") kind = Kind::load;
      if (parts[3] == "unload") kind = Kind::unload;
    }
  }

 private:
  void read_model(std::vector<std::string> parts) {
    if (parts.empty()) {
      kind = Kind::models;
      return;
    }
    model = parts[0];
    parts.erase(parts.begin());
    if (parts.size() >= 2 && parts[0] == "versions") {
      version = parts[1];
      parts.erase(parts.begin(), parts.begin() + 2);
    }
    if (parts.empty()) kind = Kind::model;
    if (parts == std::vector<std::string>{"ready"}) kind = Kind::model_ready;
    if (parts == std::vector<std::string>{"infer"}) kind = Kind::infer;
  }
};

HttpApi::HttpApi(Service& service, const Limits& limits, Aside aside, Connections connections)
    : service_(service), limits_(limits), aside_(std::move(aside)), connections_(std::move(connections)) {}

HttpAnswer HttpApi::repository_index() const {
  json list = json::array();
  for (const auto& state : service_.models().states())
    list.push_back({{"name", state.name},
                    {"version", state.version},
                    {"state", state.ready ? "READY" : "UNAVAILABLE"},
                    {"reason", state.why}});
  return json_answer(list);
}

HttpAnswer HttpApi::answer_get(const Path& path) const {
  using Kind = Path::Kind;
  switch (path.kind) {
    case Kind::live:
      return json_answer({{"live", true}});
    case Kind::ready: {
      HttpAnswer answer = json_answer({{"ready", service_.ready()}});
      if (!service_.ready()) answer.status = 503;
      return answer;
    }
    case Kind::server:
      return json_answer(
          {{"name", "trireme"}, {"version", service_.version()}, {"extensions", Service::extensions()}});
    case Kind::models: {
      json names = json::array();
      for (const auto& state : service_.models().states())
        if (names.empty() || names.back() != state.name) names.push_back(state.name);
      return json_answer({{"models", names}});
    }
    case Kind::model: {
      const auto m = service_.metadata(path.model, path.version);
      return json_answer({{"name", m.info.name},
                          {"versions", m.versions},
                          {"platform", m.info.platform},
                          {"inputs", tensors(m.info.inputs)},
                          {"outputs", tensors(m.info.outputs)}});
    }
    case Kind::model_ready: {
      const bool ready = service_.model_ready(path.model, path.version) && !service_.draining();
      HttpAnswer answer = json_answer({{"name", path.model}, {"ready", ready}});
      if (!ready) answer.status = 503;
      return answer;
    }
    case Kind::index:
      return repository_index();
    default: {
      HttpAnswer answer;
      answer.content_type = "text/plain; version=0.0.4";
      answer.body = render_metrics(service_.models().metrics(), {connections_(), service_.ready()});
      return answer;
    }
  }
}

InferRequest HttpApi::read_infer(const Path& path, const HttpCall& call) const {
  check_content_type(call.content_type);
  auto body = call.body;
  if (call.content_encoding && *call.content_encoding != "identity")
    body = std::make_shared<std::string>(inflate_body(*body, *call.content_encoding, limits_.max_body));
  std::optional<int64_t> json_bytes;
  if (call.json_bytes) json_bytes = parse_header_length(*call.json_bytes, body->size());
  InferRequest request =
      json_bytes == 0 ? raw_infer_request(service_.metadata(path.model, path.version).info, std::move(body))
                      : parse_infer_request(std::move(body), json_bytes);
  request.model = path.model;
  request.version = path.version;
  return request;
}

Pending HttpApi::infer(const Path& path, HttpCall call, std::function<void(Answer)> later) {
  InferRequest request = read_infer(path, call);
  auto wanted = request.outputs;
  const bool binary = request.binary_outputs;
  return service_.infer(std::move(request), call.arrived,
                        [wanted = std::move(wanted), binary, later = std::move(later)](InferResult result) {
                          // Copied into the answer: a pointer is, the tensors are not.
                          auto kept = std::make_shared<InferResult>(std::move(result));
                          later([kept, wanted, binary]() -> HttpAnswer {
                            if (const auto* rejection = std::get_if<Rejection>(kept.get()))
                              return error_answer(*rejection);
                            try {
                              auto body =
                                  render_infer_response(std::get<InferResponse>(*kept), wanted, binary);
                              HttpAnswer answer;
                              answer.body = std::move(body.text);
                              answer.json_bytes = body.json_bytes;
                              if (answer.json_bytes) answer.content_type = "application/octet-stream";
                              return answer;
                            } catch (const RequestError& e) {
                              return error_answer({e.reason(), e.what()});
                            }
                          });
                        });
}

void HttpApi::control(const Path& path, std::function<void(Answer)> later) {
  if (!limits_.model_control)
    throw RequestError(Reason::unsupported,
                       "this server does not let clients load models (server.model_control)");
  const bool load = path.kind == Path::Kind::load;
  aside_([this, load, model = path.model, later = std::move(later)] {
    HttpAnswer answer = json_answer({{"name", model}});
    try {
      load ? service_.models().load(model) : service_.models().unload(model);
    } catch (const RequestError& e) {
      answer = error_answer({e.reason(), e.what()});
    } catch (const std::exception& e) {
      answer = error_answer({Reason::invalid, e.what()});
    }
    later([answer] { return answer; });
  });
}

Pending HttpApi::handle(HttpCall call, std::function<void(Answer)> later) {
  const auto at_once = [&later](HttpAnswer answer) {
    later([answer = std::move(answer)] { return answer; });
    return Pending{};
  };
  try {
    const Path path(call.target);
    if (path.kind == Path::Kind::unknown)
      throw RequestError(Reason::not_found, cat("there is nothing at ", call.target.substr(0, 200)));
    const bool head = call.verb == "HEAD" && path.verb() == std::string_view("GET");
    if (call.verb != path.verb() && !head) {
      HttpAnswer answer = error_answer({Reason::wrong_verb, cat("this path takes ", path.verb(), " only")});
      answer.allow = path.verb();
      return at_once(std::move(answer));
    }
    if (path.kind == Path::Kind::infer) return infer(path, std::move(call), later);
    if (path.kind == Path::Kind::load || path.kind == Path::Kind::unload) {
      control(path, later);
      return {};
    }
    return at_once(answer_get(path));
  } catch (const RequestError& e) {
    return at_once(error_answer({e.reason(), e.what()}));
  } catch (const std::bad_alloc&) {
    return at_once(error_answer({Reason::too_large, "not enough memory for this request"}));
  }
}

}  // namespace trireme::serve
