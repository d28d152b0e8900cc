#include "trireme/deploy/readings.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trireme::deploy {
namespace {

TEST(Readings, AreFoundInTheirSpellings) {
  EXPECT_EQ(parse_reading(" 12.5 ")->samples_per_s, 12.5);
  EXPECT_EQ(parse_reading("(task, pid=7) step 3 samples_per_s=1e3, loss 2")->samples_per_s, 1000);
  EXPECT_EQ(parse_reading("samples_per_s: 7")->samples_per_s, 7);
  const auto full = parse_reading(R"({"samples_per_s": 8, "relative_sd": 0.1, "minutes": 4})");
  EXPECT_EQ(full->samples_per_s, 8);
  EXPECT_EQ(full->relative_sd, 0.1);
  EXPECT_EQ(full->minutes, 4);
  for (const char* none : {"", "step 3", "12 steps", "{\"loss\": 1}", "{broken", "samples_per_s is high"})
    EXPECT_FALSE(parse_reading(none)) << none;
}

TEST(Readings, NonsenseIsSeenAsSuch) {
  EXPECT_TRUE(std::isnan(parse_reading("nan")->samples_per_s));
  EXPECT_TRUE(std::isnan(parse_reading("samples_per_s = fast")->samples_per_s));
  EXPECT_TRUE(std::isnan(parse_reading(R"({"samples_per_s": "7"})")->samples_per_s));
  EXPECT_EQ(parse_reading("-4")->samples_per_s, -4);
}

TEST(Readings, TheWarmUpIsLeftOut) {
  const auto e = estimate({10, 100, 102, 98});
  EXPECT_NEAR(e.samples_per_s, 100, 1e-12);
  EXPECT_NEAR(e.relative_sd, 2 / std::sqrt(3.0) / 100, 1e-12);
  EXPECT_NEAR(e.high, 100 + 4.30 * 2 / std::sqrt(3.0), 1e-9);
  EXPECT_TRUE(std::isinf(estimate({100, 101}).high));
}

TEST(Readings, AProbeEndsOnceItsBoundsSettleTheComparison) {
  const auto steady = estimate({50, 100, 101, 99, 100, 100});
  EXPECT_EQ(judge(steady, 200, 0.05, false), Verdict::too_slow);
  EXPECT_EQ(judge(steady, 50, 0.05, false), Verdict::fast_enough);
  EXPECT_EQ(judge(steady, 100, 0.05, false), Verdict::go_on);
  EXPECT_EQ(judge(steady, 100, 0.05, true), Verdict::precise);
  const auto shaky = estimate({50, 60, 140, 100, 80});
  EXPECT_EQ(judge(shaky, 100, 0.05, true), Verdict::go_on);
  EXPECT_EQ(judge(estimate({100, 100}), 200, 0.05, false), Verdict::go_on);
}

}  // namespace
}  // namespace trireme::deploy
