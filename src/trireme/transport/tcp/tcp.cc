// Plain sockets: a number of connections between each two ranks, one epoll for all of them. The parts without
// sockets are Inbox (matching), Reader and Outbox (frames); join() makes the connections.
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "trireme/transport/interfaces.h"
#include "trireme/transport/tcp/join.h"
#include "trireme/transport/tcp/outbox.h"
#include "trireme/transport/tcp/reader.h"
#include "trireme/transport/tcp/secret.h"
#include "trireme/transport/transport.h"
#include "trireme/transport/wake_event.h"

namespace trireme::transport {
namespace {

using tcp::Delivery;
using tcp::Fd;

constexpr double kShort = 0.5;  // seconds given to farewells that nobody depends on
constexpr uint64_t kWakeEvent = ~uint64_t{0};
constexpr uint64_t kWakesAt = uint64_t{256} << 10;
constexpr size_t kReadsInTurn = 16;  // then a connection gives way to the others

class Tcp : public Transport {
 public:
  Tcp(int rank, int size, Store& store, const TransportOptions& options);
  ~Tcp() override;

  std::string_view name() const override { return "tcp"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  void send(int peer, MessageId id, std::span<const std::byte> data, Completion done) override;
  void receive(int peer, MessageId id, std::span<std::byte> into, Completion done) override;
  void progress(Deadline deadline) override;
  void wake() override { wake_.set(); }
  void cancel(const Failure& why) override;
  Traffic traffic() const override { return {bytes_sent_, bytes_received_}; }

 private:
  struct Connection {
    Connection(Fd fd, tcp::Inbox& inbox, int peer) : socket(std::move(fd)), reader(inbox, peer) {}
    Fd socket;
    tcp::Reader reader;
    bool full = false;     // the kernel takes no more; an event will come
    bool hung_up = false;  // shall be read to its end, which has come or is near
    std::string broken;    // why it is of no use any more
    int wakes_at = 1;      // bytes that must be there before the kernel tells us
  };
  struct Peer {
    Peer(int rank, int connections, std::vector<Delivery>& deliveries)
        : inbox(rank, deliveries), outbox(connections, deliveries) {}
    tcp::Inbox inbox;
    tcp::Outbox outbox;
    std::vector<Connection> connections;
    std::optional<Failure> gone;  // why nothing can be exchanged with it any more
    bool dirty = false;           // in dirty_
  };
  struct Place {  // a connection
    int rank, index;
  };

  void adopt(std::vector<std::vector<Fd>> sockets);
  void prepare(const Fd& socket) const;
  void watch(int fd, uint64_t name, uint32_t events);
  Peer& peer(int rank);
  template <typename Action>
  void for_each_present(Action action);

  void flush();  // writes what goes at once
  void touch(int rank);
  void write(Place place);
  void wait(Deadline deadline);  // until an event or the deadline; reads what there is
  int next_events(std::span<epoll_event> events, Deadline deadline);
  void read(Place place);
  bool read_once(Connection& connection);  // true: there may be more
  void ask_for_more(Connection& connection);
  void look_after(int rank);
  void drain(Peer& peer);
  void leave(int rank, Failure why);
  bool deliver();  // true when there was something
  void part(const std::string& reason, double seconds);
  void close_all(const Failure& why);

  int rank_;
  Seconds timeout_;
  Fd epoll_;
  WakeEvent wake_;
  std::vector<Delivery> deliveries_;
  std::vector<std::unique_ptr<Peer>> peers_;  // null: this rank
  std::vector<int> dirty_;                    // peers that may have something to write
  std::vector<Place> readable_;               // connections that gave way to others
  bool woken_ = false;                        // wake() was called since progress() returned
  std::optional<Failure> stopped_;
  std::atomic<int64_t> bytes_sent_ = 0, bytes_received_ = 0;
};

// --- connections

Tcp::Tcp(int rank, int size, Store& store, const TransportOptions& options)
    : rank_(rank), timeout_(options.timeout), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) fail(ErrorCode::io, "epoll: ", std::strerror(errno));
  watch(wake_.fd(), kWakeEvent, EPOLLIN);
  const std::string secret = options.secret_file.empty() ? "" : tcp::read_secret(options.secret_file);
  adopt(tcp::join(store, {.rank = rank,
                          .size = size,
                          .connections = static_cast<int>(options.connections),
                          .interfaces = names_in(options.interface_name),
                          .secret = secret,
                          .timeout = options.timeout}));
}

void Tcp::watch(int fd, uint64_t name, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = name;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    fail(ErrorCode::io, "epoll: ", std::strerror(errno));
}

void Tcp::adopt(std::vector<std::vector<Fd>> sockets) {
  for (int r = 0; r < static_cast<int>(sockets.size()); ++r) {
    auto& of_rank = sockets[static_cast<size_t>(r)];
    peers_.push_back(r == rank_ ? nullptr
                                : std::make_unique<Peer>(r, static_cast<int>(of_rank.size()), deliveries_));
    for (Fd& socket : of_rank) {
      Peer& p = *peers_.back();
      prepare(socket);
      // Edge-triggered, so that nothing is armed and disarmed: both directions are tried until they block.
      watch(socket.get(), static_cast<uint64_t>(r) << 32 | p.connections.size(),
            EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
      p.connections.emplace_back(std::move(socket), p.inbox, r);
    }
  }
}

void Tcp::prepare(const Fd& socket) const {
  const auto set = [&](int level, int option, int value) {
    setsockopt(socket.get(), level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  // A cable that is cut is noticed in transport.timeout also where nothing is being sent.
  const int seconds = std::clamp(static_cast<int>(timeout_.value), 4, 32767);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, seconds / 4);
  set(IPPROTO_TCP, TCP_KEEPINTVL, seconds / 4);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 1000);
}

Tcp::Peer& Tcp::peer(int rank) {
  TRIREME_CHECK(rank >= 0 && rank < size() && rank != rank_, "peer ", rank, " of rank ", rank_);
  return *peers_[static_cast<size_t>(rank)];
}

// --- transfers

void Tcp::send(int to, MessageId id, std::span<const std::byte> data, Completion done) {
  Peer& p = peer(to);
  const uint64_t tag = to_tag(rank_, id);
  if (const auto& gone = stopped_ ? stopped_ : p.gone) {
    deliveries_.push_back({std::move(done), *gone});
  } else {
    p.outbox.post(tag, data, std::move(done));
    touch(to);
  }
}

void Tcp::receive(int from, MessageId id, std::span<std::byte> into, Completion done) {
  Peer& p = peer(from);
  if (stopped_) {
    deliveries_.push_back({std::move(done), *stopped_});
  } else {
    p.inbox.post(id, into, std::move(done));  // also of a peer that is gone: its last messages may be here
  }
}

// --- progress

void Tcp::touch(int rank) {
  Peer& p = peer(rank);
  if (!std::exchange(p.dirty, true)) dirty_.push_back(rank);
}

// The connections of a pair share one queue of large messages, and each takes as much as its socket does.
void Tcp::flush() {
  for (const int r : std::exchange(dirty_, {})) {
    Peer& p = peer(r);
    p.dirty = false;
    for (size_t c = 0; c < p.connections.size(); ++c) write({r, static_cast<int>(c)});
  }
}

void Tcp::write(Place place) {
  Peer& p = peer(place.rank);
  Connection& c = p.connections[static_cast<size_t>(place.index)];
  while (c.socket && !c.full && !c.hung_up) {
    const auto& parts = p.outbox.gather(place.index);
    if (parts.empty()) return;
    size_t wanted = 0;
    for (const iovec& part : parts) wanted += part.iov_len;
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    const ssize_t n = sendmsg(c.socket.get(), &message, MSG_NOSIGNAL);
    if (n >= 0) {
      p.outbox.wrote(place.index, static_cast<size_t>(n));
      c.full = static_cast<size_t>(n) < wanted;
    } else if (errno == EAGAIN) {
      c.full = true;
    } else if (errno != EINTR) {
      // What the peer sent before is worth reading: perhaps it says why.
      c.hung_up = true;
      readable_.push_back(place);
    }
  }
}

// epoll_pwait2 came with Linux 5.11; before it, poll() does the waiting.
int Tcp::next_events(std::span<epoll_event> events, Deadline deadline) {
  const auto left = std::max(Clock::Nanoseconds{0}, deadline.at - steady_clock().now());
  const timespec limit{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
  const int most = static_cast<int>(events.size());
  int n = epoll_pwait2(epoll_.get(), events.data(), most, &limit, nullptr);
  if (n < 0 && (errno == ENOSYS || errno == EPERM)) {
    pollfd any{epoll_.get(), POLLIN, 0};
    n = ppoll(&any, 1, &limit, nullptr);
    if (n >= 0) n = epoll_wait(epoll_.get(), events.data(), most, 0);
  }
  TRIREME_CHECK(n >= 0 || errno == EINTR, std::strerror(errno));
  return std::max(n, 0);
}

void Tcp::wait(Deadline deadline) {
  std::array<epoll_event, 64> events;
  const int n = next_events(events, readable_.empty() ? deadline : Deadline{});
  auto places = std::exchange(readable_, {});
  for (const epoll_event& event : std::span(events).first(static_cast<size_t>(n))) {
    if (event.data.u64 == kWakeEvent) {
      wake_.drain();
      continue;
    }
    const Place place{static_cast<int>(event.data.u64 >> 32), static_cast<int>(event.data.u64 & 0xffffffff)};
    Connection& c = peer(place.rank).connections[static_cast<size_t>(place.index)];
    if ((event.events & EPOLLOUT) != 0 && std::exchange(c.full, false)) touch(place.rank);
    if ((event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) c.hung_up = true;
    if ((event.events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) places.push_back(place);
  }
  // After every sleep, and after the bell was emptied: a flag that stood beside an empty bell would let the
  // next sleep go on for ever.
  woken_ = wake_.take() || woken_;
  for (const Place& place : places) read(place);
  // Messages before endings: what a peer sent last is still received, and its farewell says more than a
  // closed connection.
  for (const Place& place : places) look_after(place.rank);
}

void Tcp::read(Place place) {
  Connection& c = peer(place.rank).connections[static_cast<size_t>(place.index)];
  for (size_t turn = 0; c.socket && c.broken.empty(); ++turn) {
    if (turn == kReadsInTurn) {
      readable_.push_back(place);
      return;
    }
    if (!read_once(c)) return ask_for_more(c);
  }
}

// In the middle of a large payload a wake-up for every packet would cost more than the packet.
void Tcp::ask_for_more(Connection& c) {
  const int bytes = static_cast<int>(std::clamp<uint64_t>(c.reader.missing(), 1, kWakesAt));
  if (bytes == c.wakes_at || !c.broken.empty()) return;
  c.wakes_at = bytes;
  setsockopt(c.socket.get(), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

bool Tcp::read_once(Connection& c) {
  try {
    const auto& places = c.reader.places();
    size_t room = 0;
    for (const iovec& place : places) room += place.iov_len;
    const ssize_t n = readv(c.socket.get(), places.data(), static_cast<int>(places.size()));
    if (n > 0) {
      const Status status = c.reader.took(static_cast<size_t>(n));
      if (!status) c.broken = status.failure().message;
      // A read that leaves room has emptied the socket, unless its end has been announced.
      return status && (c.hung_up || static_cast<size_t>(n) == room);
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
    c.broken = n == 0 ? "its connection was closed" : std::strerror(errno);
  } catch (const std::bad_alloc&) {
    c.broken = "no memory for what it sends unasked";
  }
  return false;
}

bool Tcp::deliver() {
  auto batch = std::exchange(deliveries_, {});
  for (Delivery& d : batch) {
    bytes_sent_ += d.sent;
    bytes_received_ += d.received;
    d.done(std::move(d.status));
  }
  return !batch.empty();
}

void Tcp::progress(Deadline deadline) {
  for (;;) {
    flush();
    wait(deliveries_.empty() && !woken_ ? deadline : Deadline{});
    const bool woken = std::exchange(woken_, false);
    if (deliver() || woken || steady_clock().now() >= deadline.at) return;
  }
}

// --- endings

template <typename Action>
void Tcp::for_each_present(Action action) {
  for (int r = 0; r < size(); ++r) {
    if (r != rank_ && !peer(r).gone) action(r, peer(r));
  }
}

// A peer has ended when its farewell is the last thing on all its connections, or one of them gives a reason,
// or one is broken.
void Tcp::look_after(int rank) {
  Peer& p = peer(rank);
  if (p.gone) return;
  const auto& all = p.connections;
  const auto has_reason = [](const Connection& c) { return !c.reader.farewell().value_or("").empty(); };
  const auto is_broken = [](const Connection& c) { return !c.broken.empty(); };
  const auto has_farewell = [](const Connection& c) { return c.reader.farewell().has_value(); };
  const bool ended = std::all_of(all.begin(), all.end(), has_farewell);
  if (!ended && std::none_of(all.begin(), all.end(), has_reason) &&
      std::none_of(all.begin(), all.end(), is_broken)) {
    return;
  }
  drain(p);
  std::string why;
  if (const auto c = std::find_if(all.begin(), all.end(), is_broken); c != all.end() && !has_farewell(*c)) {
    why = c->broken;
  }
  if (const auto c = std::find_if(all.begin(), all.end(), has_reason); c != all.end())
    why = *c->reader.farewell();
  leave(rank,
        {ErrorCode::peer_lost, cat("rank ", rank, why.empty() ? " has ended" : " is gone (" + why + ")")});
}

void Tcp::drain(Peer& p) {
  for (Connection& c : p.connections) {
    while (c.broken.empty() && read_once(c)) {
    }
  }
}

void Tcp::leave(int rank, Failure why) {
  Peer& p = peer(rank);
  p.outbox.abandon(why);
  p.inbox.end(why);
  p.gone = std::move(why);
  for (Connection& c : p.connections) c.socket.reset();
}

// Tells the peers, and waits until they have read it: then they close their ends.
void Tcp::part(const std::string& reason, double seconds) {
  for_each_present([&](int r, Peer& p) {
    p.outbox.say_farewell(reason);
    touch(r);
  });
  const Deadline deadline = Deadline::after(steady_clock(), seconds);
  for (bool alone = false; !alone && steady_clock().now() < deadline.at;) {
    flush();
    alone = true;
    for_each_present([&](int, const Peer&) { alone = false; });
    if (!alone) wait(deadline);
  }
}

// Afterwards nothing touches anybody's memory, and every completion has run.
void Tcp::close_all(const Failure& why) {
  for_each_present([&](int r, const Peer&) { leave(r, why); });
  while (deliver()) {
  }
}

void Tcp::cancel(const Failure& why) {
  if (stopped_) return;
  stopped_ = why;
  for_each_present([&](int, Peer& p) {
    p.outbox.abandon(why);
    p.inbox.abandon(why);
  });
  part(why.message.empty() ? "it was stopped" : why.message, kShort);
  close_all(why);
}

// A rank that has finished waits until the others have read its last messages; one that leaves by an
// exception does not.
Tcp::~Tcp() {
  if (stopped_) return;
  bool outstanding = false;
  for_each_present([&](int, const Peer& p) {
    outstanding = outstanding || p.inbox.outstanding() || p.outbox.outstanding();
  });
  if (outstanding) {
    cancel({ErrorCode::cancelled, "it was closed with transfers outstanding"});
    return;
  }
  part("", std::uncaught_exceptions() > 0 ? kShort : timeout_.value);
  stopped_ = Failure{ErrorCode::cancelled, "the transport was closed"};
  close_all(*stopped_);
}

}  // namespace

std::unique_ptr<Transport> make_tcp(int rank, int size, Store& store, const TransportOptions& options) {
  if (size > kMaxRanks) fail(ErrorCode::usage, size, " ranks are more than ", kMaxRanks);
  return std::make_unique<Tcp>(rank, size, store, options);
}

}  // namespace trireme::transport
