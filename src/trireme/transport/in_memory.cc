#include "trireme/transport/in_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace trireme::transport {
namespace {

Status hand_over(const Message& message, const Expected& expected) {
  if (message.data.size() != expected.into.size())
    return size_mismatch(expected.from, expected.id, message.data.size(), expected.into.size());
  if (!message.data.empty()) std::memcpy(expected.into.data(), message.data.data(), message.data.size());
  return ok_status();
}

Failure gone(int rank, const Failure& why) {
  return {ErrorCode::peer_lost, cat("rank ", rank, " is gone (", why.message, ")")};
}

}  // namespace

Hub::Hub(int size) : boxes_(static_cast<size_t>(size)) {
  TRIREME_CHECK(size >= 1 && size <= kMaxRanks, size, " ranks");
}

size_t Hub::pick(int, std::span<Ready> due) {
  return due.size();
}

Box& Hub::box(int rank) {
  TRIREME_CHECK(rank >= 0 && rank < size(), "rank ", rank, " of ", size());
  return boxes_[static_cast<size_t>(rank)];
}

void Hub::complete(int rank, Completion done, Status status, Clock::Nanoseconds at) {
  if (!done) return;
  box(rank).ready.push_back({std::move(done), std::move(status), at});
  changed(rank);
}

void Hub::match(int rank, Message message, Expected expected) {
  auto at = std::max(now(), message.arrival);
  if (!buffered()) at = travel(message.from, rank, message.data.size()).arrived;
  Status received = hand_over(message, expected);
  if (received.ok()) box(rank).traffic.bytes_received += static_cast<int64_t>(message.data.size());
  complete(rank, std::move(expected.done), std::move(received), at);
  complete(message.from, std::move(message.done), ok_status(), at);
}

// True when a post cannot succeed any more; its completion is then on its way.
bool Hub::refuse(int rank, int peer, Completion& done) {
  if (box(rank).stopped) {
    complete(rank, std::move(done), *box(rank).stopped, now());
  } else if (box(peer).stopped) {
    complete(rank, std::move(done), gone(peer, *box(peer).stopped), now());
  } else {
    return false;
  }
  return true;
}

void Hub::send(int rank, int peer, MessageId id, std::span<const std::byte> data, Completion done) {
  const uint64_t tag = to_tag(rank, id);
  if (refuse(rank, peer, done)) return;
  box(rank).traffic.bytes_sent += static_cast<int64_t>(data.size());
  Message message{rank, data, {}, std::move(done), {}};
  if (buffered()) {
    const Travel t = travel(rank, peer, data.size());
    message.arrival = t.arrived;
    message.copy.assign(data.begin(), data.end());
    message.data = message.copy;
    complete(rank, std::exchange(message.done, nullptr), ok_status(), t.left);
  }
  if (auto expected = box(peer).posted.pop(tag)) {
    match(peer, std::move(message), std::move(*expected));
  } else {
    box(peer).incoming.push(tag, std::move(message));
  }
}

void Hub::receive(int rank, int peer, MessageId id, std::span<std::byte> into, Completion done) {
  const uint64_t tag = to_tag(peer, id);
  Expected expected{peer, id, into, std::move(done)};
  if (auto message = box(rank).incoming.pop(tag)) {
    match(rank, std::move(*message), std::move(expected));
  } else if (!refuse(rank, peer, expected.done)) {
    box(rank).posted.push(tag, std::move(expected));
  }
}

void Hub::stop(int rank, const Failure& why) {
  if (box(rank).stopped) return;
  box(rank).stopped = why;
  const Failure lost = gone(rank, why);
  for (auto& m : box(rank).incoming.extract([](const Message&) { return true; })) {
    complete(m.from, std::move(m.done), m.from == rank ? why : lost, now());
  }
  for (auto& e : box(rank).posted.extract([](const Expected&) { return true; })) {
    complete(rank, std::move(e.done), why, now());
  }
  for (int other = 0; other < size(); ++other) {
    // Buffered messages are on their way whatever becomes of their sender.
    for (auto& m : box(other).incoming.extract([&](const Message& m) { return m.from == rank && m.done; })) {
      complete(rank, std::move(m.done), why, now());
    }
    for (auto& e : box(other).posted.extract([&](const Expected& e) { return e.from == rank; })) {
      complete(other, std::move(e.done), lost, now());
    }
  }
  changed(rank);
}

std::vector<Ready> Hub::take_due(int rank) {
  auto& ready = box(rank).ready;
  const auto time = now();
  const auto later =
      std::stable_partition(ready.begin(), ready.end(), [&](const Ready& r) { return r.at <= time; });
  auto count = static_cast<size_t>(later - ready.begin());
  if (count > 1) count = pick(rank, std::span(ready).first(count));
  const auto end = ready.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<Ready> due(std::make_move_iterator(ready.begin()), std::make_move_iterator(end));
  ready.erase(ready.begin(), end);
  return due;
}

namespace {

class InMemory : public Transport {
 public:
  InMemory(std::string_view name, std::shared_ptr<Hub> hub, int rank)
      : name_(name), hub_(std::move(hub)), rank_(rank) {}
  ~InMemory() override { cancel({ErrorCode::cancelled, "it has ended"}); }

  std::string_view name() const override { return name_; }
  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }

  void send(int peer, MessageId id, std::span<const std::byte> data, Completion done) override {
    std::lock_guard lock(hub_->mutex);
    hub_->send(rank_, peer, id, data, std::move(done));
  }

  void receive(int peer, MessageId id, std::span<std::byte> into, Completion done) override {
    std::lock_guard lock(hub_->mutex);
    hub_->receive(rank_, peer, id, into, std::move(done));
  }

  void progress(Deadline deadline) override {
    std::vector<Ready> due;
    {
      std::unique_lock lock(hub_->mutex);
      Box& box = hub_->box(rank_);
      for (;;) {
        due = hub_->take_due(rank_);
        if (!due.empty() || box.woken || hub_->now() >= deadline.at) break;
        auto until = deadline.at;
        for (const auto& r : box.ready) until = std::min(until, r.at);
        hub_->wait(lock, rank_, until);
      }
      box.woken = false;
    }
    for (auto& r : due) r.done(std::move(r.status));
  }

  void wake() override {
    std::lock_guard lock(hub_->mutex);
    hub_->box(rank_).woken = true;
    hub_->changed(rank_);
  }

  void cancel(const Failure& why) override {
    std::vector<Ready> all;
    {
      std::lock_guard lock(hub_->mutex);
      hub_->stop(rank_, why);
      all.swap(hub_->box(rank_).ready);
    }
    for (auto& r : all) r.done(std::move(r.status));
  }

  Traffic traffic() const override {
    std::lock_guard lock(hub_->mutex);
    return hub_->box(rank_).traffic;
  }

 private:
  std::string_view name_;
  std::shared_ptr<Hub> hub_;
  int rank_;
};

}  // namespace

std::unique_ptr<Transport> make_in_memory(std::string_view name, std::shared_ptr<Hub> hub, int rank) {
  return std::make_unique<InMemory>(name, std::move(hub), rank);
}

}  // namespace trireme::transport
