// Ranks as threads of one process. A send completes when its receive has taken the bytes, as the strictest of
// real networks would have it, so that a schedule that leans on buffering stands still here.
#include "trireme/base/rng.h"
#include "trireme/transport/in_memory.h"

namespace trireme::transport {
namespace {

class LoopbackHub : public Hub {
 public:
  LoopbackHub(int size, const LoopbackOptions& options)
      : Hub(size), options_(options), rng_(options.shuffle_seed, 0), changed_(static_cast<size_t>(size)) {}

  Clock::Nanoseconds now() const override { return steady_clock().now(); }
  bool buffered() const override { return false; }
  Travel travel(int, int, size_t) override {
    const auto at = Deadline::after(steady_clock(), options_.delay.value).at;
    return {at, at};
  }
  void wait(std::unique_lock<std::mutex>& lock, int rank, Clock::Nanoseconds until) override {
    changed_[static_cast<size_t>(rank)].wait_until(lock, std::chrono::steady_clock::time_point(until));
  }
  void changed(int rank) override { changed_[static_cast<size_t>(rank)].notify_all(); }

  size_t pick(int, std::span<Ready> due) override {
    if (options_.shuffle_seed == 0) return due.size();
    for (size_t i = due.size() - 1; i > 0; --i) std::swap(due[i], due[rng_.next_u32() % (i + 1)]);
    return 1 + rng_.next_u32() % due.size();
  }

 private:
  LoopbackOptions options_;
  PhiloxStream rng_;
  std::vector<std::condition_variable> changed_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_loopback(int size, const LoopbackOptions& options) {
  const auto hub = std::make_shared<LoopbackHub>(size, options);
  std::vector<std::unique_ptr<Transport>> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(make_in_memory("loopback", hub, r));
  return ranks;
}

}  // namespace trireme::transport
