#include "trireme/train/data_parallel/replicas_torch.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "trireme/base/error.h"
#include "trireme/comm/rank_threads_for_tests.h"

namespace trireme::train {
namespace {

using testing::HasSubstr;

std::vector<std::string> on_ranks(int size, const std::function<void(comm::Group&)>& body) {
  return comm::errors_of_ranks(size, ErrorCode::diverged, body);
}

std::vector<at::Tensor> tensors_of(int rank) {
  const at::Tensor base = at::arange(12, at::kFloat).add(100 * rank);
  return {base.view({3, 4}).t(), at::empty({0}, at::kFloat), base.to(at::kLong).sum(), base.to(at::kBFloat16),
          base.gt(105)};
}

TEST(Replicas, BroadcastGivesRootsBytesInAnyLayoutAndType) {
  const auto errors = on_ranks(3, [](comm::Group& group) {
    const auto tensors = tensors_of(group.rank());
    broadcast_tensors(group, tensors, 1);
    const auto want = tensors_of(1);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::equal(tensors[i], want[i])) << i;
  });
  EXPECT_THAT(errors, testing::Each(""));
}

TEST(Replicas, HashSeesEveryByteAndNoLayout) {
  const at::Tensor t = at::arange(100, at::kFloat).view({10, 10});
  const uint64_t hash = content_hash(t);
  EXPECT_EQ(content_hash(t.t().contiguous().t()), hash);
  EXPECT_NE(content_hash(t.t()), hash);
  for (int64_t i = 0; i < 100; ++i) {
    const at::Tensor other = t.clone();
    other.view({100})[i].add_(1e-5F * static_cast<float>(i + 1));
    ASSERT_FALSE(at::equal(other, t)) << i;
    EXPECT_NE(content_hash(other), hash) << i;
  }
  EXPECT_NE(content_hash(at::zeros({3})), content_hash(at::zeros({4})));
  EXPECT_NE(content_hash(at::zeros({1})), content_hash(at::zeros({1}).neg()))
      << "minus zero is another weight";
}

TEST(Replicas, NamesTheParameterThatDiffers) {
  const auto run = [](float change) {
    return on_ranks(3, [change](comm::Group& group) {
      const at::Tensor a = at::ones({5}), b = at::ones({7, 2});
      if (group.rank() == 2) b[6][1].add_(change);
      check_replicas(group, {{"first", a}, {"second", b}}, 12);
    });
  };
  EXPECT_THAT(run(0), testing::Each(""));
  EXPECT_THAT(run(1e-6F),
              testing::Each(testing::AllOf(HasSubstr("second"), HasSubstr("rank 2"), HasSubstr("step 12"))));
}

TEST(Replicas, NormCountsDefinedGradientsOfEveryType) {
  const at::Tensor threes = at::ones({9}).mul(3), fours = at::ones({3, 3}, at::kDouble).mul(4);
  EXPECT_DOUBLE_EQ(global_norm({threes, at::Tensor(), fours, at::empty({0})}), 15);
  EXPECT_DOUBLE_EQ(global_norm({at::ones({4}, at::kBFloat16)}), 2);
  EXPECT_DOUBLE_EQ(global_norm({}), 0);
  const at::Tensor large = at::ones({1'000'003});
  EXPECT_DOUBLE_EQ(global_norm({large}), std::sqrt(1'000'003.0));
}

}  // namespace
}  // namespace trireme::train
