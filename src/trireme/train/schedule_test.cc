#include "trireme/train/schedule.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

TEST(Schedule, ConstantIsOne) {
  const Schedule schedule{.steps = 10};
  for (int64_t step : {0, 5, 9, 100}) EXPECT_EQ(factor(schedule, step), 1);
}

TEST(Schedule, WarmupRisesToOneAtItsLastStep) {
  for (const char* kind : {"constant", "linear", "cosine"}) {
    const Schedule schedule{.kind = kind, .warmup = 4, .steps = 10};
    EXPECT_DOUBLE_EQ(factor(schedule, 0), 0.25);
    EXPECT_DOUBLE_EQ(factor(schedule, 1), 0.5);
    EXPECT_DOUBLE_EQ(factor(schedule, 3), 1);
    EXPECT_DOUBLE_EQ(factor(schedule, 4), 1);
  }
}

TEST(Schedule, LinearEndsAtItsShareInTheLastStepAndStaysThere) {
  const Schedule schedule{.kind = "linear", .warmup = 1, .steps = 6, .final_share = 0.2};
  EXPECT_DOUBLE_EQ(factor(schedule, 3), 0.6);
  EXPECT_DOUBLE_EQ(factor(schedule, 5), 0.2);
  EXPECT_DOUBLE_EQ(factor(schedule, 50), 0.2);
}

TEST(Schedule, CosineIsHalfwayInTheMiddleAndNeverRises) {
  const Schedule schedule{.kind = "cosine", .steps = 11};
  EXPECT_DOUBLE_EQ(factor(schedule, 0), 1);
  EXPECT_DOUBLE_EQ(factor(schedule, 5), 0.5);
  EXPECT_NEAR(factor(schedule, 10), 0, 1e-15);
  for (int64_t step = 1; step < 11; ++step) EXPECT_LT(factor(schedule, step), factor(schedule, step - 1));
}

TEST(Schedule, WarmupLongerThanTheRunNeverDecays) {
  const Schedule schedule{.kind = "cosine", .warmup = 20, .steps = 10};
  EXPECT_DOUBLE_EQ(factor(schedule, 9), 0.5);
  EXPECT_DOUBLE_EQ(factor(schedule, 25), 1);
}

}  // namespace
}  // namespace trireme::train
