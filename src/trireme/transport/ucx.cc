// UCX's tagged messages (docs/design/transport.md has the choices). Besides the caller's messages each rank
// exchanges two of its own with every peer: a greeting, so that an unreachable peer is found before training
// starts, and a farewell, so that a rank that has finished is not taken for a dead one.
#include <poll.h>
#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <list>
#include <utility>

#include "trireme/base/environment.h"
#include "trireme/transport/interfaces.h"
#include "trireme/transport/transport.h"
#include "trireme/transport/wake_event.h"

namespace trireme::transport {
namespace {

constexpr MessageId kGreeting{kChannels, 0, 0, 0}, kFarewell{kChannels, 0, 0, 1};
constexpr double kShort = 0.5;  // seconds given to messages and closings that nobody depends on

struct Free {
  void operator()(ucp_context* context) const { ucp_cleanup(context); }
  void operator()(ucp_worker* worker) const { ucp_worker_destroy(worker); }
};
using Context = std::unique_ptr<ucp_context, Free>;
using Worker = std::unique_ptr<ucp_worker, Free>;

void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) fail(ErrorCode::internal, "UCX: ", what, ": ", ucs_status_string(status));
}

Context make_context(const TransportOptions& options) {
  ucp_config_t* config = nullptr;
  check(ucp_config_read(nullptr, nullptr, &config), "reading its configuration");
  const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> owner(config, ucp_config_release);
  // Processes that die are noticed by their connections, or by these checks where shared memory joins us.
  check(ucp_config_modify(config, "KEEPALIVE_INTERVAL", "2s"), "KEEPALIVE_INTERVAL");
  if (!options.interface_name.empty()) {
    check(ucp_config_modify(config, "TLS", "tcp"), "TLS");
    check(ucp_config_modify(config, "NET_DEVICES", options.interface_name.c_str()), "NET_DEVICES");
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  ucp_context_h context = nullptr;
  check(ucp_init(&params, config, &context), "starting");
  return Context(context);
}

Worker make_worker(ucp_context* context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // made by one thread, used by another
  ucp_worker_h worker = nullptr;
  check(ucp_worker_create(context, &params, &worker), "making a worker");
  return Worker(worker);
}

class Ucx : public Transport {
 public:
  Ucx(int rank, int size, Store& store, const TransportOptions& options);
  ~Ucx() override;

  std::string_view name() const override { return "ucx"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  void send(int peer, MessageId id, std::span<const std::byte> data, Completion done) override;
  void receive(int peer, MessageId id, std::span<std::byte> into, Completion done) override;
  void progress(Deadline deadline) override;
  void wake() override { wake_.set(); }
  void cancel(const Failure& why) override;
  Traffic traffic() const override { return {bytes_sent_, bytes_received_}; }

 private:
  using Farewell = std::array<char, 256>;  // the reason as text; empty when all is well
  struct Peer {
    Ucx* owner = nullptr;
    ucp_ep_h endpoint = nullptr;
    bool greeted = false;
    std::string broken;           // what UCX reported
    std::optional<Failure> gone;  // why nothing can be exchanged with it any more
    Farewell farewell{};          // received
  };
  struct Transfer {
    Ucx* owner;
    int peer;
    MessageId id;
    size_t size;
    bool is_send;
    Completion done;
    void* request = nullptr;
    std::list<Transfer>::iterator self{};
    bool* over = nullptr;  // set when it ends, while its post has not returned
    bool own() const { return id.channel == kChannels; }
  };
  struct Ready {
    Completion done;
    Status status;
  };

  void connect(Store& store);
  std::string address() const;
  ucp_ep_h make_endpoint(Peer& peer, const std::string& address);
  void greet();
  [[noreturn]] void no_connection(const Peer& peer, ErrorCode code, const std::string& why) const;
  bool refuse(int peer, Completion& done);
  void post_send(int peer, MessageId id, std::span<const std::byte> data, Completion done);
  void post_receive(int peer, MessageId id, std::span<std::byte> into, Completion done);
  Transfer& add_transfer(Transfer transfer);
  void posted(Transfer& transfer, void* request, size_t received);
  void complete(Transfer& transfer, ucs_status_t status, size_t received);
  Status outcome(const Transfer& transfer, ucs_status_t status, size_t received);

  bool turn();     // lets UCX work, delivers completions, sees to broken peers; true: try again
  bool deliver();  // true when there was something
  void sleep(Deadline deadline);  // until an event, a wake or the deadline
  template <typename Condition>
  void progress_until(Condition condition, Deadline deadline);

  void handle_broken();
  void leave(int peer, Failure why);  // ends what is outstanding with a peer that is gone
  void cancel_receives(int peer);
  void say_farewell(const std::string& reason);
  void close_endpoint(Peer& peer);
  void shut_down();

  int rank_;
  Seconds timeout_;
  Context context_;
  Worker worker_;
  WakeEvent wake_;
  int event_fd_ = -1;
  std::vector<Peer> peers_;
  bool any_broken_ = false, delivered_ = false;
  std::list<Transfer> outstanding_;
  std::vector<Ready> ready_;
  std::vector<void*> closing_;  // requests without a callback
  std::optional<Failure> stopped_;
  Farewell own_farewell_{};
  std::atomic<int64_t> bytes_sent_ = 0, bytes_received_ = 0;
};

// --- connections

Ucx::Ucx(int rank, int size, Store& store, const TransportOptions& options)
    : rank_(rank),
      timeout_(options.timeout),
      context_(make_context(options)),
      worker_(make_worker(context_.get())),
      peers_(static_cast<size_t>(size)) {
  check(ucp_worker_get_efd(worker_.get(), &event_fd_), "its event descriptor");
  try {
    connect(store);
    greet();
  } catch (const Error& e) {
    cancel({e.code(), e.what()});
    throw;
  }
}

std::string Ucx::address() const {
  ucp_address_t* address = nullptr;
  size_t length = 0;
  check(ucp_worker_get_address(worker_.get(), &address, &length), "its address");
  std::string bytes(reinterpret_cast<const char*>(address), length);
  ucp_worker_release_address(worker_.get(), address);
  return bytes;
}

void Ucx::no_connection(const Peer& peer, ErrorCode code, const std::string& why) const {
  fail(code, "rank ", rank_, ": no connection to rank ", &peer - peers_.data(), ": ", why,
       "; do all ranks use a network (transport.interface) on which they reach each other?");
}

ucp_ep_h Ucx::make_endpoint(Peer& peer, const std::string& address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = &peer;
  params.err_handler.cb = [](void* arg, ucp_ep_h, ucs_status_t status) {
    auto& p = *static_cast<Peer*>(arg);  // inside ucp_worker_progress: only note it
    p.broken = ucs_status_string(status);
    p.owner->any_broken_ = true;
  };
  ucp_ep_h endpoint = nullptr;
  const ucs_status_t status = ucp_ep_create(worker_.get(), &params, &endpoint);
  if (status != UCS_OK) no_connection(peer, ErrorCode::io, ucs_status_string(status));
  return endpoint;
}

void Ucx::connect(Store& store) {
  // Counted per rank, so that a second world over the same store does not read the first one's addresses.
  const auto world = store.add(cat("trireme/ucx/worlds/", rank_), 1);
  const auto key = [&](int r) { return cat("trireme/ucx/", world, "/", r); };
  store.set(key(rank_), address());
  const Deadline deadline = Deadline::after(steady_clock(), timeout_.value);
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    const double left = std::max(0.001, (deadline.at - steady_clock().now()).count() * 1e-9);
    auto address = store.get(key(r), Seconds{left});
    if (!address.ok()) {
      fail(address.failure().code, "rank ", rank_, ": rank ", r, " did not join within ",
           for_people(timeout_), " (transport.timeout): ", address.failure().message);
    }
    Peer& peer = peers_[static_cast<size_t>(r)];
    peer.owner = this;
    peer.endpoint = make_endpoint(peer, address.value());
  }
}

void Ucx::greet() {
  for (int r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    Peer& peer = peers_[static_cast<size_t>(r)];
    post_receive(
        r, kFarewell, std::as_writable_bytes(std::span(peer.farewell)), [this, r, &peer](const Status& s) {
          if (!s.ok() || peer.gone) return;
          const std::string reason(peer.farewell.data(), strnlen(peer.farewell.data(), peer.farewell.size()));
          leave(r, {ErrorCode::peer_lost,
                    cat("rank ", r, reason.empty() ? " has ended" : " is gone (" + reason + ")")});
        });
    post_receive(r, kGreeting, {}, [&peer](const Status& s) { peer.greeted = s.ok(); });
    post_send(r, kGreeting, {}, [](const Status&) {});
  }
  const auto settled = [](const Peer& p) { return p.owner == nullptr || p.greeted || p.gone; };
  progress_until([&] { return std::all_of(peers_.begin(), peers_.end(), settled); },
                 Deadline::after(steady_clock(), timeout_.value));
  for (int r = 0; r < size(); ++r) {
    const Peer& peer = peers_[static_cast<size_t>(r)];
    if (r == rank_ || peer.greeted) continue;
    if (peer.gone) no_connection(peer, peer.gone->code, peer.gone->message);
    no_connection(peer, ErrorCode::timeout,
                  cat("no answer within ", for_people(timeout_), " (transport.timeout)"));
  }
}

// --- transfers

// True when a post cannot succeed any more; its completion is then on its way.
bool Ucx::refuse(int peer, Completion& done) {
  TRIREME_CHECK(peer >= 0 && peer < size() && peer != rank_, "peer ", peer, " of rank ", rank_);
  const auto& gone = stopped_ ? stopped_ : peers_[static_cast<size_t>(peer)].gone;
  if (gone) ready_.push_back({std::move(done), *gone});
  return gone.has_value();
}

void Ucx::send(int peer, MessageId id, std::span<const std::byte> data, Completion done) {
  if (!refuse(peer, done)) post_send(peer, id, data, std::move(done));
}

void Ucx::receive(int peer, MessageId id, std::span<std::byte> into, Completion done) {
  TRIREME_CHECK(peer >= 0 && peer < size() && peer != rank_, "peer ", peer, " of rank ", rank_);
  if (stopped_) {
    refuse(peer, done);
    return;
  }
  // Also of a peer that is gone: its last messages may be here already.
  post_receive(peer, id, into, std::move(done));
  if (peers_[static_cast<size_t>(peer)].gone) cancel_receives(peer);
}

Ucx::Transfer& Ucx::add_transfer(Transfer transfer) {
  outstanding_.push_back(std::move(transfer));
  outstanding_.back().self = std::prev(outstanding_.end());
  return outstanding_.back();
}

void Ucx::post_send(int peer, MessageId id, std::span<const std::byte> data, Completion done) {
  const uint64_t tag = to_tag(rank_, id);
  Transfer& transfer = add_transfer({this, peer, id, data.size(), true, std::move(done)});
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.user_data = &transfer;
  params.cb.send = [](void* request, ucs_status_t status, void* user) {
    auto& t = *static_cast<Transfer*>(user);
    t.owner->complete(t, status, t.size);
    ucp_request_free(request);
  };
  posted(transfer,
         ucp_tag_send_nbx(peers_[static_cast<size_t>(peer)].endpoint, data.data(), data.size(), tag, &params),
         data.size());
}

void Ucx::post_receive(int peer, MessageId id, std::span<std::byte> into, Completion done) {
  const uint64_t tag = to_tag(peer, id);
  Transfer& transfer = add_transfer({this, peer, id, into.size(), false, std::move(done)});
  bool over = false;
  transfer.over = &over;
  ucp_request_param_t params{};
  // UCX 1.13 tells the length of a message that is already here to the callback alone, so the callback is
  // forced.
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.user_data = &transfer;
  params.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t* received, void* user) {
    auto& t = *static_cast<Transfer*>(user);
    t.owner->complete(t, status, received->length);
    ucp_request_free(request);
  };
  void* request = ucp_tag_recv_nbx(worker_.get(), into.data(), into.size(), tag, ~uint64_t{0}, &params);
  if (over) return;
  transfer.over = nullptr;
  posted(transfer, request, 0);
}

