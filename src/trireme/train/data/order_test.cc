#include "trireme/train/data/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Order, WithoutShuffleFollowsTheFile) {
  const Order order{.samples = 10, .shuffle = false};
  EXPECT_THAT(samples_at(order, 2, 3, 5), ElementsAre(2, 3, 4));
}

TEST(Order, DropsTheLastPartialBatchOfEachEpoch) {
  const Order order{.samples = 10, .shuffle = false};
  EXPECT_THAT(samples_at(order, 4, 6, 4), ElementsAre(4, 5, 6, 7, 0, 1));
}

TEST(Order, AnEpochVisitsEachSampleOnce) {
  const Order order{.samples = 1000, .seed = 3};
  const auto ids = samples_at(order, 0, 1000, 8);
  EXPECT_EQ(std::set<int64_t>(ids.begin(), ids.end()).size(), 1000U);
  EXPECT_EQ(*std::ranges::min_element(ids), 0);
  EXPECT_EQ(*std::ranges::max_element(ids), 999);
  EXPECT_FALSE(std::ranges::is_sorted(ids));
}

TEST(Order, EpochsAndSeedsDiffer) {
  const Order order{.samples = 64, .seed = 1};
  const Order other{.samples = 64, .seed = 2};
  EXPECT_NE(samples_at(order, 0, 64, 8), samples_at(order, 64, 64, 8));
  EXPECT_NE(samples_at(order, 0, 64, 8), samples_at(other, 0, 64, 8));
}

TEST(Order, IsAFunctionOfThePositionAlone) {
  const Order order{.samples = 37, .seed = 5};
  const auto whole = samples_at(order, 0, 200, 4);
  for (const int64_t position : {0, 3, 35, 36, 37, 72, 120}) {
    const std::vector<int64_t> expected(whole.begin() + position, whole.begin() + position + 50);
    EXPECT_EQ(samples_at(order, position, 50, 4), expected) << position;
  }
}

TEST(Order, RanksTogetherTakeTheGlobalBatchAtAnyWorldSize) {
  const Order order{.samples = 100, .seed = 9};
  const auto batch = samples_at(order, 24, 12, 12);
  for (const int world : {1, 2, 3, 4}) {
    std::vector<int64_t> together;
    for (int rank = 0; rank < world; ++rank) {
      const auto slice = rank_samples(order, 24, 12, rank, world);
      EXPECT_EQ(slice.size(), 12U / static_cast<unsigned>(world));
      together.insert(together.end(), slice.begin(), slice.end());
    }
    EXPECT_EQ(together, batch) << world;
  }
}

TEST(Order, FewerSamplesThanOneBatchIsTheCallersMistake) {
  try {
    samples_at({.samples = 7}, 0, 8, 8);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::input);
    EXPECT_THAT(error.what(), HasSubstr("7 training samples are fewer than one global batch of 8"));
  }
}

}  // namespace
}  // namespace trireme::train
