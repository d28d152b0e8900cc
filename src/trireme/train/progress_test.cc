#include "trireme/train/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <sstream>

namespace trireme::train {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Progress, PlainLinesAreTwoSecondsApartButTheFirstAndLastAlwaysShow) {
  FakeClock clock;
  std::ostringstream out;
  {
    Progress progress(out, clock, false, 1, 100);
    for (int step = 1; step <= 100; ++step) {
      clock.advance(100ms);
      progress.step(step, 2.5, 16, 0);
    }
  }
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);  // steps 1, 21, 41, 61, 81, 100
  EXPECT_THAT(text, StartsWith("step 1/100  loss 2.5000  160.0 samples/s  10 s left\n"));
  EXPECT_THAT(text, HasSubstr("step 41/100  loss 2.5000  160.0 samples/s  6 s left\n"));
  EXPECT_THAT(text, HasSubstr("step 100/100  loss 2.5000  160.0 samples/s  0 s left\n"));
}

TEST(Progress, TerminalRedrawsOneLineAndShowsTheNetworkRate) {
  FakeClock clock;
  std::ostringstream out;
  auto progress = std::make_unique<Progress>(out, clock, true, 11, 12);
  clock.advance(2h);
  progress->step(11, 1, 8, 2'000'000);
  EXPECT_THAT(out.str(),
              testing::AllOf(StartsWith("\rstep 11/12"), HasSubstr("bit/s"), HasSubstr("2 h 0 min left")));
  EXPECT_EQ(out.str().find('\n'), std::string::npos);
  progress.reset();
  EXPECT_EQ(out.str().back(), '\n');
}

}  // namespace
}  // namespace trireme::train
