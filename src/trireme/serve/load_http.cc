#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/json_problem.h"
#include "trireme/serve/datatypes.h"
#include "trireme/serve/infer_json.h"
#include "trireme/serve/load.h"
#include "trireme/serve/measure.h"
#include "trireme/spec/json_guard.h"

namespace trireme::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using nlohmann::json;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr size_t kBodies = 16;     // different ones, sent in turn
constexpr size_t kMaxErrors = 10;  // different messages kept
constexpr uint64_t kMaxAnswer = 1 << 30;

std::chrono::nanoseconds duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}
double seconds_between(SteadyTime from, SteadyTime to) {
  return std::chrono::duration<double>(to - from).count();
}

struct Endpoint {
  std::string host, port, prefix;
  std::vector<tcp::endpoint> addresses;
};

Endpoint resolve(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) fail(ErrorCode::usage, "--url ", url, ": must be http://HOST:PORT");
  Endpoint e;
  std::string rest = url.substr(kScheme.size());
  if (const auto slash = rest.find('/'); slash != std::string::npos) {
    e.prefix = rest.substr(slash);
    rest.resize(slash);
  }
  while (e.prefix.ends_with('/')) e.prefix.pop_back();
  const auto colon = rest.rfind(':');
  e.host = rest.substr(0, colon);
  e.port = colon == std::string::npos ? "80" : rest.substr(colon + 1);
  asio::io_context context;
  error_code error;
  for (const auto& found : tcp::resolver(context).resolve(e.host, e.port, error))
    e.addresses.push_back(found.endpoint());
  if (error || e.addresses.empty()) fail(ErrorCode::usage, "--url ", url, ": ", error.message());
  return e;
}

std::string model_path(const Endpoint& endpoint, const LoadOptions& options) {
  const std::string version = options.version.empty() ? "" : "/versions/" + options.version;
  return endpoint.prefix + "/v2/models/" + options.model + version;
}

// One exchange, with a deadline: the model's metadata.
std::string get(const Endpoint& endpoint, const std::string& target, double timeout_s) {
  asio::io_context context;
  beast::tcp_stream stream(context);
  beast::flat_buffer buffer;
  http::request<http::empty_body> request(http::verb::get, target, 11);
  request.set(http::field::host, endpoint.host);
  http::response<http::string_body> response;
  error_code outcome = asio::error::would_block;
  stream.expires_after(duration(timeout_s));
  stream.async_connect(endpoint.addresses, [&](error_code error, const tcp::endpoint&) {
    outcome = error;
    if (error) return;
    http::async_write(stream, request, [&](error_code written, size_t) {
      outcome = written;
      if (!written)
        http::async_read(stream, buffer, response, [&](error_code read, size_t) { outcome = read; });
    });
  });
  context.run();
  if (outcome)
    fail(ErrorCode::io, "no answer from ", endpoint.host, ":", endpoint.port, ": ", outcome.message(),
         "; is the server running?");
  if (response.result_int() != 200)
    fail(ErrorCode::input, endpoint.host, ":", endpoint.port, target, " answers ", response.result_int(), " ",
         response.body().substr(0, 200));
  return response.body();
}

// What to send: shapes from the metadata, open sizes from the options.
ModelInfo read_metadata(const std::string& text, const LoadOptions& options) {
  ModelInfo info;
  try {
    spec::check_json_depth(text);
    const json metadata = json::parse(text);
    for (const auto& input : metadata.at("inputs")) {
      TensorSpec t;
      t.name = input.at("name").get<std::string>();
      const auto datatype = input.at("datatype").get<std::string>();
      const auto dtype = datatype_from_name(datatype);
      if (!dtype)
        fail(ErrorCode::unsupported, "input '", t.name, "' is ", datatype, ", which load cannot make up");
      t.dtype = *dtype;
      t.shape = input.at("shape").get<spec::Shape>();
      t.example = t.shape;
      if (!t.example.empty() && t.example[0] == TensorSpec::kAny) t.example[0] = options.rows;
      info.inputs.push_back(std::move(t));
    }
  } catch (const json::exception& e) {
    fail(ErrorCode::input, "the metadata of model '", options.model, "' cannot be read: ", json_problem(e));
  }
  for (const auto& [name, shape] : options.shapes) {
    const auto found = std::ranges::find(info.inputs, name, &TensorSpec::name);
    if (found == info.inputs.end()) fail(ErrorCode::usage, "--shape ", name, ": the model has no such input");
    found->example = shape;
  }
  for (const auto& t : info.inputs)
    if (std::ranges::any_of(t.example, [](int64_t size) { return size < 0; }))
      fail(ErrorCode::usage, "input '", t.name, "' has shape ", spec::to_text(t.shape),
           ": say what to send with --shape ", t.name, "=…");
  return info;
}

using Request = http::request<http::string_body>;

std::vector<Request> make_requests(const Endpoint& endpoint, const LoadOptions& options) {
  if (!options.path.empty()) {
    Request request(http::verb::post, endpoint.prefix + options.path, 11, options.payload);
    request.set(http::field::host, endpoint.host);
    request.set(http::field::content_type,
                options.payload.starts_with('{') ? "application/json" : "application/octet-stream");
    request.prepare_payload();
    return {request};
  }
  const ModelInfo info =
      read_metadata(get(endpoint, model_path(endpoint, options), options.timeout_s), options);
  std::vector<Request> requests;
  for (size_t k = 0; k < kBodies; ++k) {
    const MadeInputs made = make_inputs(info, 1, options.seed + k);
    InferRequest infer;
    for (size_t i = 0; i < info.inputs.size(); ++i)
      infer.inputs.push_back(
          {info.inputs[i].name, info.inputs[i].dtype, info.inputs[i].example, made.bytes[i], nullptr});
    auto body = render_infer_request(infer, options.binary);
    Request& request = requests.emplace_back(http::verb::post, model_path(endpoint, options) + "/infer", 11);
    request.set(http::field::host, endpoint.host);
    request.set(http::field::content_type, body.json_bytes ? "application/octet-stream" : "application/json");
    if (body.json_bytes) request.set("Inference-Header-Content-Length", std::to_string(*body.json_bytes));
    request.body() = std::move(body.text);
    request.prepare_payload();
  }
  return requests;
}

