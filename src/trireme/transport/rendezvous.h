#pragma once
// Where the ranks of a run meet, and how they learn that one is lost. Rank 0 opens a TCP port; every other
// rank keeps one connection to it. Over these go the store's values and a sign of life of every process,
// several times within RendezvousOptions::silence. So all ranks learn of a process that died, stopped or
// cannot be reached, while one that lives and is slow is left alone. docs/design/rendezvous.md has the
// protocol.
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/transport/transport.h"

namespace trireme::transport {

struct RendezvousOptions {
  int rank = 0, world = 1;
  std::string job;      // names this start of the run; a process of another is refused
  std::string secret;   // tcp::read_secret; empty: nobody has to prove anything
  Seconds timeout{60};  // for finding rank 0
  Seconds silence{6};   // a rank from which nothing is heard for this long is lost
};

struct Place {
  std::string host;
  int port = 0;
};

struct Loss {
  int rank = 0;
  Failure why;        // names the rank
  bool told = false;  // the rank has said so itself, by leave()
};

// All calls from any thread. A wait in get, and add, end with the loss when a rank is lost.
class Rendezvous : public Store {
 public:
  // `on_loss` runs once, when the first rank is lost, in a thread of the rendezvous; at once if that has
  // happened already. Of a rank that has failed by its own word it is told a second later: what that rank
  // sent before is still on the way, and may explain more. After the result is destroyed it does not run; it
  // must not destroy that itself.
  using Watch = std::shared_ptr<void>;
  [[nodiscard]] virtual Watch watch(std::function<void(const Loss&)> on_loss) = 0;
  // What is known by now, told or not.
  virtual std::optional<Loss> loss() const = 0;
  // This rank ends, and nobody shall miss it from now on. With a reason it has failed, and all others are
  // told of the loss. The first call counts. The destructor leaves without a reason.
  virtual void leave(const std::string& reason) = 0;
  virtual int port() const = 0;
};

// Rank 0. Listens on all interfaces, or on the loopback one alone when `place.host` is there; port 0 takes a
// free one. Strangers are refused and logged. Error(io) when the port is taken.
std::shared_ptr<Rendezvous> open_rendezvous(const Place& place, const RendezvousOptions& options);

// Another rank. `locate` is asked again before each try, because a store that outlives its ranks may name a
// place of an earlier attempt. Error(timeout) when nobody answers in time; Error(usage) when rank 0 refuses
// this rank, or has another secret.
std::shared_ptr<Rendezvous> join_rendezvous(const std::function<Place()>& locate,
                                            const RendezvousOptions& options);

}  // namespace trireme::transport
