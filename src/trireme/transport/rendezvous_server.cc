// Rank 0's end of the rendezvous: one thread that owns all connections.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <list>
#include <map>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/transport/loss_report.h"
#include "trireme/transport/pulse.h"
#include "trireme/transport/rendezvous.h"
#include "trireme/transport/rendezvous_wire.h"
#include "trireme/transport/sockets.h"
#include "trireme/transport/wake_event.h"

namespace trireme::transport {
namespace {

using Kind = RendezvousMessage::Kind;

constexpr double kHandshakeSeconds = 5;
// More half-open handshakes than this, and the oldest is dropped: strangers cannot use up our descriptors.
constexpr size_t kMostStrangers = 128;
constexpr int kLoggedRefusals = 20;
constexpr double kFarewellSeconds = 0.5;

Clock::Nanoseconds now() {
  return steady_clock().now();
}

struct Connection {
  explicit Connection(Socket s) : socket(std::move(s)), peer(peer_of(socket)) {}
  Socket socket;
  std::string peer;
  RendezvousChannel channel{Side::server};
  std::string out;
  Deadline joins_until = Deadline::after(steady_clock(), kHandshakeSeconds);
  bool greeted = false, closing = false;
  int rank = -1;                         // once it has joined
  std::map<int64_t, std::string> waits;  // get requests by number
};

class Server : public Rendezvous {
 public:
  Server(const Place& place, const RendezvousOptions& options)
      : options_(options),
        listener_(listen_on(place.port, place.host == "localhost" || place.host.starts_with("127."))),
        pulse_(options.world, options.silence),
        members_(static_cast<size_t>(options.world)),
        thread_([this] { serve(); }) {}

  ~Server() override {
    leave("");
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    wake_.set();
    thread_.join();
  }

  int port() const override { return port_of(listener_); }

  void set(const std::string& key, const std::string& value) override {
    {
      const std::lock_guard lock(mutex_);
      store(key, value);
    }
    wake_.set();
  }

  Result<std::string> get(const std::string& key, Seconds timeout) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(timeout.value),
                      [&] { return values_.contains(key) || report_.told(); });
    if (const auto found = values_.find(key); found != values_.end()) return found->second;
    if (const auto loss = report_.told()) return loss->why;
    return Failure{ErrorCode::timeout, cat("no rank set '", key, "' within ", for_people(timeout))};
  }

  int64_t add(const std::string& key, int64_t amount) override {
    int64_t sum = 0;
    {
      const std::lock_guard lock(mutex_);
      sum = add_to(key, amount);
    }
    wake_.set();
    return sum;
  }

  Watch watch(std::function<void(const Loss&)> on_loss) override {
    return report_.listen(std::move(on_loss));
  }
  std::optional<Loss> loss() const override { return report_.loss(); }

  void leave(const std::string& reason) override {
    std::unique_lock lock(mutex_);
    if (left_) return;
    left_ = true;
    for (Connection& c : connections_) {
      if (c.rank >= 0) send(c, {Kind::bye, 0, "", reason});
    }
    wake_.set();
    // So that the others have the reason before this process ends.
    changed_.wait_for(lock, std::chrono::duration<double>(kFarewellSeconds), [&] {
      return std::all_of(connections_.begin(), connections_.end(),
                         [](const Connection& c) { return c.rank < 0 || c.out.empty(); });
    });
  }

 private:
  // --- state; mutex_ is held

  void store(const std::string& key, const std::string& value) {
    values_[key] = value;
    for (Connection& c : connections_) {
      std::erase_if(c.waits, [&](const auto& wait) {
        if (wait.second != key) return false;
        send(c, {Kind::value, wait.first, "", value});
        return true;
      });
    }
    changed_.notify_all();
  }

  int64_t add_to(const std::string& key, int64_t amount) {
    const std::string& before = values_[key];
    const int64_t sum = (before.empty() ? 0 : whole_number(before)) + amount;
    store(key, std::to_string(sum));
    return sum;
  }

  void send(Connection& c, const RendezvousMessage& message) { c.out += c.channel.seal(message); }

  void refuse(const Connection& c, const std::string& why) {
    if (++refused_ <= kLoggedRefusals) log::warning(cat("rendezvous: refused ", c.peer, ": ", why));
    if (refused_ == kLoggedRefusals) log::warning("rendezvous: further refusals are counted, not logged");
  }

  // --- the thread

  void serve() {
    auto next_beat = now();
    for (;;) {
      std::optional<Loss> lost;
      {
        const std::lock_guard lock(mutex_);
        if (ends_) break;
        for (Connection& c : connections_) handle(c, lost);
        drop_strangers();
        if (now() >= next_beat) {
          next_beat = now() + pulse_.interval();
          if (!lost) lost = overdue();
          beat();
        }
        flush(lost);
        if (lost) announce(*lost);
        connections_.remove_if([](const Connection& c) { return !c.socket; });
        changed_.notify_all();
      }
      if (report_.tell_when_due(now())) {
        const std::lock_guard lock(mutex_);  // a get that has just looked is waiting by now
        changed_.notify_all();
      }
      wait({std::min(next_beat, report_.due())});
      accept_all();
    }
    if (refused_ > kLoggedRefusals)
      log::warning(cat("rendezvous: refused ", refused_, " connections in all"));
  }