// UCX answers a post with an error, with nothing (done at once, no callback), or with a request (callback
// later).
void Ucx::posted(Transfer& transfer, void* request, size_t received) {
  if (request == nullptr) {
    complete(transfer, UCS_OK, received);
  } else if (UCS_PTR_IS_ERR(request)) {
    complete(transfer, UCS_PTR_STATUS(request), received);
  } else {
    transfer.request = request;
  }
}

Status Ucx::outcome(const Transfer& t, ucs_status_t status, size_t received) {
  if (status == UCS_ERR_MESSAGE_TRUNCATED || (status == UCS_OK && received != t.size)) {
    return size_mismatch(t.peer, t.id, received, t.size);
  }
  if (status == UCS_OK) return ok_status();
  if (stopped_) return *stopped_;
  const Peer& peer = peers_[static_cast<size_t>(t.peer)];
  if (peer.gone) return *peer.gone;
  return Failure{ErrorCode::peer_lost, cat("rank ", t.peer, " is gone (", ucs_status_string(status), ")")};
}

void Ucx::complete(Transfer& transfer, ucs_status_t status, size_t received) {
  Status result = outcome(transfer, status, received);
  if (result.ok() && !transfer.own())
    (transfer.is_send ? bytes_sent_ : bytes_received_) += static_cast<int64_t>(received);
  ready_.push_back({std::move(transfer.done), std::move(result)});
  if (transfer.over != nullptr) *transfer.over = true;
  outstanding_.erase(transfer.self);
}