// Sends what is due over a pool of connections. One thread; the server's time is what is measured.
class Generator {
 public:
  Generator(const LoadOptions& options, const Endpoint& endpoint, std::vector<Request> requests)
      : options_(options),
        endpoint_(endpoint),
        requests_(std::move(requests)),
        arrivals_(options.trace, options.gaps, options.scale, options.seed),
        timer_(context_) {}

  LoadReport run() {
    begin_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
    schedule();
    context_.run();
    report_.seconds = seconds_between(begin_, last_answer_);
    return std::move(report_);
  }

 private:
  struct Connection {
    explicit Connection(asio::io_context& context) : stream(context) {}
    beast::tcp_stream stream;
    beast::flat_buffer buffer;
    std::optional<http::response_parser<http::string_body>> response;
    SteadyTime due;
    size_t body = 0;
    bool fresh = true;    // not connected yet
    bool reused = false;  // has carried an answer
  };
  using Link = std::shared_ptr<Connection>;

  // Sends all that is due by now (the timer alone would fall behind at high rates), then waits for the next.
  void schedule() {
    while (const auto next = arrivals_.next()) {
      if (options_.duration_s > 0 && *next > options_.duration_s) return;
      const SteadyTime due = begin_ + duration(*next);
      if (due > std::chrono::steady_clock::now()) {
        timer_.expires_at(due);
        timer_.async_wait([this, due](error_code) {
          start(due);
          schedule();
        });
        return;
      }
      start(due);
    }
  }

  void start(SteadyTime due) {
    ++report_.sent;
    if (!idle_.empty()) {
      Link link = std::move(idle_.back());
      idle_.pop_back();
      send(link, due);
    } else if (open_ < options_.connections) {
      ++open_;
      send(std::make_shared<Connection>(context_), due);
    } else {
      backlog_.push_back(due);
    }
  }

  void send(const Link& link, SteadyTime due) {
    link->due = due;
    link->body = next_body_++ % requests_.size();
    link->response.reset();
    link->stream.expires_at(due + duration(options_.timeout_s));
    if (!link->fresh) return write(link);
    link->stream.async_connect(endpoint_.addresses, [this, link](error_code error, const tcp::endpoint&) {
      if (error) return finished(link, "cannot connect: " + error.message());
      link->fresh = false;
      link->stream.socket().set_option(tcp::no_delay(true), error);
      write(link);
    });
  }

  void write(const Link& link) {
    report_.late_s.push_back(seconds_between(link->due, std::chrono::steady_clock::now()));
    http::async_write(link->stream, requests_[link->body], [this, link](error_code error, size_t) {
      if (error) return finished(link, "cannot send: " + error.message());
      link->response.emplace();
      link->response->body_limit(kMaxAnswer);
      http::async_read(link->stream, link->buffer, *link->response, [this, link](error_code read, size_t) {
        finished(link, read ? "no answer: " + read.message() : "");
      });
    });
  }

  void finished(const Link& link, const std::string& error) {
    last_answer_ = std::chrono::steady_clock::now();
    const double took = seconds_between(link->due, last_answer_);
    bool keep = false;
    if (!error.empty() && closed_before_use(*link))
      return send(std::make_shared<Connection>(context_), link->due);
    if (!error.empty()) {
      failed(error);
    } else {
      link->reused = true;
      const auto& answer = link->response->get();
      keep = answer.keep_alive();
      if (answer.result_int() == 200) {
        ++report_.ok;
        report_.ok_s.push_back(took);
      } else if (answer.result_int() == 503) {
        ++report_.rejected;
        report_.rejected_s.push_back(took);
      } else {
        failed(cat(answer.result_int(), " ", answer.body().substr(0, 200)));
      }
    }
    next(keep ? link : nullptr);
  }

  // The server had closed an idle connection, which it may at any time: nothing of the request has been
  // looked at.
  static bool closed_before_use(const Connection& link) {
    return link.reused && link.buffer.size() == 0 && !(link.response && link.response->got_some());
  }

  void failed(const std::string& why) {
    ++report_.failed;
    if (report_.errors.contains(why) || report_.errors.size() < kMaxErrors) ++report_.errors[why];
  }

  // The connection, or a new one in place of a closed one, takes what waits.
  void next(Link link) {
    if (backlog_.empty()) {
      if (link)
        idle_.push_back(std::move(link));
      else
        --open_;
      return;
    }
    const SteadyTime due = backlog_.front();
    backlog_.pop_front();
    send(link ? link : std::make_shared<Connection>(context_), due);
  }

  const LoadOptions& options_;
  const Endpoint& endpoint_;
  std::vector<Request> requests_;
  Arrivals arrivals_;
  LoadReport report_;
  asio::io_context context_{1};
  asio::steady_timer timer_;
  SteadyTime begin_, last_answer_;
  std::vector<Link> idle_;
  std::deque<SteadyTime> backlog_;
  int64_t open_ = 0;
  size_t next_body_ = 0;
};

}  // namespace

LoadReport run_load(const LoadOptions& options) {
  const Endpoint endpoint = resolve(options.url);
  auto requests = make_requests(endpoint, options);
  return Generator(options, endpoint, std::move(requests)).run();
}

}  // namespace trireme::serve
