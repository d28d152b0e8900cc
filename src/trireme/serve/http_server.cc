#include "trireme/serve/http_server.h"

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/bind_handler.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/serve/http_api.h"

namespace trireme::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr uint32_t kMaxHeader = 32 << 10;
constexpr const char* kJsonBytes = "Inference-Header-Content-Length";

std::chrono::nanoseconds duration(Seconds s) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(s.value));
}

// Long work of the control calls, one at a time, off the threads that serve.
class SideThread {
 public:
  SideThread() : thread_([this] { work(); }) {}
  ~SideThread() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void run(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool ending_ = false;
  std::thread thread_;
};

class Session;

// What sessions share.
struct Shared {
  Shared(Service& service, const ServerOptions& o)
      : options(o),
        api(
            service, {static_cast<size_t>(o.max_body.value), o.model_control == "explicit"},
            [this](std::function<void()> task) { side->run(std::move(task)); },
            [this] { return open.load(); }) {}
  const ServerOptions options;
  std::atomic<bool> draining{false};
  std::atomic<int64_t> open{0};
  std::mutex mutex;
  std::condition_variable closed;
  std::set<Session*> sessions;
  HttpApi api;
  std::optional<SideThread> side{std::in_place};  // ended before the io_context that its tasks answer through
};

// One connection. All its handlers run on one strand.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, Shared& shared) : stream_(std::move(socket)), shared_(shared) {
    const std::lock_guard lock(shared_.mutex);
    shared_.sessions.insert(this);
    ++shared_.open;
  }
  ~Session() {
    const std::lock_guard lock(shared_.mutex);
    shared_.sessions.erase(this);
    --shared_.open;
    shared_.closed.notify_all();
  }

  void start(bool one_too_many) {
    asio::post(stream_.get_executor(), [self = shared_from_this(), one_too_many] {
      error_code ignored;
      self->stream_.socket().set_option(tcp::no_delay(true), ignored);
      if (one_too_many)
        self->write_last(error_answer({Reason::overloaded, "too many connections"}));
      else
        self->read_head();
    });
  }

  // While draining: an idle connection is closed; others close after their answer.
  void close_if_idle() {
    asio::post(stream_.get_executor(), [self = shared_from_this()] {
      if (self->idle_) self->close();
    });
  }
  void cut() {
    asio::post(stream_.get_executor(), [self = shared_from_this()] { self->stream_.close(); });
  }

 private:
  template <typename Handler>
  auto on(Handler handler) {
    return beast::bind_front_handler(handler, shared_from_this());
  }

  void read_head() {
    parser_.emplace();
    parser_->header_limit(kMaxHeader);
    parser_->body_limit(static_cast<uint64_t>(shared_.options.max_body.value));
    idle_ = true;
    stream_.expires_after(duration(shared_.options.idle_timeout));
    http::async_read_header(stream_, buffer_, *parser_, on(&Session::got_head_static));
  }
  static void got_head_static(const std::shared_ptr<Session>& self, error_code error, size_t) {
    self->got_head(error);
  }

  void got_head(error_code error) {
    idle_ = false;
    if (error) return read_failed(error);
    stream_.expires_after(duration(shared_.options.request_timeout));
    const auto& head = parser_->get();
    if (beast::iequals(head[http::field::expect], "100-continue") && !parser_->is_done()) {
      continue_.emplace(http::status::continue_, head.version());
      http::async_write(stream_, *continue_, on(&Session::sent_continue_static));
    } else {
      read_body();
    }
  }
  static void sent_continue_static(const std::shared_ptr<Session>& self, error_code error, size_t) {
    error ? self->read_failed(error) : self->read_body();
  }

  void read_body() { http::async_read(stream_, buffer_, *parser_, on(&Session::got_body_static)); }
  static void got_body_static(const std::shared_ptr<Session>& self, error_code error, size_t) {
    error ? self->read_failed(error) : self->dispatch();
  }

  void read_failed(error_code error) {
    if (error == http::error::body_limit)
      return write_last(error_answer(
          {Reason::too_large, cat("the body is larger than ", to_text(shared_.options.max_body))}));
    if (error == http::error::header_limit) {
      HttpAnswer answer =
          error_answer({Reason::invalid, cat("the header is larger than ", kMaxHeader, " bytes")});
      answer.status = 431;
      return write_last(answer);
    }
    const bool gone = error == http::error::end_of_stream || error == beast::error::timeout ||
                      error.category() == asio::error::get_system_category() ||
                      error == http::error::partial_message;
    if (gone) return close();
    write_last(error_answer({Reason::invalid, cat("not an HTTP/1.1 request: ", error.message())}));
  }

  void dispatch() {
    stream_.expires_never();
    auto request = parser_->release();
    keep_alive_ = request.keep_alive();
    http_version_ = request.version();
    head_only_ = request.method() == http::verb::head;
    HttpCall call;
    call.verb = std::string(request.method_string());
    call.target = std::string(request.target());
    const auto header = [&request](auto field) -> std::optional<std::string> {
      const auto found = request.find(field);
      if (found == request.end()) return std::nullopt;
      return std::string(found->value());
    };
    call.content_type = header(http::field::content_type);
    call.content_encoding = header(http::field::content_encoding);
    call.json_bytes = header(kJsonBytes);
    call.arrived = steady_clock().now();
    call.body = std::make_shared<std::string>(std::move(request.body()));
    answered_ = false;
    pending_ = shared_.api.handle(std::move(call), [self = shared_from_this()](HttpApi::Answer answer) {
      asio::dispatch(self->stream_.get_executor(), [self, answer = std::move(answer)] {
        self->answered_ = true;
        self->pending_ = {};
        error_code ignored;
        if (self->watching_) self->stream_.socket().cancel(ignored);
        self->write(answer(), self->keep_alive_);
      });
    });
    if (!answered_) watch_client();
  }

  // While a request is under way, only its client's leaving makes the socket readable, or the next request.
  void watch_client() {
    if (buffer_.size() > 0) return;
    watching_ = true;
    stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
      self->watching_ = false;
      if (!error && !self->answered_) self->look_at_client();
    });
  }

  void look_at_client() {
    char byte;
    error_code peeked;
    stream_.socket().non_blocking(true, peeked);
    stream_.socket().receive(asio::buffer(&byte, 1), tcp::socket::message_peek, peeked);
    if (peeked == asio::error::would_block) return watch_client();
    if (peeked == asio::error::eof) return ask_client();
    if (peeked) pending_.cancel();
  }

  // It has ended its side. One that is gone altogether answers whatever it is sent with a reset; one that has
  // only finished sending still waits for its answer, and takes an interim response for what it is.
  void ask_client() {
    constexpr std::string_view kInterim = "HTTP/1.1 100 Continue\r\n\r\n";
    if (http_version_ < 11) return;
    error_code error;
    stream_.socket().send(asio::buffer(kInterim), 0, error);
    if (error) return pending_.cancel();
    watching_ = true;
    stream_.socket().async_wait(tcp::socket::wait_error, [self = shared_from_this()](error_code waited) {
      self->watching_ = false;
      if (!waited && !self->answered_) self->pending_.cancel();
    });
  }

  void write_last(const HttpAnswer& answer) {
    keep_alive_ = false;
    write(answer, false);
  }

  void write(HttpAnswer answer, bool keep_alive) {
    auto& r = response_.emplace(static_cast<http::status>(answer.status), http_version_);
    r.set(http::field::content_type, answer.content_type);
    if (answer.json_bytes) r.set(kJsonBytes, std::to_string(*answer.json_bytes));
    if (!answer.reason.empty()) r.set("Trireme-Reason", answer.reason);
    if (!answer.allow.empty()) r.set(http::field::allow, answer.allow);
    keep_alive_ = keep_alive && !shared_.draining;
    r.keep_alive(keep_alive_);
    r.content_length(answer.body.size());
    if (!head_only_) r.body() = std::move(answer.body);
    stream_.expires_after(duration(shared_.options.request_timeout));
    http::async_write(stream_, r, on(&Session::wrote_static));
  }
  static void wrote_static(const std::shared_ptr<Session>& self, error_code error, size_t) {
    self->response_.reset();
    if (error) return self->stream_.close();
    if (!self->keep_alive_) return self->linger();
    self->read_head();
  }

  // The client may still be sending; closing at once would reset the connection and lose the answer on its
  // way.
  void linger() {
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    if (ignored) return close();
    stream_.expires_after(std::chrono::seconds(1));
    buffer_.clear();
    discard();
  }
  void discard() {
    stream_.async_read_some(asio::buffer(discarded_), [self = shared_from_this()](error_code error, size_t) {
      error ? self->close() : self->discard();
    });
  }

  void close() {
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close();
  }

  beast::tcp_stream stream_;
  Shared& shared_;
  beast::flat_buffer buffer_{kMaxHeader + (64 << 10)};
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<http::response<http::empty_body>> continue_;
  std::optional<http::response<http::string_body>> response_;
  Pending pending_;
  bool idle_ = false, keep_alive_ = false, head_only_ = false, answered_ = false, watching_ = false;
  unsigned http_version_ = 11;
  std::array<char, 4096> discarded_{};
};

}  // namespace

