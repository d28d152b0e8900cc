#pragma once
// What the in-process transports share: messages are matched by tag in memory. A Hub says how time passes:
// loopback on the machine's clock, sim on a virtual one.
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "trireme/transport/transport.h"

namespace trireme::transport {

struct Message {  // sent, not yet matched
  int from = 0;
  std::span<const std::byte> data;
  std::vector<std::byte> copy;  // owns `data` where sends are buffered
  Completion done;              // the sender's; empty when it has completed already
  Clock::Nanoseconds arrival{};
};

struct Expected {  // a receive without its message
  int from = 0;
  MessageId id;
  std::span<std::byte> into;
  Completion done;
};

// By tag, in the order of posting.
template <typename T>
class TagQueue {
 public:
  void push(uint64_t tag, T value) { queues_[tag].push_back(std::move(value)); }
  std::optional<T> pop(uint64_t tag) {
    const auto found = queues_.find(tag);
    if (found == queues_.end()) return std::nullopt;
    T value = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) queues_.erase(found);
    return value;
  }
  // Removes and returns what `predicate` picks.
  template <typename Predicate>
  std::vector<T> extract(Predicate predicate) {
    std::vector<T> out;
    for (auto it = queues_.begin(); it != queues_.end();) {
      std::deque<T> kept;
      for (auto& value : it->second) {
        if (predicate(value)) {
          out.push_back(std::move(value));
        } else {
          kept.push_back(std::move(value));
        }
      }
      it->second = std::move(kept);
      it = it->second.empty() ? queues_.erase(it) : std::next(it);
    }
    return out;
  }

 private:
  std::unordered_map<uint64_t, std::deque<T>> queues_;
};

struct Ready {  // a completion to deliver
  Completion done;
  Status status;
  Clock::Nanoseconds at{};
};

struct Box {  // one rank's side
  TagQueue<Message> incoming;
  TagQueue<Expected> posted;
  std::vector<Ready> ready;
  bool woken = false;
  std::optional<Failure> stopped;
  Traffic traffic;
};

// The meeting place of all ranks. The mutex guards everything, virtual functions included.
class Hub {
 public:
  explicit Hub(int size);
  virtual ~Hub() = default;

  virtual Clock::Nanoseconds now() const = 0;
  // Buffered: a send completes when it has left; else when its receive has taken the bytes.
  virtual bool buffered() const = 0;
  struct Travel {
    Clock::Nanoseconds left, arrived;
  };
  // Of a message that sets off now.
  virtual Travel travel(int from, int to, size_t bytes) = 0;
  // Blocks rank's thread until `until` or until changed(rank).
  virtual void wait(std::unique_lock<std::mutex>& lock, int rank, Clock::Nanoseconds until) = 0;
  virtual void changed(int rank) = 0;
  // How many of the due completions, which it may reorder, to deliver at once; at least one.
  virtual size_t pick(int rank, std::span<Ready> due);

  void send(int rank, int peer, MessageId id, std::span<const std::byte> data, Completion done);
  void receive(int rank, int peer, MessageId id, std::span<std::byte> into, Completion done);
  // The rank has ended: its own transfers fail with `why`, its peers' with peer_lost.
  void stop(int rank, const Failure& why);
  std::vector<Ready> take_due(int rank);
  Box& box(int rank);
  int size() const { return static_cast<int>(boxes_.size()); }

  mutable std::mutex mutex;

 private:
  void complete(int rank, Completion done, Status status, Clock::Nanoseconds at);
  void match(int rank, Message message, Expected expected);
  bool refuse(int rank, int peer, Completion& done);
  std::vector<Box> boxes_;
};

std::unique_ptr<Transport> make_in_memory(std::string_view name, std::shared_ptr<Hub> hub, int rank);

}  // namespace trireme::transport