// --- progress

bool Ucx::deliver() {
  auto batch = std::exchange(ready_, {});
  for (auto& r : batch) r.done(std::move(r.status));
  return !batch.empty();
}

bool Ucx::turn() {
  while (worker_ && ucp_worker_progress(worker_.get()) != 0 && ready_.empty()) {
  }
  // Completions before broken connections: a farewell that came first says more.
  if (deliver()) {
    delivered_ = true;
    return true;
  }
  if (any_broken_) {
    handle_broken();
    return true;
  }
  std::erase_if(closing_, [](void* request) {
    const bool over = ucp_request_check_status(request) != UCS_INPROGRESS;
    if (over) ucp_request_free(request);
    return over;
  });
  return false;
}

void Ucx::progress(Deadline deadline) {
  delivered_ = false;
  for (;;) {
    const bool again = turn();
    if (delivered_ || wake_.take() || steady_clock().now() >= deadline.at) return;
    if (!again) sleep(deadline);
  }
}

template <typename Condition>
void Ucx::progress_until(Condition condition, Deadline deadline) {
  for (;;) {
    const bool again = turn();
    if (condition() || steady_clock().now() >= deadline.at) return;
    if (!again) sleep(deadline);
  }
}

void Ucx::sleep(Deadline deadline) {
  if (worker_ && ucp_worker_arm(worker_.get()) == UCS_ERR_BUSY) return;  // something has come in meanwhile
  pollfd events[] = {{wake_.fd(), POLLIN, 0}, {event_fd_, POLLIN, 0}};
  const auto left = std::max(Clock::Nanoseconds{0}, deadline.at - steady_clock().now());
  const timespec limit{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
  const int n = ppoll(events, worker_ ? 2 : 1, &limit, nullptr);
  TRIREME_CHECK(n >= 0 || errno == EINTR, std::strerror(errno));
  if (n > 0 && events[0].revents != 0) wake_.drain();
}

// --- endings

void Ucx::handle_broken() {
  any_broken_ = false;
  for (int r = 0; r < size(); ++r) {
    Peer& peer = peers_[static_cast<size_t>(r)];
    if (peer.broken.empty() || peer.endpoint == nullptr) continue;
    close_endpoint(peer);
    if (!peer.gone) leave(r, {ErrorCode::peer_lost, cat("rank ", r, " is gone (", peer.broken, ")")});
  }
}

// What the peer sent before it went has been matched or lies in UCX's queue; what is still outstanding never
// ends.
void Ucx::leave(int peer, Failure why) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  p.gone = std::move(why);
  cancel_receives(peer);
  const bool sending = std::any_of(outstanding_.begin(), outstanding_.end(), [&](const Transfer& t) {
    return t.peer == peer && t.is_send && !t.own();
  });
  if (sending) close_endpoint(p);  // sends end only with their endpoint
}

