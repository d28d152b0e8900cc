#include "trireme/base/clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace trireme {
namespace {
using std::chrono::seconds;

TEST(SteadyClock, NeverGoesBack) {
  const auto first = steady_clock().now();
  EXPECT_GE(steady_clock().now(), first);
  steady_clock().sleep_until(first);  // already past: returns at once
}

TEST(FakeClock, MovesOnlyWhenAdvanced) {
  FakeClock clock;
  EXPECT_EQ(clock.now(), seconds(0));
  clock.advance(seconds(3));
  EXPECT_EQ(clock.now(), seconds(3));
  clock.sleep_until(seconds(3));
}

TEST(FakeClock, SleepersWakeWhenTheirTimeHasCome) {
  FakeClock clock;
  std::atomic<bool> awake{false};
  std::thread sleeper([&] {
    clock.sleep_until(seconds(10));
    awake = true;
  });
  clock.advance(seconds(9));
  EXPECT_FALSE(awake);
  clock.advance(seconds(1));
  sleeper.join();
  EXPECT_TRUE(awake);
}

TEST(Deadline, CountsFromNow) {
  FakeClock clock;
  clock.advance(seconds(5));
  EXPECT_EQ(Deadline::after(clock, 0.25).at, std::chrono::milliseconds(5250));
}

}  // namespace
}  // namespace trireme
