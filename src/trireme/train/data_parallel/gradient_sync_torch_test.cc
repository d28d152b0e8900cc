#include "trireme/train/data_parallel/gradient_sync_torch.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/real.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "trireme/codec/codec.h"
#include "trireme/comm/rank_threads_for_tests.h"

namespace trireme::train {
namespace {

using testing::ElementsAre;
using Tensors = std::vector<at::Tensor>;

// Runs `body(group)` once per rank, ranks being threads.
void on_ranks(int size, const std::function<void(comm::Group&)>& body) {
  comm::run_ranks(size, {.loopback = {.shuffle_seed = 7}, .engine = {.timeout = Seconds{20}}},
                  [&](comm::Group& group, comm::Engine&) { body(group); });
}

at::Tensor parameter(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  return at::zeros(shape, type).set_requires_grad(true);
}

// A gradient that depends on everything that may be mixed up.
at::Tensor wanted(const at::Tensor& like, int rank, int step, int micro, int index) {
  const at::Tensor ramp = at::arange(like.numel(), at::kDouble).view(like.sizes());
  return ramp.add(1).mul(rank + 1 + 10 * micro).div(index + step + 1).to(like.scalar_type());
}

// One backward whose gradient for parameters[i] is wanted(…), leaving out those for which `use` says no.
void backward(const Tensors& parameters, int rank, int step, int micro, const std::function<bool(int)>& use) {
  at::Tensor loss = at::zeros({}, at::kDouble).set_requires_grad(true);
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!use(static_cast<int>(i))) continue;
    const at::Tensor weight = wanted(parameters[i], rank, step, micro, static_cast<int>(i));
    loss = loss.add(parameters[i].mul(weight).sum().to(at::kDouble));
  }
  loss.backward();
}

std::vector<NamedParameter> named(const Tensors& parameters) {
  std::vector<NamedParameter> all;
  for (size_t i = 0; i < parameters.size(); ++i) all.push_back({"p" + std::to_string(i), parameters[i]});
  return all;
}

// All gradients by parameter index.
Tensors collect(GradientSync& sync, size_t parameters) {
  Tensors all(parameters);
  std::vector<int> seen(parameters);
  for (size_t b = 0; b < sync.buckets(); ++b) {
    EXPECT_GE(sync.wait(b), 0);
    const Tensors gradients = sync.take_gradients(b);
    for (size_t k = 0; k < gradients.size(); ++k) {
      all[sync.members(b)[k]] = gradients[k];
      ++seen[sync.members(b)[k]];
    }
  }
  sync.wait_scalars();  // a step that is left before its traffic ended would end the other ranks too
  EXPECT_THAT(seen, testing::Each(1));
  return all;
}

struct Case {
  int ranks = 2, micro_batches = 1;
  comm::Strategy strategy = comm::Strategy::ring;
  bool bf16 = false;
  int64_t alone_bytes = 10'000;  // 40: most gradients are buckets of their own
  std::string name;
};
class GradientSyncTest : public testing::TestWithParam<Case> {};

// Odd sizes, a scalar, an empty one, several types; parameter 4 is used by even ranks only, 5 by nobody, 6
// only in the first micro-batch.
Tensors mixed_parameters() {
  return {parameter({7, 3}), parameter({}),     parameter({0, 4}), parameter({13}, at::kDouble),
          parameter({5}),    parameter({2, 2}), parameter({11}),   parameter({17}, at::kBFloat16),
          parameter({129})};
}
bool used(int index, int rank, int micro) {
  if (index == 4) return rank % 2 == 0;
  if (index == 5) return false;
  return index != 6 || micro == 0;
}

at::Tensor reference_mean(const at::Tensor& p, const Case& c, int step, int index) {
  at::Tensor sum = at::zeros(p.sizes(), at::kDouble);
  for (int rank = 0; rank < c.ranks; ++rank) {
    for (int m = 0; m < c.micro_batches; ++m) {
      if (used(index, rank, m)) sum.add_(wanted(p, rank, step, m, index));
    }
  }
  return sum.div(c.ranks);
}