void Ucx::cancel_receives(int peer) {
  std::vector<void*> requests;  // first: cancelling completes, which changes the list
  for (const Transfer& t : outstanding_) {
    if (t.peer == peer && !t.is_send && t.request != nullptr) requests.push_back(t.request);
  }
  for (void* request : requests) ucp_request_cancel(worker_.get(), request);
}

void Ucx::close_endpoint(Peer& peer) {
  if (peer.endpoint == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = ucp_ep_close_nbx(std::exchange(peer.endpoint, nullptr), &params);
  if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
}

// The message is delivered, or its peer known to be gone, once the endpoint is flushed.
void Ucx::say_farewell(const std::string& reason) {
  own_farewell_.fill('\0');
  reason.copy(own_farewell_.data(), own_farewell_.size() - 1);
  for (int r = 0; r < size(); ++r) {
    const Peer& peer = peers_[static_cast<size_t>(r)];
    if (peer.endpoint == nullptr || !peer.broken.empty()) continue;
    post_send(r, kFarewell, std::as_bytes(std::span(own_farewell_)), [](const Status&) {});
    const ucp_request_param_t params{};
    void* request = ucp_ep_flush_nbx(peer.endpoint, &params);
    if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
  }
}

void Ucx::cancel(const Failure& why) {
  if (stopped_) return;
  stopped_ = why;
  say_farewell(why.message.empty() ? "it was stopped" : why.message);
  progress_until([&] { return closing_.empty(); }, Deadline::after(steady_clock(), kShort));
  shut_down();
}

// Afterwards nothing touches anybody's memory, and every completion has run.
void Ucx::shut_down() {
  for (int r = 0; r < size(); ++r) {
    cancel_receives(r);
    close_endpoint(peers_[static_cast<size_t>(r)]);
  }
  progress_until([&] { return outstanding_.empty() && closing_.empty(); },
                 Deadline::after(steady_clock(), kShort));
  worker_.reset();
  closing_.clear();
  for (auto& t : std::exchange(outstanding_, {})) ready_.push_back({std::move(t.done), *stopped_});
  while (deliver()) {
  }
}

// A rank that has finished waits for the others' farewells, so that its last messages reach them; one that
// leaves by an exception does not.
Ucx::~Ucx() {
  if (!stopped_) {
    if (std::any_of(outstanding_.begin(), outstanding_.end(), [](const Transfer& t) { return !t.own(); })) {
      cancel({ErrorCode::cancelled, "it was closed with transfers outstanding"});
      return;
    }
    say_farewell("");
    const auto settled = [](const Peer& p) { return p.owner == nullptr || p.gone; };
    const double limit = std::uncaught_exceptions() > 0 ? kShort : timeout_.value;
    progress_until([&] { return closing_.empty() && std::all_of(peers_.begin(), peers_.end(), settled); },
                   Deadline::after(steady_clock(), limit));
    stopped_ = Failure{ErrorCode::cancelled, "the transport was closed"};
    shut_down();
  }
}

}  // namespace

std::unique_ptr<Transport> make_ucx(int rank, int size, Store& store, const TransportOptions& options) {
  if (size > kMaxRanks) fail(ErrorCode::usage, size, " ranks are more than ", kMaxRanks);
  const auto refuse = [](const char* key, const char* what) {
    fail(ErrorCode::unsupported, "transport.", key, ": kind \"ucx\" ", what);
  };
  if (options.connections > 1) refuse("connections", "has one connection per pair; set 1");
  if (!options.secret_file.empty())
    refuse("secret_file", "does not authenticate; leave it out on a network you trust");
  if (!options.interface_name.empty()) find_interface(options.interface_name);
  // A dying peer is ours to report, in one line; UCX would add its own. Its variable still turns them on.
  if (!environment("UCX_LOG_LEVEL")) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
  return std::make_unique<Ucx>(rank, size, store, options);
}

}  // namespace trireme::transport
