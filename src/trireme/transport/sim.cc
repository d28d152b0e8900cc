// Ranks as threads on a virtual clock. Every directed link carries one message at a time at its rate; a
// message arrives a latency after its last byte has left.
#include <algorithm>
#include <set>

#include "trireme/transport/in_memory.h"

namespace trireme::transport {
namespace {
constexpr auto kNever = Clock::Nanoseconds::max();
}

struct SimWorld : public Hub {
 public:
  SimWorld(int size, const SimOptions& options)
      : Hub(size),
        options_(options),
        waiting_(static_cast<size_t>(size)),
        link_free_(static_cast<size_t>(size) * static_cast<size_t>(size)),
        clock_(*this) {}

  Clock::Nanoseconds now() const override { return now_; }
  bool buffered() const override { return true; }

  Travel travel(int from, int to, size_t bytes) override {
    auto& free =
        link_free_[static_cast<size_t>(from) * static_cast<size_t>(size()) + static_cast<size_t>(to)];
    const double rate = options_.rate.bytes_per_second;
    free = std::max(free, now_) +
           (rate > 0 ? nanoseconds(static_cast<double>(bytes) / rate) : Clock::Nanoseconds{});
    return {free, free + nanoseconds(options_.latency.value)};
  }

  void wait(std::unique_lock<std::mutex>& lock, int rank, Clock::Nanoseconds until) override {
    auto& mine = waiting_[static_cast<size_t>(rank)];
    mine = until;
    while (!attentive(rank) && now_ < until) {
      if (!advance()) changed_.wait(lock);
    }
    mine.reset();
  }
  void changed(int) override { changed_.notify_all(); }

  void sleep_until(Clock::Nanoseconds when) {
    std::unique_lock lock(mutex);
    const auto mine = sleepers_.insert(when);
    while (now_ < when) {
      if (!advance()) changed_.wait(lock);
    }
    sleepers_.erase(mine);
    changed_.notify_all();  // time stood still for this one to wake up
  }

  void hold(int by) {
    std::lock_guard lock(mutex);
    holds_ += by;
    changed_.notify_all();
  }

  Clock& clock() { return clock_; }

 private:
  struct VirtualClock : Clock {
    explicit VirtualClock(SimWorld& w) : world(w) {}
    Nanoseconds now() const override {
      std::lock_guard lock(world.mutex);
      return world.now_;
    }
    void sleep_until(Nanoseconds when) override { world.sleep_until(when); }
    SimWorld& world;
  };

  // Has something to do before time goes on.
  bool attentive(int rank) {
    const Box& b = box(rank);
    return b.woken ||
           std::any_of(b.ready.begin(), b.ready.end(), [&](const Ready& r) { return r.at <= now_; });
  }

  // Moves time to the next event once every rank waits. Deadlines count as events only when all ranks have
  // one: a rank that waits without end may be about to post from another thread.
  bool advance() {
    if (holds_ > 0) return false;
    auto event = sleepers_.empty() ? kNever : *sleepers_.begin();
    auto deadline = kNever;
    bool idle = false;
    for (int r = 0; r < size(); ++r) {
      if (box(r).stopped) continue;
      const auto& until = waiting_[static_cast<size_t>(r)];
      if (!until || attentive(r)) return false;
      for (const Ready& ready : box(r).ready) event = std::min(event, ready.at);
      deadline = std::min(deadline, *until);
      idle = idle || *until == kNever;
    }
    const auto next = event == kNever && idle ? kNever : std::min(event, deadline);
    if (next == kNever || next <= now_) return false;
    now_ = next;
    changed_.notify_all();
    return true;
  }

  static Clock::Nanoseconds nanoseconds(double seconds) {
    return Clock::Nanoseconds(static_cast<int64_t>(seconds * 1e9 + 0.5));
  }

  SimOptions options_;
  Clock::Nanoseconds now_{0};
  std::vector<std::optional<Clock::Nanoseconds>> waiting_;  // by rank: until when; nothing: not waiting
  std::vector<Clock::Nanoseconds> link_free_;               // by sender and receiver
  std::multiset<Clock::Nanoseconds> sleepers_;
  int holds_ = 0;
  std::condition_variable changed_;
  VirtualClock clock_;
};

std::shared_ptr<SimWorld> make_sim_world(int size, const SimOptions& options) {
  return std::make_shared<SimWorld>(size, options);
}

std::unique_ptr<Transport> make_sim(std::shared_ptr<SimWorld> world, int rank) {
  return make_in_memory("sim", std::move(world), rank);
}

Clock& clock_of(SimWorld& world) {
  return world.clock();
}

SimHold::SimHold(std::shared_ptr<SimWorld> world) : world_(std::move(world)) {
  world_->hold(1);
}
SimHold::~SimHold() {
  world_->hold(-1);
}

}  // namespace trireme::transport
