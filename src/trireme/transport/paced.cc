// A link of given rate and latency, made by holding messages back before they are posted to the transport
// below.
#include <algorithm>
#include <atomic>
#include <deque>

#include "trireme/transport/transport.h"

namespace trireme::transport {
namespace {

// Longer than any time-out, and short enough that sums of it fit: a tiny rate must not wrap into none at all.
constexpr Clock::Nanoseconds kHorizon = std::chrono::hours(365 * 24);

class Paced : public Transport {
 public:
  Paced(std::unique_ptr<Transport> inner, Rate rate, Seconds latency, const Clock& clock)
      : inner_(std::move(inner)),
        rate_(rate.bytes_per_second),
        latency_(static_cast<int64_t>(latency.value * 1e9)),
        clock_(clock) {}
  ~Paced() override {
    if (!held_.empty()) cancel({ErrorCode::cancelled, "the transport was closed"});
  }

  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  // All messages of this rank share one link: each leaves when those before it have left, and arrives a
  // latency later.
  void send(int peer, MessageId id, std::span<const std::byte> data, Completion done) override {
    const Clock::Nanoseconds now = clock_.now(), begin = std::max(now, link_free_);
    const double busy = rate_ > 0 ? static_cast<double>(data.size()) / rate_ * 1e9 : 0;
    const double bounded = std::min(busy, static_cast<double>(kHorizon.count()));
    link_free_ = std::min(begin + Clock::Nanoseconds(static_cast<int64_t>(bounded)), now + kHorizon);
    held_.push_back({link_free_ + latency_, peer, id, data, std::move(done)});
  }

  void receive(int peer, MessageId id, std::span<std::byte> into, Completion done) override {
    inner_->receive(peer, id, into, noted(std::move(done)));
  }

  void progress(Deadline deadline) override {
    for (;;) {
      release_due();
      const auto until = held_.empty() ? deadline.at : std::min(deadline.at, held_.front().at);
      inner_->progress({until});
      const bool woken = woken_.exchange(false);
      if (std::exchange(delivered_, false) || woken || clock_.now() >= deadline.at) break;
    }
    release_due();
  }

  void wake() override {
    woken_ = true;
    inner_->wake();
  }

  void cancel(const Failure& why) override {
    for (auto& h : std::exchange(held_, {})) h.done(why);
    inner_->cancel(why);
  }

  Traffic traffic() const override { return inner_->traffic(); }

 private:
  struct Held {
    Clock::Nanoseconds at;
    int peer;
    MessageId id;
    std::span<const std::byte> data;
    Completion done;
  };

  void release_due() {
    while (!held_.empty() && held_.front().at <= clock_.now()) {
      Held h = std::move(held_.front());
      held_.pop_front();
      inner_->send(h.peer, h.id, h.data, noted(std::move(h.done)));
    }
  }

  // Tells progress() that the transport below returned for a delivery, not for our own timer.
  Completion noted(Completion done) {
    return [this, done = std::move(done)](Status status) {
      delivered_ = true;
      done(std::move(status));
    };
  }

  std::unique_ptr<Transport> inner_;
  double rate_;
  Clock::Nanoseconds latency_;
  const Clock& clock_;
  Clock::Nanoseconds link_free_{};
  std::deque<Held> held_;  // by time of release
  bool delivered_ = false;
  std::atomic<bool> woken_ = false;
};

}  // namespace

std::unique_ptr<Transport> make_paced(std::unique_ptr<Transport> inner, Rate rate_limit, Seconds latency,
                                      const Clock& clock) {
  return std::make_unique<Paced>(std::move(inner), rate_limit, latency, clock);
}

}  // namespace trireme::transport
