// The other ranks' end of the rendezvous.
#include <poll.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/transport/loss_report.h"
#include "trireme/transport/pulse.h"
#include "trireme/transport/rendezvous.h"
#include "trireme/transport/rendezvous_wire.h"
#include "trireme/transport/sockets.h"
#include "trireme/transport/wake_event.h"

namespace trireme::transport {
namespace {

using Kind = RendezvousMessage::Kind;

constexpr double kTrySeconds = 5;      // for one try to connect and to be welcomed
constexpr double kPauseSeconds = 0.1;  // between two tries
constexpr double kFarewellSeconds = 0.5;

Clock::Nanoseconds now() {
  return steady_clock().now();
}

// A connection that has been welcomed.
struct Joined {
  Socket socket;
  RendezvousChannel channel{Side::client};
};

// What ended a try that may be repeated.
struct Problem {
  std::string text;
};

class Handshake {
 public:
  Handshake(Socket socket, const RendezvousOptions& options, Deadline deadline)
      : joined_{.socket = std::move(socket)}, options_(options), deadline_(deadline) {}

  // Throws Problem, or Error when rank 0 will not have this rank.
  Joined run() {
    const bool secret = !options_.secret.empty();
    const std::string mode(secret ? kSecretRendezvous : kOpenRendezvous), nonce = make_nonce();
    send({Kind::hello, kRendezvousVersion, mode, nonce});
    const auto challenge = receive(Kind::challenge);
    if (challenge.value.size() != kNonceBytes + Proof{}.size())
      throw Problem{"it does not speak our protocol"};
    const std::string theirs = challenge.value.substr(0, kNonceBytes);
    if (challenge.value.substr(kNonceBytes) != server_proof(options_.secret, nonce, theirs)) {
      fail(ErrorCode::usage, "rank 0 at ", peer_of(joined_.socket),
           " has another secret than this rank: give all ranks the same transport.secret_file");
    }
    if (secret) joined_.channel.use_key(session_key(options_.secret, nonce, theirs));
    send({Kind::join, options_.rank, options_.job, std::to_string(options_.world)});
    receive(Kind::welcome);
    joined_.channel.trust();
    return std::move(joined_);
  }

 private:
  void send(const RendezvousMessage& message) {
    std::string out = joined_.channel.seal(message);
    while (!out.empty()) {
      if (write_some(joined_.socket, out) == Io::closed) throw Problem{"it closed the connection"};
      if (!out.empty() && !wait_for(joined_.socket.fd(), POLLOUT, deadline_)) throw Problem{"no answer"};
    }
  }

  RendezvousMessage receive(Kind wanted) {
    for (;;) {
      auto message = next();
      if (!message) {
        read();
        continue;
      }
      if (message->kind == Kind::refused) refused(*message);
      if (message->kind != wanted) throw Problem{"it does not speak our protocol"};
      return std::move(*message);
    }
  }

  std::optional<RendezvousMessage> next() {
    try {
      return joined_.channel.next();
    } catch (const Error& e) {
      throw Problem{cat("it sent ", e.what())};
    }
  }

  void read() {
    std::string bytes;
    const Io io = read_some(joined_.socket, bytes);
    if (io == Io::closed) throw Problem{"it closed the connection"};
    if (io == Io::again && !wait_for(joined_.socket.fd(), POLLIN, deadline_)) throw Problem{"no answer"};
    joined_.channel.feed(bytes);
  }

  // Of another attempt: it may be about to end and make place for ours.
  [[noreturn]] static void refused(const RendezvousMessage& message) {
    const std::string why = cat("refused by rank 0: ", message.value);
    if (message.number == static_cast<int64_t>(ErrorCode::timeout)) throw Problem{why};
    throw Error(ErrorCode::usage, why);
  }

  Joined joined_;
  const RendezvousOptions& options_;
  Deadline deadline_;
};

Joined try_to_join(const Place& place, const RendezvousOptions& options, Deadline deadline) {
  deadline.at = std::min(deadline.at, Deadline::after(steady_clock(), kTrySeconds).at);
  std::string problem;
  Socket socket = connect_to(place.host, place.port, deadline, problem);
  if (!socket) throw Problem{problem};
  return Handshake(std::move(socket), options, deadline).run();
}

Joined join(const std::function<Place()>& locate, const RendezvousOptions& options) {
  const Deadline deadline = Deadline::after(steady_clock(), options.timeout.value);
  for (;;) {
    const Place place = locate();
    try {
      return try_to_join(place, options, deadline);
    } catch (const Problem& problem) {
      const auto pause = Deadline::after(steady_clock(), kPauseSeconds);
      if (pause.at >= deadline.at) {
        fail(ErrorCode::timeout, "nobody answered at ", place.host, ":", place.port, " within ",
             for_people(options.timeout), ": is rank 0 running, and are MASTER_ADDR and MASTER_PORT right? (",
             problem.text, ")");
      }
      steady_clock().sleep_until(pause.at);
    }
  }
}

class Client : public Rendezvous {
 public:
  Client(Joined joined, int port, const RendezvousOptions& options)
      : socket_(std::move(joined.socket)),
        channel_(std::move(joined.channel)),
        port_(port),
        pulse_(1, options.silence),
        thread_([this] { serve(); }) {}

  ~Client() override {
    leave("");
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    wake_.set();
    thread_.join();
  }

  int port() const override { return port_; }

  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    send({Kind::set, 0, key, value});
  }

  Result<std::string> get(const std::string& key, Seconds timeout) override {
    auto answer = ask({Kind::get, 0, key, ""}, timeout);
    if (answer) return std::move(*answer);
    if (const auto loss = report_.told()) return loss->why;
    return Failure{ErrorCode::timeout, cat("no rank set '", key, "' within ", for_people(timeout))};
  }

