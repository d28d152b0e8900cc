// Collectives on the simulated network: exact virtual times.
#include <gtest/gtest.h>

#include <thread>

#include "trireme/comm/rank_threads_for_tests.h"

namespace trireme::comm {
namespace {

// Runs each job where it is submitted: computing then takes no virtual time.
class InlineQueue : public ComputeQueue {
 public:
  void submit(int, std::function<void()> job) override { job(); }
};

// Virtual seconds until all ranks have reduced `elements` floats.
double all_reduce_seconds(int ranks, int64_t elements, const AllReduceOptions& options,
                          const transport::SimOptions& link, Seconds timeout = Seconds{60}) {
  const auto world = transport::make_sim_world(ranks, link);
  InlineQueue queue;
  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<std::vector<float>> data;
  std::vector<std::unique_ptr<Operation>> operations;
  auto hold = std::make_unique<transport::SimHold>(world);
  for (int r = 0; r < ranks; ++r) {
    transports.push_back(transport::make_sim(world, r));
    engines.push_back(std::make_unique<Engine>(
        *transports.back(), queue, EngineOptions{.timeout = timeout, .clock = &clock_of(*world)}));
    data.emplace_back(static_cast<size_t>(elements), 1.0f);
  }
  for (int r = 0; r < ranks; ++r) {
    Group group(*engines[static_cast<size_t>(r)]);
    operations.push_back(group.prepare_all_reduce("tensor", view_of(data[static_cast<size_t>(r)]), options));
    operations.back()->start(0, 0);
  }
  hold.reset();
  for (auto& op : operations) op->wait();
  for (const auto& d : data) EXPECT_EQ(d, std::vector<float>(d.size(), static_cast<float>(ranks)));
  return static_cast<double>(clock_of(*world).now().count()) * 1e-9;
}

TEST(SimCollectives, RingTakesItsAnalyticTime) {
  const transport::SimOptions link{.latency = Seconds{1e-3}, .rate = Rate{1e8}};
  for (int n = 2; n <= 5; ++n) {
    const int64_t elements = 60'000;  // divisible by every n
    const double hop = 4.0 * static_cast<double>(elements) / n / 1e8 + 1e-3;
    EXPECT_NEAR(all_reduce_seconds(n, elements, {}, link), 2 * (n - 1) * hop, 1e-6);
    EXPECT_NEAR(all_reduce_seconds(n, elements, {.codec = codec::built_in_codecs().make("bf16")}, link),
                2 * (n - 1) * (hop - 2.0 * static_cast<double>(elements) / n / 1e8), 1e-6);
  }
}

TEST(SimCollectives, TwoPhaseTakesTwoHops) {
  const transport::SimOptions link{.latency = Seconds{1e-3}, .rate = Rate{1e8}};
  for (int n = 2; n <= 5; ++n) {
    const double hop = 4.0 * 60'000 / n / 1e8 + 1e-3;
    EXPECT_NEAR(all_reduce_seconds(n, 60'000, {.strategy = Strategy::two_phase}, link), 2 * hop, 1e-6);
  }
}

// Links far slower than the timeout: a transfer is late only when its peer shows no sign of life.
TEST(SimCollectives, SlowProgressIsNoTimeout) {
  const transport::SimOptions link{.latency = Seconds{20}, .rate = Rate{0}};
  EXPECT_NEAR(all_reduce_seconds(5, 10, {}, link, Seconds{30}), 160, 1e-6);
  EXPECT_THROW(all_reduce_seconds(5, 10, {}, link, Seconds{15}), Error);
}

}  // namespace
}  // namespace trireme::comm
