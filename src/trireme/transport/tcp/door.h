#pragma once
// The accepting side of handshakes: connections that have not proved themselves wait here for a short time,
// then they are refused and logged. Strangers cost nothing but that: neither many nor idle ones keep ranks
// out.
#include <poll.h>

#include <list>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/units.h"
#include "trireme/transport/tcp/handshake.h"
#include "trireme/transport/tcp/socket.h"

namespace trireme::transport::tcp {

// What was said and refused at a door; logs the first few, then counts.
class Refusals {
 public:
  explicit Refusals(std::string door) : door_(std::move(door)) {}
  void add(const Address& from, const std::string& why);
  // "", or "; refused 3 connections, the last from 10.0.0.7:4711: it …".
  std::string summary() const;
  void log_rest() const;  // how many were not logged one by one

 private:
  static constexpr int kLogged = 5;
  std::string door_;
  int count_ = 0;
  std::string last_;
};

class Door {
 public:
  // `own` is what this side claims; `name` is for the log, e.g. "rank 0's data port".
  Door(std::string name, const Claim& own, const HandshakeKey& key, Seconds patience = Seconds{5});

  struct Guest {
    Fd socket;
    Address from;
    Claim claim;
  };
  // Descriptors to wait for, and the time by which to come back.
  void add_to(std::vector<pollfd>& polled) const;
  Clock::Nanoseconds next_deadline() const;
  // Accepts, reads and writes whatever is possible; returns those who have proved themselves.
  std::vector<Guest> turn(const Fd& listener);
  void refuse(const Guest& guest, const std::string& why) { refusals_.add(guest.from, why); }
  // Refuses everybody who is still waiting.
  void close();
  const Refusals& refusals() const { return refusals_; }

 private:
  // More wait only where strangers come in numbers; then the one that has waited longest goes.
  static constexpr size_t kMostWaiting = 128;
  struct Waiting {
    Fd socket;
    Address from;
    Handshake handshake;
    Clock::Nanoseconds until;
    std::vector<std::byte> heard, unsent;
  };
  enum class Outcome : uint8_t { open, proved, refused };
  void accept_all(const Fd& listener);
  Outcome serve(Waiting& waiting);

  Claim own_;
  HandshakeKey key_;
  Clock::Nanoseconds patience_;
  std::list<Waiting> waiting_;  // in order of arrival
  Refusals refusals_;
};

}  // namespace trireme::transport::tcp
