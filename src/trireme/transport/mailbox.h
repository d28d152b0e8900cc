#pragma once
// What the in-process transports (loopback, sim) share: messages on their way to one rank and the receives it
// has posted, matched by tag. Not thread-safe; the owner locks.
#include <cstring>
#include <deque>
#include <optional>
#include <unordered_map>

#include "trireme/transport/transport.h"

namespace trireme::transport {

struct InFlight {  // sent, not yet matched
  int from = 0;
  std::span<const std::byte> data;
  std::vector<std::byte> copy;  // owns `data` when the sender need not wait for the match
  Completion done;              // the sender's
  Clock::Nanoseconds arrival{};
};

struct Posted {  // a receive without its message
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
      for (auto& value : it->second)
        (predicate(value) ? out.emplace_back(std::move(value)) : kept.emplace_back(std::move(value)));
      it->second = std::move(kept);
      it = it->second.empty() ? queues_.erase(it) : std::next(it);
    }
    return out;
  }

 private:
  std::unordered_map<uint64_t, std::deque<T>> queues_;
};

// The failure of a receive whose message has another size.
inline Failure size_mismatch(int peer, const MessageId& id, size_t sent, size_t expected) {
  return {ErrorCode::internal, cat("message from rank ", peer, " (", to_text(id), ") has ", sent,
                                   " bytes where ", expected, " were expected")};
}

inline Status hand_over(const InFlight& message, const Posted& posted) {
  if (message.data.size() != posted.into.size()) {
    return size_mismatch(posted.from, posted.id, message.data.size(), posted.into.size());
  }
  if (!message.data.empty()) std::memcpy(posted.into.data(), message.data.data(), message.data.size());
  return ok_status();
}

}  // namespace trireme::transport