  void wait(Deadline until) {
    std::vector<pollfd> waits{{wake_.fd(), POLLIN, 0}, {accepts_ ? listener_.fd() : -1, POLLIN, 0}};
    {
      const std::lock_guard lock(mutex_);
      for (const Connection& c : connections_) {
        waits.push_back({c.socket.fd(), static_cast<short>(c.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
        if (c.rank < 0) until.at = std::min(until.at, c.joins_until.at);
      }
    }
    accepts_ = true;
    ::poll(waits.data(), waits.size(), poll_timeout(until));
    if (waits[0].revents != 0) wake_.drain();
    wake_.take();
  }

  void accept_all() {
    while (Socket socket = accept_from(listener_)) {
      const std::lock_guard lock(mutex_);
      connections_.emplace_back(std::move(socket));
      if (strangers() > kMostStrangers) drop_oldest_stranger();
    }
    // Out of descriptors: the waiting connection would wake us again at once.
    if (errno == EMFILE || errno == ENFILE) {
      accepts_ = false;
      const std::lock_guard lock(mutex_);
      drop_oldest_stranger();
    }
  }

  size_t strangers() const {
    return static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(),
                                             [](const Connection& c) { return c.rank < 0; }));
  }

  void drop_oldest_stranger() {
    const auto oldest = std::find_if(connections_.begin(), connections_.end(),
                                     [](const Connection& c) { return c.rank < 0; });
    if (oldest == connections_.end()) return;
    refuse(*oldest, "too many connections at once that do not join");
    connections_.erase(oldest);
  }

  void drop_strangers() {
    for (Connection& c : connections_) {
      if (c.rank >= 0 || !c.socket || now() < c.joins_until.at) continue;
      if (!c.closing) refuse(c, cat("it did not join within ", kHandshakeSeconds, " s"));
      c.socket = Socket();
    }
  }

  void handle(Connection& c, std::optional<Loss>& lost) {
    std::string bytes;
    Io io = Io::done;
    while (c.socket && (io = read_some(c.socket, bytes)) == Io::done) {
      c.channel.feed(std::exchange(bytes, {}));
      take_messages(c, lost);
    }
    if (c.socket && io == Io::closed) {
      closed(c, lost);
      c.socket = Socket();
    }
  }

  void take_messages(Connection& c, std::optional<Loss>& lost) {
    try {
      while (!c.closing) {
        const auto message = c.channel.next();
        if (!message) return;
        if (c.rank >= 0) {
          take(c, *message, lost);
        } else if (c.greeted) {
          join(c, *message, lost);
        } else {
          greet(c, *message);
        }
      }
    } catch (const Error& e) {
      if (c.rank >= 0) {
        lost = Loss{c.rank, {ErrorCode::peer_lost, cat("rank ", c.rank, " sends garbage: ", e.what())}};
      } else {
        refuse(c, e.what());
      }
      c.socket = Socket();
    }
  }

  void closed(Connection& c, std::optional<Loss>& lost) {
    if (c.rank < 0) {
      if (!c.closing) refuse(c, "it broke off before it had joined");
      return;
    }
    auto& member = members_[static_cast<size_t>(c.rank)];
    pulse_.forget(c.rank);
    if (!member.left && !left_)
      lost =
          Loss{c.rank, {ErrorCode::peer_lost, cat("rank ", c.rank, "'s process has ended (", c.peer, ")")}};
    member.left = true;
  }

  // --- handshake

  // `for_rank`: what the refused process says and exits with.
  void turn_away(Connection& c, ErrorCode code, const std::string& for_rank) {
    refuse(c, for_rank);
    send(c, {Kind::refused, static_cast<int64_t>(code), "", for_rank});
    c.closing = true;
  }

  std::string_view mode() const { return options_.secret.empty() ? kOpenRendezvous : kSecretRendezvous; }

  void greet(Connection& c, const RendezvousMessage& hello) {
    const bool ours = hello.key == kOpenRendezvous || hello.key == kSecretRendezvous;
    if (hello.kind != Kind::hello || !ours || hello.value.size() != kNonceBytes)
      fail(ErrorCode::input, "it does not speak our protocol");
    if (hello.number != kRendezvousVersion) {
      return turn_away(c, ErrorCode::usage,
                       cat("version ", hello.number, " of the rendezvous, rank 0 has ", kRendezvousVersion,
                           ": install the same version everywhere"));
    }
    if (hello.key != mode()) {
      return turn_away(c, ErrorCode::usage,
                       options_.secret.empty()
                           ? "a rank with transport.secret_file, which rank 0 was not given"
                           : "a rank without transport.secret_file, which rank 0 was given");
    }
    const std::string nonce = make_nonce();
    const std::string proof = server_proof(options_.secret, hello.value, nonce);
    send(c, {Kind::challenge, kRendezvousVersion, std::string(mode()), nonce + proof});
    if (!options_.secret.empty()) c.channel.use_key(session_key(options_.secret, hello.value, nonce));
    c.greeted = true;
  }

  void join(Connection& c, const RendezvousMessage& message, std::optional<Loss>& lost) {
    if (message.kind != Kind::join) fail(ErrorCode::input, "it did not join");
    const std::string who = cat("rank ", message.number);
    if (message.key != options_.job)
      return turn_away(
          c, ErrorCode::timeout,
          cat(who, " of another start of the run, '", message.key, "', this is '", options_.job, "'"));
    if (message.value != std::to_string(options_.world)) {
      const std::string why = cat(who, " belongs to a run of ", message.value, " ranks, rank 0 to one of ",
                                  options_.world, ": start all with the same number");
      // While some are still missing this is most likely one of them.
      if (!complete() && !lost) lost = Loss{static_cast<int>(message.number), {ErrorCode::usage, why}};
      return turn_away(c, ErrorCode::usage, why);
    }
    if (message.number < 1 || message.number >= options_.world)
      return turn_away(c, ErrorCode::usage, cat(who, " is not one of ", options_.world, " ranks"));
    auto& member = members_[static_cast<size_t>(message.number)];
    if (member.joined)
      return turn_away(c, ErrorCode::usage,
                       cat(who, " has joined already: two processes have the same rank"));
    member.joined = true;
    c.rank = static_cast<int>(message.number);
    c.channel.trust();
    pulse_.heard(c.rank, now());
    send(c, {Kind::welcome, 0, "", ""});
    if (const auto loss = report_.loss()) send(c, loss_message(*loss));
  }

  bool complete() const {
    return std::all_of(members_.begin() + 1, members_.end(), [](const Member& m) { return m.joined; });
  }

  // --- members

  void take(Connection& c, const RendezvousMessage& m, std::optional<Loss>& lost) {
    pulse_.heard(c.rank, now());
    switch (m.kind) {
      case Kind::set:
        return store(m.key, m.value);
      case Kind::get:
        if (const auto found = values_.find(m.key); found != values_.end()) {
          send(c, {Kind::value, m.number, "", found->second});
        } else {
          c.waits[m.number] = m.key;
        }
        return;
      case Kind::add:
        return send(c, {Kind::value, m.number, "", std::to_string(add_to(m.key, whole_number(m.value)))});
      case Kind::beat:
        return;
      case Kind::bye:
        members_[static_cast<size_t>(c.rank)].left = true;
        pulse_.forget(c.rank);
        if (!m.value.empty()) lost = failed(c.rank, m.value);
        return;
      default:
        fail(ErrorCode::input, "a message that is not for rank 0");
    }
  }

  std::optional<Loss> overdue() {
    const auto found = pulse_.overdue(now());
    if (!found || left_) return {};
    pulse_.forget(found->member);
    return silent(found->member, found->silent);
  }

  void beat() {
    for (Connection& c : connections_) {
      if (c.rank >= 0 && c.socket && !left_) send(c, {Kind::beat, 0, "", ""});
    }
  }

  static RendezvousMessage loss_message(const Loss& loss) {
    if (loss.told) return {Kind::failed, loss.rank, "", loss.why.message};
    return {Kind::loss, loss.rank, std::to_string(static_cast<int>(loss.why.code)), loss.why.message};
  }

  void announce(const Loss& loss) {
    if (report_.loss()) return;
    report_.note(loss, now());
    for (Connection& c : connections_) {
      if (c.rank >= 0) send(c, loss_message(loss));
    }
    std::optional<Loss> no_news;  // one loss ends the run; what follows from it is none
    flush(no_news);
  }

  void flush(std::optional<Loss>& lost) {
    for (Connection& c : connections_) {
      if (!c.socket || c.out.empty()) continue;
      const Io io = write_some(c.socket, c.out);
      if (io == Io::closed) closed(c, lost);
      if (io == Io::closed || (c.closing && c.out.empty())) c.socket = Socket();
    }
  }

  struct Member {
    bool joined = false, left = false;
  };

  const RendezvousOptions options_;
  Socket listener_;
  WakeEvent wake_;
  LossReport report_;
  bool accepts_ = true;  // the thread's own

  std::mutex mutex_;  // of the rest
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::list<Connection> connections_;  // strangers and members, the oldest first
  Pulse pulse_;
  std::vector<Member> members_;
  int64_t refused_ = 0;
  bool left_ = false, ends_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::shared_ptr<Rendezvous> open_rendezvous(const Place& place, const RendezvousOptions& options) {
  return std::make_shared<Server>(place, options);
}

}  // namespace trireme::transport