  int64_t add(const std::string& key, int64_t amount) override {
    const auto answer = ask({Kind::add, 0, key, std::to_string(amount)}, Seconds{60});
    if (answer) return whole_number(*answer);
    if (const auto loss = report_.told()) throw Error(loss->why.code, loss->why.message);
    fail(ErrorCode::timeout, "rank 0 did not answer within 60 s");
  }

  Watch watch(std::function<void(const Loss&)> on_loss) override {
    return report_.listen(std::move(on_loss));
  }
  std::optional<Loss> loss() const override { return report_.loss(); }

  void leave(const std::string& reason) override {
    std::unique_lock lock(mutex_);
    if (left_) return;
    left_ = true;
    if (!open_) return;
    send({Kind::bye, 0, "", reason});
    changed_.wait_for(lock, std::chrono::duration<double>(kFarewellSeconds),
                      [&] { return out_.empty() || !open_; });
  }

 private:
  // --- mutex_ is held

  void send(const RendezvousMessage& message) {
    out_ += channel_.seal(message);
    wake_.set();
  }

  // The answer to a request; nothing when there is none in time, or a rank is lost.
  std::optional<std::string> ask(RendezvousMessage request, Seconds timeout) {
    std::unique_lock lock(mutex_);
    const int64_t number = request.number = ++requests_;
    answers_.emplace(number, std::nullopt);
    send(request);
    changed_.wait_for(lock, std::chrono::duration<double>(timeout.value),
                      [&] { return answers_.at(number) || report_.told() || (!open_ && !report_.loss()); });
    return answers_.extract(number).mapped();
  }

  // --- the thread

  void serve() {
    auto next_beat = now();
    pulse_.heard(0, now());
    for (;;) {
      std::optional<Loss> lost;
      {
        const std::lock_guard lock(mutex_);
        if (ends_) return;
        if (open_) read(lost);
        if (now() >= next_beat) {
          next_beat = now() + pulse_.interval();
          if (!left_ && open_) send({Kind::beat, 0, "", ""});
          if (!lost) lost = overdue();
        }
        if (open_ && write_some(socket_, out_) == Io::closed) ended(lost);
        changed_.notify_all();
      }
      if (lost) report_.note(*lost, now());
      if (report_.tell_when_due(now())) {
        const std::lock_guard lock(mutex_);  // a get that has just looked is waiting by now
        changed_.notify_all();
      }
      wait({std::min(next_beat, report_.due())});
    }
  }

  void wait(Deadline until) {
    pollfd waits[2] = {{wake_.fd(), POLLIN, 0}, {-1, POLLIN, 0}};
    {
      const std::lock_guard lock(mutex_);
      if (open_) waits[1].fd = socket_.fd();
      if (!out_.empty()) waits[1].events |= POLLOUT;
    }
    ::poll(waits, 2, poll_timeout(until));
    if (waits[0].revents != 0) wake_.drain();
    wake_.take();
  }

  void read(std::optional<Loss>& lost) {
    std::string bytes;
    Io io = Io::done;
    while ((io = read_some(socket_, bytes)) == Io::done) channel_.feed(std::exchange(bytes, {}));
    try {
      while (const auto message = channel_.next()) take(*message, lost);
    } catch (const Error& e) {
      lost = Loss{0, {ErrorCode::peer_lost, cat("rank 0 sends garbage: ", e.what())}};
      open_ = false;
    }
    if (io == Io::closed) ended(lost);
  }

  void ended(std::optional<Loss>& lost) {
    open_ = false;
    if (!left_ && !server_left_ && !lost)
      lost = Loss{0, {ErrorCode::peer_lost, cat("rank 0's process has ended (", peer_of(socket_), ")")}};
  }

  void take(const RendezvousMessage& m, std::optional<Loss>& lost) {
    pulse_.heard(0, now());
    switch (m.kind) {
      case Kind::value:
        if (const auto waiting = answers_.find(m.number); waiting != answers_.end())
          waiting->second = m.value;
        return;
      case Kind::beat:
        return;
      case Kind::loss:
        lost = Loss{static_cast<int>(m.number), {static_cast<ErrorCode>(whole_number(m.key)), m.value}};
        return;
      case Kind::failed:
        lost = Loss{static_cast<int>(m.number), {ErrorCode::peer_lost, m.value}, true};
        return;
      case Kind::bye:
        server_left_ = true;
        if (!m.value.empty()) lost = failed(0, m.value);
        return;
      default:
        fail(ErrorCode::input, "a message that is not for this rank");
    }
  }

  std::optional<Loss> overdue() {
    const auto found = pulse_.overdue(now());
    if (!found || left_ || server_left_ || !open_) return {};
    return silent(0, found->silent);
  }

  Socket socket_;
  WakeEvent wake_;
  LossReport report_;

  std::mutex mutex_;  // of the rest
  std::condition_variable changed_;
  RendezvousChannel channel_;
  int port_;
  Pulse pulse_;
  std::string out_;
  std::map<int64_t, std::optional<std::string>> answers_;  // by number of the request that waits
  int64_t requests_ = 0;
  bool open_ = true, left_ = false, server_left_ = false, ends_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::shared_ptr<Rendezvous> join_rendezvous(const std::function<Place()>& locate,
                                            const RendezvousOptions& options) {
  Place place;
  Joined joined = join(
      [&] {
        place = locate();
        return place;
      },
      options);
  return std::make_shared<Client>(std::move(joined), place.port, options);
}

}  // namespace trireme::transport
