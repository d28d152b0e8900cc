#include "trireme/transport/pulse.h"

#include <gtest/gtest.h>

namespace trireme::transport {
namespace {
using std::chrono::seconds;

// Asks every second from `begin` to `end`; the first answer.
std::optional<Pulse::Overdue> ask(Pulse& pulse, int begin, int end) {
  for (int t = begin; t <= end; ++t) {
    if (const auto overdue = pulse.overdue(seconds(t))) return overdue;
  }
  return {};
}

TEST(Pulse, NamesWhoIsSilentForTooLong) {
  Pulse pulse(3, Seconds{8});
  pulse.heard(1, seconds(0));
  pulse.heard(2, seconds(3));
  EXPECT_FALSE(ask(pulse, 0, 8));
  const auto overdue = ask(pulse, 9, 9);
  ASSERT_TRUE(overdue);
  EXPECT_EQ(overdue->member, 1);
  EXPECT_EQ(overdue->silent, seconds(9));
}

TEST(Pulse, WatchesOnlyWhomItHasHeard) {
  Pulse pulse(2, Seconds{8});
  pulse.heard(1, seconds(0));
  pulse.forget(1);
  EXPECT_FALSE(ask(pulse, 0, 100));
}

TEST(Pulse, BlamesNobodyForItsOwnStandstill) {
  Pulse pulse(2, Seconds{8});
  pulse.heard(1, seconds(0));
  EXPECT_FALSE(ask(pulse, 0, 2));
  EXPECT_FALSE(ask(pulse, 60, 68)) << "asked last at 2: this process stood still";
  EXPECT_TRUE(ask(pulse, 69, 69));
}

}  // namespace
}  // namespace trireme::transport