class HttpServer::State {
 public:
  State(Service& service, const ServerOptions& options)
      : shared_(service, options),
        context_(static_cast<int>(options.http_threads)),
        acceptor_(asio::make_strand(context_)) {
    listen(options);
    accept();
    for (int64_t i = 0; i < options.http_threads; ++i) threads_.emplace_back([this] { context_.run(); });
  }

  ~State() {
    shared_.side.reset();
    asio::post(acceptor_.get_executor(), [this] {
      error_code ignored;
      acceptor_.close(ignored);
    });
    each_session([](Session& s) { s.cut(); });
    context_.stop();
    for (auto& thread : threads_) thread.join();
  }

  uint16_t port() const { return port_; }

  bool drain(double timeout_s) {
    shared_.draining = true;
    // Connections that the kernel has already accepted are served too, so the socket closes after a last
    // round.
    asio::post(acceptor_.get_executor(), [this] {
      error_code error;
      acceptor_.non_blocking(true, error);
      while (!error) {
        tcp::socket socket(asio::make_strand(context_));
        acceptor_.accept(socket, error);
        if (!error) std::make_shared<Session>(std::move(socket), shared_)->start(false);
      }
      acceptor_.close(error);
    });
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                            std::chrono::duration<double>(timeout_s));
    // Idle clients get a moment to send what they were about to send; the answer then tells them to close.
    constexpr auto kGrace = std::chrono::milliseconds(500);
    std::unique_lock lock(shared_.mutex);
    const auto none = [this] { return shared_.sessions.empty(); };
    shared_.closed.wait_until(lock, std::min(end, std::chrono::steady_clock::now() + kGrace), none);
    lock.unlock();
    each_session([](Session& s) { s.close_if_idle(); });
    lock.lock();
    return shared_.closed.wait_until(lock, end, none);
  }

 private:
  void listen(const ServerOptions& options) {
    error_code error;
    const auto address = asio::ip::make_address(options.host, error);
    if (error)
      fail(ErrorCode::usage, "server.host = '", options.host, "': must be an IP address, such as 127.0.0.1");
    const tcp::endpoint endpoint(address, static_cast<uint16_t>(options.http_port));
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error)
      fail(ErrorCode::io, "cannot listen on ", options.host, " port ", options.http_port, ": ",
           error.message(), "; choose another server.http_port");
    port_ = acceptor_.local_endpoint().port();
  }

  void accept() {
    acceptor_.async_accept(asio::make_strand(context_), [this](error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted || !acceptor_.is_open()) return;
      if (error) {  // out of file descriptors: look again when some may have been closed
        log::warning(cat("a connection could not be accepted: ", error.message()));
        retry_.expires_after(std::chrono::milliseconds(100));
        retry_.async_wait([this](error_code cancelled) {
          if (!cancelled) accept();
        });
        return;
      }
      const bool one_too_many = shared_.open >= shared_.options.max_connections;
      std::make_shared<Session>(std::move(socket), shared_)->start(one_too_many);
      accept();
    });
  }

  template <typename Act>
  void each_session(Act act) {
    std::vector<std::shared_ptr<Session>> alive;  // let go without the lock, which a session's end takes
    {
      const std::lock_guard lock(shared_.mutex);
      for (Session* session : shared_.sessions)
        if (auto one = session->weak_from_this().lock()) alive.push_back(std::move(one));
    }
    for (const auto& session : alive) act(*session);
  }

  Shared shared_;
  asio::io_context context_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_{context_};
  uint16_t port_ = 0;
  std::vector<std::thread> threads_;
};

HttpServer::HttpServer(Service& service, const ServerOptions& options)
    : state_(std::make_unique<State>(service, options)) {}
HttpServer::~HttpServer() = default;
uint16_t HttpServer::port() const {
  return state_->port();
}
bool HttpServer::drain(double timeout_s) {
  return state_->drain(timeout_s);
}

}  // namespace trireme::serve
