#include "trireme/transport/tcp/door.h"

#include <algorithm>
#include <cerrno>

#include "trireme/base/log.h"

namespace trireme::transport::tcp {

void Refusals::add(const Address& from, const std::string& why) {
  ++count_;
  last_ = cat(to_text(from), ": ", why);
  if (count_ <= kLogged) log::warning(cat(door_, " refused a connection from ", last_));
}

std::string Refusals::summary() const {
  if (count_ == 0) return "";
  return cat("; refused ", count_, count_ == 1 ? " connection, from " : " connections, the last from ",
             last_);
}

void Refusals::log_rest() const {
  if (count_ > kLogged)
    log::warning(cat(door_, " refused ", count_, " connections in all, the last from ", last_));
}

Door::Door(std::string name, const Claim& own, const HandshakeKey& key, Seconds patience)
    : own_(own),
      key_(key),
      patience_(static_cast<int64_t>(patience.value * 1e9)),
      refusals_(std::move(name)) {}

void Door::add_to(std::vector<pollfd>& polled) const {
  for (const Waiting& w : waiting_) {
    const bool sends = !w.unsent.empty();
    polled.push_back({w.socket.get(), static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), 0});
  }
}

Clock::Nanoseconds Door::next_deadline() const {
  return waiting_.empty() ? Clock::Nanoseconds::max() : waiting_.front().until;
}

void Door::accept_all(const Fd& listener) {
  for (;;) {
    auto accepted = accept_from(listener);
    const bool no_descriptor = !accepted && (errno == EMFILE || errno == ENFILE);
    if (!waiting_.empty() && (no_descriptor || waiting_.size() == kMostWaiting)) {
      refusals_.add(waiting_.front().from, "too many others waited");
      waiting_.pop_front();
      if (no_descriptor) continue;
    }
    if (!accepted) return;
    waiting_.push_back({std::move(accepted->socket),
                        accepted->from,
                        Handshake(Handshake::Role::acceptor, own_, key_),
                        steady_clock().now() + patience_,
                        {},
                        {}});
  }
}

Door::Outcome Door::serve(Waiting& w) {
  const auto refused = [&](const std::string& why) {
    refusals_.add(w.from, why);
    return Outcome::refused;
  };
  for (;;) {
    if (!w.unsent.empty()) {
      auto sent = write_some(w.socket, w.unsent);
      if (!sent) return refused(sent.failure().message);
      w.unsent.erase(w.unsent.begin(), w.unsent.begin() + static_cast<std::ptrdiff_t>(sent.value()));
    }
    const size_t have = w.heard.size(), wanted = w.handshake.wanted();
    w.heard.resize(wanted);
    auto got = read_some(w.socket, std::span(w.heard).subspan(have));
    w.heard.resize(have + (got ? got.value() : 0));
    if (!got)
      return refused(got.failure().message +
                     (have == 0 ? " without a word" : " in the middle of a greeting"));
    if (w.heard.size() < wanted) return Outcome::open;
    if (Status status = w.handshake.take(w.heard); !status) return refused(status.failure().message);
    w.heard.clear();
    if (w.handshake.proved()) return Outcome::proved;
    w.unsent = w.handshake.take_reply();
  }
}

std::vector<Door::Guest> Door::turn(const Fd& listener) {
  accept_all(listener);
  std::vector<Guest> guests;
  const auto now = steady_clock().now();
  for (auto w = waiting_.begin(); w != waiting_.end();) {
    const Outcome outcome = serve(*w);
    if (outcome == Outcome::proved) guests.push_back({std::move(w->socket), w->from, w->handshake.peer()});
    const bool late = outcome == Outcome::open && w->until <= now;
    if (late) refusals_.add(w->from, "it did not prove itself in time");
    w = outcome != Outcome::open || late ? waiting_.erase(w) : std::next(w);
  }
  return guests;
}

void Door::close() {
  for (const Waiting& w : waiting_)
    refusals_.add(w.from, "it had not proved itself when all ranks were there");
  waiting_.clear();
  refusals_.log_rest();
}

}  // namespace trireme::transport::tcp
