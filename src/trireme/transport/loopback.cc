// Ranks as threads of one process. A send completes when its receive has taken the bytes, as the strictest of
// real networks would have it, so that a schedule that leans on buffering stands still here.
#include <condition_variable>
#include <mutex>

#include "trireme/base/rng.h"
#include "trireme/transport/mailbox.h"

namespace trireme::transport {
namespace {

struct Ready {
  Completion done;
  Status status;
  Clock::Nanoseconds at;
};

struct Box {  // one rank's side
  TagQueue<InFlight> incoming;
  TagQueue<Posted> posted;
  std::vector<Ready> ready;
  std::condition_variable changed;
  bool woken = false;
  std::optional<Failure> stopped;
  Traffic traffic;
};

struct Hub {
  Hub(int size, const LoopbackOptions& o) : options(o), boxes(static_cast<size_t>(size)) {}
  LoopbackOptions options;
  std::mutex mutex;
  std::vector<Box> boxes;

  void complete(int rank, Completion done, Status status, Clock::Nanoseconds at) {
    Box& box = boxes[static_cast<size_t>(rank)];
    box.ready.push_back({std::move(done), std::move(status), at});
    box.changed.notify_all();
  }
  void match(int rank, const InFlight& message, const Posted& posted) {
    const auto at = Deadline::after(steady_clock(), options.delay.value).at;
    Status received = hand_over(message, posted);
    const auto bytes = static_cast<int64_t>(message.data.size());
    if (received.ok()) boxes[static_cast<size_t>(rank)].traffic.bytes_received += bytes;
    boxes[static_cast<size_t>(message.from)].traffic.bytes_sent += bytes;
    complete(rank, posted.done, std::move(received), at);
    complete(message.from, message.done, ok_status(), at);
  }
  void stop(int rank, const Failure& why);
};

// A stopped rank fails its own transfers with `why`, and its peers' with peer_lost.
void Hub::stop(int rank, const Failure& why) {
  Box& own = boxes[static_cast<size_t>(rank)];
  if (own.stopped) return;
  own.stopped = why;
  const auto now = steady_clock().now();
  const Failure lost{ErrorCode::peer_lost, cat("rank ", rank, " is gone (", why.message, ")")};
  for (auto& message : own.incoming.extract([](const InFlight&) { return true; })) {
    complete(message.from, std::move(message.done), message.from == rank ? why : lost, now);
  }
  for (auto& posted : own.posted.extract([](const Posted&) { return true; })) {
    complete(rank, std::move(posted.done), why, now);
  }
  for (size_t other = 0; other < boxes.size(); ++other) {
    for (auto& message : boxes[other].incoming.extract([&](const InFlight& m) { return m.from == rank; })) {
      complete(rank, std::move(message.done), why, now);
    }
    for (auto& posted : boxes[other].posted.extract([&](const Posted& p) { return p.from == rank; })) {
      complete(static_cast<int>(other), std::move(posted.done), lost, now);
    }
  }
}

class Loopback : public Transport {
 public:
  Loopback(std::shared_ptr<Hub> hub, int rank)
      : hub_(std::move(hub)), rank_(rank), rng_(hub_->options.shuffle_seed, static_cast<uint64_t>(rank)) {}
  ~Loopback() override { cancel({ErrorCode::cancelled, "it has ended"}); }

  std::string_view name() const override { return "loopback"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hub_->boxes.size()); }

  void send(int peer, MessageId id, std::span<const std::byte> data, Completion done) override {
    const uint64_t tag = to_tag(rank_, id);
    std::lock_guard lock(hub_->mutex);
    if (refuse(peer, done)) return;
    InFlight message{rank_, data, {}, std::move(done), {}};
    Box& there = box(peer);
    if (auto posted = there.posted.pop(tag)) {
      hub_->match(peer, message, *posted);
    } else {
      there.incoming.push(tag, std::move(message));
    }
  }

  void receive(int peer, MessageId id, std::span<std::byte> into, Completion done) override {
    const uint64_t tag = to_tag(peer, id);
    std::lock_guard lock(hub_->mutex);
    if (refuse(peer, done)) return;
    Posted posted{peer, id, into, std::move(done)};
    Box& here = box(rank_);
    if (auto message = here.incoming.pop(tag)) {
      hub_->match(rank_, *message, posted);
    } else {
      here.posted.push(tag, std::move(posted));
    }
  }

  void progress(Deadline deadline) override {
    std::unique_lock lock(hub_->mutex);
    Box& here = box(rank_);
    for (;;) {
      const auto now = steady_clock().now();
      std::vector<Ready> due = take_due(now);
      const bool stop = !due.empty() || here.woken || now >= deadline.at;
      if (stop) {
        here.woken = false;
        lock.unlock();
        for (auto& r : due) r.done(std::move(r.status));
        return;
      }
      auto until = deadline.at;
      for (const auto& r : here.ready) until = std::min(until, r.at);
      here.changed.wait_until(lock, std::chrono::steady_clock::time_point(until));
    }
  }

  void wake() override {
    std::lock_guard lock(hub_->mutex);
    box(rank_).woken = true;
    box(rank_).changed.notify_all();
  }

  void cancel(const Failure& why) override {
    std::vector<Ready> all;
    {
      std::lock_guard lock(hub_->mutex);
      hub_->stop(rank_, why);
      all.swap(box(rank_).ready);
    }
    for (auto& r : all) r.done(std::move(r.status));
  }

  Traffic traffic() const override {
    std::lock_guard lock(hub_->mutex);
    return hub_->boxes[static_cast<size_t>(rank_)].traffic;
  }

 private:
  Box& box(int rank) {
    TRIREME_CHECK(rank >= 0 && rank < size(), "rank ", rank, " of ", size());
    return hub_->boxes[static_cast<size_t>(rank)];
  }

  // True when a post cannot succeed any more; its completion is then on its way.
  bool refuse(int peer, Completion& done) {
    if (box(rank_).stopped) {
      hub_->complete(rank_, std::move(done), *box(rank_).stopped, steady_clock().now());
    } else if (box(peer).stopped) {
      const Failure lost{ErrorCode::peer_lost,
                         cat("rank ", peer, " is gone (", box(peer).stopped->message, ")")};
      hub_->complete(rank_, std::move(done), lost, steady_clock().now());
    } else {
      return false;
    }
    return true;
  }

  // Completions whose time has come; with a shuffle seed some of them, in any order.
  std::vector<Ready> take_due(Clock::Nanoseconds now) {
    auto& ready = box(rank_).ready;
    const auto later =
        std::stable_partition(ready.begin(), ready.end(), [&](const Ready& r) { return r.at <= now; });
    auto count = static_cast<size_t>(later - ready.begin());
    if (hub_->options.shuffle_seed != 0 && count > 1) {
      for (size_t i = count - 1; i > 0; --i) std::swap(ready[i], ready[rng_.next_u32() % (i + 1)]);
      count = 1 + rng_.next_u32() % count;
    }
    const auto end = ready.begin() + static_cast<std::ptrdiff_t>(count);
    std::vector<Ready> due(std::make_move_iterator(ready.begin()), std::make_move_iterator(end));
    ready.erase(ready.begin(), end);
    return due;
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
  PhiloxStream rng_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_loopback(int size, const LoopbackOptions& options) {
  TRIREME_CHECK(size >= 1 && size <= kMaxRanks, size, " ranks");
  auto hub = std::make_shared<Hub>(size, options);
  std::vector<std::unique_ptr<Transport>> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(std::make_unique<Loopback>(hub, r));
  return ranks;
}

}  // namespace trireme::transport
