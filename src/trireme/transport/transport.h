#pragma once
// Numbered messages between ranks. Posting never blocks; completions run inside progress(), which blocks
// until an event, a wake() or the deadline, so that nothing polls.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/options.h"
#include "trireme/base/result.h"

namespace trireme::transport {

// Messages are matched by (sender, id), never by the order in which they were posted: two ranks may start
// their transfers in different orders. Equal ids from one sender match in the order of posting.
struct MessageId {
  uint16_t channel = 0;  // which group or plan; below kChannels
  uint32_t step = 0;     // modulo 2^16 on the wire
  uint16_t item = 0;     // bucket, or a running number; below kItems
  uint16_t part = 0;     // piece of the item and phase of the algorithm; below kParts
  bool operator==(const MessageId&) const = default;
};
std::string to_text(const MessageId& id);

// Sender and id fit one 64-bit tag: 12 bits rank, 10 channel, 16 step, 13 item, 13 part. The last channel is
// the transports' own (greetings and farewells).
inline constexpr int kMaxRanks = 1 << 12, kChannels = (1 << 10) - 1, kItems = 1 << 13, kParts = 1 << 13;
// Error(usage) naming the number that is out of range.
uint64_t to_tag(int sender, const MessageId& id);

// The failure of a receive whose message has another size than `expected` bytes.
Failure size_mismatch(int peer, const MessageId& id, size_t sent, size_t expected);

// Called once, from the thread inside progress() (or cancel()). A failure names the peer.
using Completion = std::function<void(Status)>;

struct Traffic {  // payload bytes of this rank since construction, without headers
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // `data` / `into` stay valid and untouched until `done` ran. send, receive, progress and cancel are called
  // from one thread (the engine's communication thread); wake and traffic from any. A received message longer
  // or shorter than `into` is a failure (ErrorCode::internal) naming both sizes.
  virtual void send(int peer, MessageId id, std::span<const std::byte> data, Completion done) = 0;
  virtual void receive(int peer, MessageId id, std::span<std::byte> into, Completion done) = 0;
  // Delivers completions; returns after at least one was delivered, after wake(), or at the deadline.
  virtual void progress(Deadline deadline) = 0;
  virtual void wake() = 0;
  // Ends everything outstanding with `why`; later posts fail the same way.
  virtual void cancel(const Failure& why) = 0;
  virtual Traffic traffic() const = 0;
};

struct TransportOptions {
  std::string kind = "ucx";
  std::string interface_name;  // key "interface"
  int64_t connections = 1;
  Rate rate_limit;  // 0: none
  Seconds latency;  // added one-way delay
  std::string secret_file;
  Seconds timeout{60};  // a wait longer than this is a lost peer
  Seconds heartbeat_timeout{6};
  void list(OptionList& o);
};

// Where ranks meet before they have connections: string values by key.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits for the key; the failure (timeout) names it.
  virtual Result<std::string> get(const std::string& key, Seconds timeout) = 0;
  // Atomic; returns the new value. Missing keys count as 0.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
};

// In-process store for ranks that are threads, and tests.
std::shared_ptr<Store> make_memory_store();

// Ranks as threads of one process: rank i of the returned transports talks to the others through memory.
struct LoopbackOptions {
  uint64_t shuffle_seed = 0;  // non-zero: completions are delivered in a shuffled order (tests)
  Seconds delay;              // each message
};
std::vector<std::unique_ptr<Transport>> make_loopback(int size, const LoopbackOptions& options = {});

// Ranks as threads, on a virtual clock: links have a latency and a rate, and time passes only when all wait.
// With nothing under way it jumps to the next deadline, unless some rank waits without one. Sends are
// buffered.
struct SimOptions {
  Seconds latency{1e-4};
  Rate rate{1.25e8};  // of every directed link
};
struct SimWorld;
std::shared_ptr<SimWorld> make_sim_world(int size, const SimOptions& options);
std::unique_ptr<Transport> make_sim(std::shared_ptr<SimWorld> world, int rank);
Clock& clock_of(SimWorld& world);
// While one exists time stands still, so that operations on several ranks can begin at the same instant.
class SimHold {
 public:
  explicit SimHold(std::shared_ptr<SimWorld> world);
  ~SimHold();
  SimHold(const SimHold&) = delete;
  SimHold& operator=(const SimHold&) = delete;

 private:
  std::shared_ptr<SimWorld> world_;
};

// UCX over the network; worker addresses travel through `store`. Wakes by file descriptor. With an interface
// named, only that one is used and shared memory between processes is off. Error(unsupported) in a build
// without UCX.
std::unique_ptr<Transport> make_ucx(int rank, int size, Store& store, const TransportOptions& options);

// Plain sockets, several for each pair of ranks where options.connections or several interfaces ask for it.
// Every connection proves that it belongs to this run, by the secret of options.secret_file where one is
// given.
std::unique_ptr<Transport> make_tcp(int rank, int size, Store& store, const TransportOptions& options);

// Holds messages back as a link of `rate_limit` and `latency` would (user-space; needs no privileges).
std::unique_ptr<Transport> make_paced(std::unique_ptr<Transport> inner, Rate rate_limit, Seconds latency,
                                      const Clock& clock);

// Builds what options.kind names for this process, paced when a limit or latency is set. Error(usage) for a
// kind that needs threads ("loopback", "sim") when size > 1.
std::unique_ptr<Transport> make_transport(int rank, int size, Store& store, const TransportOptions& options);

}  // namespace trireme::transport