TEST_P(GradientSyncTest, EqualsTheReferenceMeanOverRanksAndMicroBatches) {
  const Case c = GetParam();
  std::vector<std::vector<Tensors>> results(c.ranks);  // rank, step, parameter
  on_ranks(c.ranks, [&](comm::Group& group) {
    const Tensors parameters = mixed_parameters();
    GradientSyncOptions options{
        .strategy = c.strategy, .bucket_bytes = 300, .first_bucket_bytes = 80, .alone_bytes = c.alone_bytes};
    if (c.bf16) options.codec = codec::built_in_codecs().make("bf16");
    GradientSync sync(group, named(parameters), options);
    for (int step = 0; step < 3; ++step) {
      for (int m = 0; m < c.micro_batches; ++m) {
        sync.begin_backward(step, m == 0, m + 1 == c.micro_batches);
        backward(parameters, group.rank(), step, m, [&](int i) { return used(i, group.rank(), m); });
      }
      const std::vector<double> scalars{1.5 * (group.rank() + 1), 0};
      sync.end_backward(scalars);
      Tensors got = collect(sync, parameters.size());
      for (at::Tensor& g : got) {
        if (g.defined()) g = g.clone();
      }
      EXPECT_NEAR(sync.scalar_mean(0), 0.75 * (c.ranks + 1), 1e-6);
      results[group.rank()].push_back(got);
    }
  });
  const Tensors parameters = mixed_parameters();
  const double tolerance = c.bf16 ? 3e-2 : 1e-2;  // parameter 7 is bf16 itself
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
      const at::Tensor& got = results[0][step][i];
      EXPECT_EQ(got.defined(), i != 5) << "parameter " << i;
      if (!got.defined()) continue;
      EXPECT_EQ(got.scalar_type(), parameters[i].scalar_type());
      EXPECT_EQ(got.sizes(), parameters[i].sizes());
      const double bound = c.bf16 || i == 7 ? tolerance : 1e-6;
      EXPECT_TRUE(at::allclose(got.to(at::kDouble), reference_mean(parameters[i], c, step, i), bound, 0))
          << "parameter " << i << " step " << step;
      for (int rank = 1; rank < c.ranks; ++rank) {
        EXPECT_TRUE(at::equal(results[rank][step][i], got)) << "rank " << rank << " parameter " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    , GradientSyncTest,
    testing::Values(Case{.ranks = 1, .name = "one"},
                    Case{.ranks = 1, .micro_batches = 2, .name = "one_accumulated"},
                    Case{.ranks = 2, .name = "two"},
                    Case{.ranks = 3, .micro_batches = 3, .name = "three_accumulated"},
                    Case{.ranks = 4, .strategy = comm::Strategy::two_phase, .name = "four_two_phase"},
                    Case{.ranks = 3, .micro_batches = 2, .alone_bytes = 40, .name = "three_alone"},
                    Case{.ranks = 2, .bf16 = true, .alone_bytes = 40, .name = "two_alone_bf16"},
                    Case{.ranks = 2, .bf16 = true, .name = "two_bf16"},
                    Case{.ranks = 3,
                         .micro_batches = 2,
                         .strategy = comm::Strategy::two_phase,
                         .bf16 = true,
                         .name = "three_bf16_two_phase"}),
    [](const auto& info) { return info.param.name; });

TEST(GradientSync, BucketsFollowTheOrderOfReadinessFromTheSecondStep) {
  on_ranks(2, [](comm::Group& group) {
    const Tensors parameters{parameter({10}), parameter({10}), parameter({10}), parameter({10})};
    GradientSync sync(group, named(parameters), {.bucket_bytes = 40, .first_bucket_bytes = 40});
    const auto one_step = [&](uint32_t step) {
      sync.begin_backward(step, true, true);
      // A chain 2 -> 0 -> 3 in the forward, so that backward meets 3, 0, 2; parameter 1 is not used.
      parameters[2].mul(2).sum().add(parameters[0].sum()).mul(3).backward();
      parameters[3].sum().backward();
      sync.end_backward();
      collect(sync, 4);
      std::vector<size_t> order;
      for (size_t b = 0; b < sync.buckets(); ++b) order.push_back(sync.members(b).at(0));
      return order;
    };
    EXPECT_THAT(one_step(1), ElementsAre(3, 2, 1, 0)) << "last layer first";
    const auto learned = one_step(2);
    EXPECT_EQ(learned.back(), 1U) << "the unused one last";
    EXPECT_EQ(one_step(3), learned);
  });
}

TEST(GradientSync, AloneGivesAutogradsOwnMemory) {
  on_ranks(1, [](comm::Group& group) {
    const at::Tensor p = parameter({1000});
    GradientSync sync(group, {{"p", p}}, {});
    sync.begin_backward(0, true, true);
    p.mul(at::ones({1000})).sum().backward();
    const void* made = p.grad().const_data_ptr();
    const std::vector<double> loss{0.1};
    sync.end_backward(loss);
    EXPECT_EQ(sync.take_gradients(0).at(0).const_data_ptr(), made);
    EXPECT_FALSE(p.grad().defined());
    EXPECT_EQ(sync.scalar_mean(0), 0.1);
  });
}

TEST(GradientSync, LargeGradientTravelsInAutogradsOwnMemory) {
  on_ranks(2, [](comm::Group& group) {
    const at::Tensor p = parameter({1000});
    GradientSync sync(group, {{"p", p}}, {.alone_bytes = 4000});
    sync.begin_backward(0, true, false);
    p.mul(at::ones({1000})).sum().backward();
    sync.begin_backward(0, false, true);
    const void* made = nullptr;
    p.register_hook([&](const at::Tensor& gradient) { made = gradient.const_data_ptr(); });
    p.mul(at::ones({1000})).sum().backward();
    sync.end_backward();
    const at::Tensor accumulated = collect(sync, 1).at(0);
    EXPECT_TRUE(at::equal(accumulated, at::ones({1000}).mul(2)));
    sync.begin_backward(1, true, true);
    p.mul(at::ones({1000})).sum().backward();
    sync.end_backward();
    EXPECT_EQ(collect(sync, 1).at(0).const_data_ptr(), made);
  });
}

// Two parameters whose gradients are views of one tensor: a mean made in place would count it twice.
TEST(GradientSync, GradientsThatShareMemoryAreCopied) {
  on_ranks(2, [](comm::Group& group) {
    const at::Tensor a = parameter({4, 6}), b = parameter({24}), weight = at::arange(24, at::kFloat);
    GradientSync sync(group, named({a, b}), {.alone_bytes = 4});
    for (uint32_t step = 0; step < 3; ++step) {
      sync.begin_backward(step, true, true);
      a.view({24}).add(b).mul(weight).sum().backward();
      sync.end_backward();
      const Tensors got = collect(sync, 2);
      EXPECT_TRUE(at::equal(got[0], weight.view({4, 6})));
      EXPECT_TRUE(at::equal(got[1], weight));
    }
  });
}

TEST(GradientSync, OrderOfReadinessMayBeGiven) {
  on_ranks(2, [](comm::Group& group) {
    const Tensors parameters{parameter({10}), parameter({10}), parameter({10})};
    GradientSync sync(group, named(parameters),
                      {.bucket_bytes = 40, .first_bucket_bytes = 40, .ready_order = {1, 2, 0}});
    for (const size_t b : {0, 1, 2}) EXPECT_THAT(sync.members(b), ElementsAre((b + 1) % 3));
    EXPECT_THAT(sync.ready_order(), ElementsAre(1, 2, 0));
  });
}

TEST(GradientSync, LayoutFollowsTheParameter) {
  on_ranks(2, [](comm::Group& group) {
    const at::Tensor transposed = at::zeros({3, 4}).t().set_requires_grad(true);
    const at::Tensor complex = at::complex(at::zeros({3}), at::zeros({3})).set_requires_grad(true);
    GradientSync sync(group, {{"t", transposed}, {"c", complex}}, {});
    sync.begin_backward(0, true, true);
    const at::Tensor ramp = at::arange(12, at::kFloat).view({4, 3});
    at::real(complex.mul(at::complex(at::zeros({3}), at::ones({3})))).sum().backward();
    transposed.mul(ramp).sum().backward();
    sync.end_backward();
    const Tensors got = collect(sync, 2);
    EXPECT_EQ(got[0].strides(), transposed.strides());
    EXPECT_TRUE(at::equal(got[0], ramp));
    EXPECT_TRUE(at::equal(at::imag(got[1]), at::ones({3}).neg()));  // conjugate of i
  });
}

TEST(PlanBuckets, ClosesBeforeTheLimit) {
  const std::vector<int64_t> bytes{40, 40, 100, 0, 20, 60, 500, 8};
  const std::vector<size_t> order{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_THAT(plan_buckets(bytes, order, {50, 120, 10'000}),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2, 3, 4), ElementsAre(5),
                          ElementsAre(6), ElementsAre(7)));
  EXPECT_THAT(plan_buckets(bytes, {7, 0}, {1, 1000, 1000}), ElementsAre(ElementsAre(7), ElementsAre(0)));
  EXPECT_TRUE(plan_buckets(bytes, {}, {50, 120, 1000}).empty());
}

TEST(PlanBuckets, LargeOnesTravelAloneAndTheirBytesCountAsWaitingTime) {
  const std::vector<int64_t> bytes{10, 500, 10, 500, 10, 10, 500, 10, 10};
  const std::vector<size_t> order{0, 1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_THAT(plan_buckets(bytes, order, {20, 600, 500}),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(3), ElementsAre(2, 4, 5),
                          ElementsAre(6), ElementsAre(7, 8)));
}

TEST(PlanBuckets, LastBucketIsSmall) {
  const std::vector<int64_t> bytes{30, 30, 30, 30, 30};
  EXPECT_THAT(plan_buckets(bytes, {0, 1, 2, 3, 4}, {40, 1000, 1000}),
              ElementsAre(ElementsAre(0), ElementsAre(1, 2, 3), ElementsAre(4)));
}

}  // namespace
}  // namespace trireme::train
