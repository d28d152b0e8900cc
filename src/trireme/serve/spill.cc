#include "trireme/serve/spill.h"

#include <curl/curl.h>

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/json_problem.h"
#include "trireme/serve/infer_json.h"
#include "trireme/spec/json_guard.h"

namespace trireme::serve {
namespace {

using nlohmann::json;

// "us-east-1" of https://lambda.us-east-1.amazonaws.com/…; "" otherwise.
std::string region_in(const std::string& url) {
  constexpr std::string_view kBegin = "://lambda.", kEnd = ".amazonaws.com";
  const auto begin = url.find(kBegin);
  const auto end = url.find(kEnd);
  if (begin == std::string::npos || end == std::string::npos) return "";
  return url.substr(begin + kBegin.size(), end - begin - kBegin.size());
}

[[noreturn]] void spill_failed(const std::string& what) {
  throw RequestError(Reason::failed, "the spill endpoint: " + what);
}

size_t collect(char* data, size_t, size_t size, void* to) {
  static_cast<std::string*>(to)->append(data, size);
  return size;
}

// One request under way.
struct Exchange {
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  std::string body, answer;
  InferRequest request;
  Time arrived{0}, sent{0};
  Done done;
  ~Exchange() {
    curl_slist_free_all(headers);
    if (easy != nullptr) curl_easy_cleanup(easy);
  }
};

}  // namespace

SpillOptions resolve_spill(const std::string& url, const std::string& model,
                           const std::function<std::optional<std::string>(const char*)>& environment) {
  SpillOptions o;
  o.url = url;
  o.model = model;
  if (!url.starts_with("http://") && !url.starts_with("https://"))
    fail(ErrorCode::usage, "model.spill_url = '", url, "': must begin with http:// or https://");
  while (o.url.ends_with('/')) o.url.pop_back();
  if (!o.url.ends_with("/invocations")) return o;
  o.kind = SpillKind::lambda;
  o.region = region_in(url);
  if (o.region.empty())
    o.region = environment("AWS_REGION").value_or(environment("AWS_DEFAULT_REGION").value_or(""));
  o.access_key = environment("AWS_ACCESS_KEY_ID").value_or("");
  o.secret_key = environment("AWS_SECRET_ACCESS_KEY").value_or("");
  o.session_token = environment("AWS_SESSION_TOKEN").value_or("");
  if (o.region.empty())
    fail(ErrorCode::usage, "model.spill_url = '", url,
         "': its region is neither in the URL nor in AWS_REGION");
  if (o.access_key.empty() || o.secret_key.empty())
    fail(ErrorCode::usage, "model.spill_url = '", url,
         "': set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, with which invocations are signed");
  return o;
}

std::string lambda_event(const std::string& model, const std::string& body) {
  return json{{"httpMethod", "POST"},
              {"path", "/v2/models/" + model + "/infer"},
              {"headers", {{"content-type", "application/json"}}},
              {"body", body},
              {"isBase64Encoded", false}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string lambda_reply(const std::string& text) {
  try {
    spec::check_json_depth(text);
    const json reply = json::parse(text);
    if (reply.contains("errorMessage")) spill_failed(reply.at("errorMessage").get<std::string>());
    if (reply.at("statusCode").get<int>() != 200)
      spill_failed(cat("status ", reply.at("statusCode").get<int>()));
    return reply.at("body").get<std::string>();
  } catch (const json::exception& e) {
    spill_failed(cat("the function's reply cannot be read: ", json_problem(e)));
  } catch (const Error& e) {
    spill_failed(cat("the function's reply cannot be read: ", e.what()));
  }
}

class Spill::State {
 public:
  explicit State(const SpillOptions& options) : options_(options) {
    TRIREME_CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
    multi_ = curl_multi_init();
    thread_ = std::thread([this] { work(); });
  }
  ~State() {
    ending_ = true;
    curl_multi_wakeup(multi_);
    thread_.join();
    for (auto& [easy, exchange] : running_) {
      curl_multi_remove_handle(multi_, easy);
      exchange->done(Rejection{Reason::unavailable, "the server is stopping"});
    }
    for (auto& exchange : queue_) exchange->done(Rejection{Reason::unavailable, "the server is stopping"});
    running_.clear();
    curl_multi_cleanup(multi_);
    curl_global_cleanup();
  }

  std::optional<Rejection> send(InferRequest& request, Time arrived, Done& done) {
    const std::lock_guard lock(mutex_);
    if (under_way_ >= options_.most_at_once)
      return Rejection{Reason::overloaded, "refused: too many requests are spilled"};
    const double age = std::chrono::duration<double>(steady_clock().now() - arrived).count();
    // With nothing under way one goes anyway: otherwise a slow start would never be forgotten.
    if (options_.slo_s > 0 && under_way_ > 0 && age + times_.tail(1) > options_.slo_s)
      return Rejection{Reason::overloaded, "refused: the spill endpoint takes longer than the SLO allows"};
    auto exchange = std::make_unique<Exchange>();
    exchange->request = std::move(request);
    exchange->arrived = arrived;
    exchange->done = std::move(done);
    ++under_way_;
    queue_.push_back(std::move(exchange));
    curl_multi_wakeup(multi_);
    return std::nullopt;
  }

 private:
  void work() {
    constexpr int kLongest_ms = 1000;  // wakeup comes earlier
    while (!ending_) {
      start_queued();
      int running = 0;
      curl_multi_perform(multi_, &running);
      finish_done();
      curl_multi_poll(multi_, nullptr, 0, kLongest_ms, nullptr);
    }
  }

  void start_queued() {
    std::deque<std::unique_ptr<Exchange>> mine;
    {
      const std::lock_guard lock(mutex_);
      mine.swap(queue_);
    }
    for (auto& exchange : mine) {
      try {
        prepare(*exchange);
        curl_multi_add_handle(multi_, exchange->easy);
        running_[exchange->easy] = std::move(exchange);
      } catch (const RequestError& e) {
        answer(*exchange, Rejection{e.reason(), e.what()}, false);
      }
    }
  }

  void prepare(Exchange& x) {
    auto rendered = render_infer_request(x.request, false);
    const bool lambda = options_.kind == SpillKind::lambda;
    x.body = lambda ? lambda_event(options_.model, rendered.text) : std::move(rendered.text);
    x.sent = steady_clock().now();
    x.easy = curl_easy_init();
    TRIREME_CHECK(x.easy != nullptr);
    const std::string url = lambda ? options_.url : options_.url + "/v2/models/" + options_.model + "/infer";
    const double age = std::chrono::duration<double>(x.sent - x.arrived).count();
    const double left =
        options_.slo_s > 0 ? std::min(options_.timeout_s, options_.slo_s - age) : options_.timeout_s;
    x.headers = curl_slist_append(x.headers, "Content-Type: application/json");
    curl_easy_setopt(x.easy, CURLOPT_URL, url.c_str());
    curl_easy_setopt(x.easy, CURLOPT_POSTFIELDS, x.body.c_str());
    curl_easy_setopt(x.easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(x.body.size()));
    curl_easy_setopt(x.easy, CURLOPT_WRITEFUNCTION, &collect);
    curl_easy_setopt(x.easy, CURLOPT_WRITEDATA, &x.answer);
    curl_easy_setopt(x.easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(x.easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(x.easy, CURLOPT_TIMEOUT_MS, std::max(1L, static_cast<long>(1e3 * left)));
    if (lambda) sign(x);
    curl_easy_setopt(x.easy, CURLOPT_HTTPHEADER, x.headers);
  }

  void sign(Exchange& x) const {
    const std::string scope = "aws:amz:" + options_.region + ":lambda";
    const std::string keys = options_.access_key + ":" + options_.secret_key;
    curl_easy_setopt(x.easy, CURLOPT_AWS_SIGV4, scope.c_str());
    curl_easy_setopt(x.easy, CURLOPT_USERPWD, keys.c_str());
    if (!options_.session_token.empty())
      x.headers = curl_slist_append(x.headers, ("X-Amz-Security-Token: " + options_.session_token).c_str());
  }

  void finish_done() {
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      auto exchange = std::move(running_.extract(message->easy_handle).mapped());
      const CURLcode code = message->data.result;
      curl_multi_remove_handle(multi_, exchange->easy);
      try {
        answer(*exchange, read(*exchange, code), true);
      } catch (const RequestError& e) {
        answer(*exchange, Rejection{e.reason() == Reason::invalid ? Reason::failed : e.reason(), e.what()},
               true);
      }
    }
  }

  InferResponse read(Exchange& x, CURLcode code) const {
    if (code == CURLE_OPERATION_TIMEDOUT)
      throw RequestError(Reason::overloaded, "refused: the spill endpoint did not answer in time");
    if (code != CURLE_OK) spill_failed(curl_easy_strerror(code));
    long status = 0;
    curl_easy_getinfo(x.easy, CURLINFO_RESPONSE_CODE, &status);
    if (status == 503 || status == 429)
      throw RequestError(Reason::overloaded, "refused: the spill endpoint is full too");
    if (status != 200) spill_failed(cat("status ", status, " ", x.answer.substr(0, 200)));
    if (options_.kind == SpillKind::lambda) x.answer = lambda_reply(x.answer);
    InferResponse response =
        parse_infer_response(std::make_shared<const std::string>(std::move(x.answer)), std::nullopt);
    response.id = x.request.id;
    return response;
  }

  void answer(Exchange& x, InferResult result, bool measured) {
    {
      const std::lock_guard lock(mutex_);
      --under_way_;
      const double took = std::chrono::duration<double>(steady_clock().now() - x.sent).count();
      if (measured) times_ = observe(std::move(times_), 1, took, options_.slo_share);
    }
    x.done(std::move(result));
  }

  const SpillOptions options_;
  CURLM* multi_ = nullptr;
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  BatchTimes times_;
  int64_t under_way_ = 0;
  std::deque<std::unique_ptr<Exchange>> queue_;
  std::map<CURL*, std::unique_ptr<Exchange>> running_;  // of the thread
  std::thread thread_;
};

Spill::Spill(const SpillOptions& options) : state_(std::make_unique<State>(options)) {}
Spill::~Spill() = default;
std::optional<Rejection> Spill::send(InferRequest& request, Time arrived, Done& done) {
  return state_->send(request, arrived, done);
}

}  // namespace trireme::serve
