#include "trireme/transport/conformance_for_tests.h"

namespace trireme::transport {
namespace {

TestMaker sim(std::string name, SimOptions options) {
  return {std::move(name), [options](int size) {
            auto world = make_sim_world(size, options);
            return TestWorld{.make = [world](int r) { return make_sim(world, r); },
                             .clock = &clock_of(*world),
                             .owner = world};
          }};
}

INSTANTIATE_TEST_SUITE_P(Sim, TransportConformance,
                         ::testing::Values(sim("default", {}), sim("instant", {.latency = {}, .rate = {}})),
                         [](const auto& info) { return info.param.name; });

double seconds(Clock& clock) {
  return static_cast<double>(clock.now().count()) * 1e-9;
}

TEST(Sim, AMessageTakesLatencyPlusSizeOverRate) {
  const auto world = make_sim_world(2, {.latency = Seconds{0.5}, .rate = Rate{100}});
  auto sender = make_sim(world, 0), receiver = make_sim(world, 1);
  std::vector<std::byte> data(50), into(50);
  std::thread other([&] {
    bool sent = false;
    for (int i = 0; i < 2; ++i)
      sender->send(1, {.item = uint16_t(i)}, data, [&](const Status&) { sent = true; });
    while (!sent) sender->progress({Clock::Nanoseconds::max()});
    EXPECT_NEAR(seconds(clock_of(*world)), 0.5, 1e-9);  // left; the second one still occupies the link
    sender.reset();                                     // what it has sent arrives all the same
  });
  std::vector<double> arrivals;
  for (int i = 0; i < 2; ++i) {
    receiver->receive(0, {.item = uint16_t(i)}, into,
                      [&](const Status&) { arrivals.push_back(seconds(clock_of(*world))); });
  }
  while (arrivals.size() < 2) receiver->progress({std::chrono::seconds(100)});
  other.join();
  EXPECT_NEAR(arrivals[0], 1.0, 1e-9);
  EXPECT_NEAR(arrivals[1], 1.5, 1e-9);
}

TEST(Sim, SleepersAndDeadlinesMoveTime) {
  const auto world = make_sim_world(1, {});
  auto rank = make_sim(world, 0);
  rank->progress({std::chrono::seconds(7)});
  EXPECT_NEAR(seconds(clock_of(*world)), 7, 1e-9);
  std::vector<std::thread> sleepers;
  for (const int until : {9, 12, 30}) {
    sleepers.emplace_back([&, until] { clock_of(*world).sleep_until(std::chrono::seconds(until)); });
  }
  rank->progress({std::chrono::seconds(20)});
  EXPECT_NEAR(seconds(clock_of(*world)), 20, 1e-9);
  rank->progress({std::chrono::seconds(40)});
  for (auto& s : sleepers) s.join();
  EXPECT_NEAR(seconds(clock_of(*world)), 40, 1e-9);
}

}  // namespace
}  // namespace trireme::transport
