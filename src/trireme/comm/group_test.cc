#include "trireme/comm/group.h"

#include <gtest/gtest.h>

#include <cstring>
#include <mutex>

#include "trireme/comm/rank_threads_for_tests.h"
#include "trireme/comm/reference.h"

namespace trireme::comm {
namespace {

// Gathers every rank's result outside the threads.
struct Results {
  explicit Results(int size) : values(static_cast<size_t>(size)) {}
  void put(int rank, std::vector<float> v) {
    std::lock_guard lock(mutex);
    values[static_cast<size_t>(rank)] = std::move(v);
  }
  std::mutex mutex;
  std::vector<std::vector<float>> values;
};

struct Case {
  int64_t elements;
  AllReduceOptions options;
};

std::vector<Case> cases(int ranks) {
  std::vector<int64_t> sizes;
  for (int64_t n = 0; n <= 65; ++n) sizes.push_back(n);
  sizes.push_back((int64_t{1} << 18) * ranks + 1);  // past a chunk border of the last rank's share
  std::vector<Case> list;
  for (const int64_t n : sizes) {
    for (const auto strategy : {Strategy::ring, Strategy::two_phase}) {
      for (const auto& codec : {codec::make_none(), codec::built_in_codecs().make("bf16")}) {
        for (const int parts : {1, n % 2 == 0 ? 2 : 5}) {
          list.push_back({n, {strategy, codec, (n / 2 + parts) % 2 == 0, parts}});
        }
      }
    }
  }
  return list;
}

std::vector<float> input(const Case& c, size_t index, int rank) {
  return random_values(static_cast<size_t>(c.elements), index * 16 + static_cast<uint64_t>(rank));
}

void check_case(const Case& c, size_t index, int ranks, const std::vector<std::vector<float>>& results) {
  std::vector<std::vector<float>> inputs;
  for (int r = 0; r < ranks; ++r) inputs.push_back(input(c, index, r));
  const ReferenceSum expected = reference_sum(inputs);
  const bool lossy = c.options.codec->name() == "bf16" && ranks > 1;
  const double unit = lossy ? 0x1p-8 + 0x1p-16 : 0x1p-23;
  const double scale = c.options.mean ? 1.0 / ranks : 1.0;
  for (int r = 0; r < ranks; ++r) {
    const auto& result = results[static_cast<size_t>(r)];
    ASSERT_EQ(result.size(), static_cast<size_t>(c.elements));
    ASSERT_TRUE(result.empty() ||
                std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)) == 0)
        << "replicas differ: case " << index << ", rank " << r;
    for (size_t i = 0; i < result.size(); ++i) {
      // Each of at most `ranks` roundings errs by a unit of a partial sum, which no partial sum of |x|
      // exceeds.
      const double error = std::fabs(result[i] - expected.sum[i] * scale);
      if (error > unit * ranks * 1.01 * expected.magnitude[i] * scale) {
        FAIL() << "case " << index << ", " << c.elements << " elements, element " << i << " is off by "
               << error;
      }
    }
  }
}

class AllReduce : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(AllReduce, EqualsTheSumOnEveryReplica) {
  const auto [ranks, shuffled] = GetParam();
  const auto list = cases(ranks);
  RankWorld world;
  if (shuffled) world = {.loopback = {.shuffle_seed = 7}, .queue_seed = 11};
  std::vector<std::unique_ptr<Results>> results;
  for (size_t i = 0; i < list.size(); ++i) results.push_back(std::make_unique<Results>(ranks));
  run_ranks(ranks, world, [&](Group& group, Engine&) {
    for (size_t i = 0; i < list.size(); ++i) {
      auto values = input(list[i], i, group.rank());
      group.all_reduce(view_of(values), list[i].options);
      results[i]->put(group.rank(), std::move(values));
    }
  });
  for (size_t i = 0; i < list.size(); ++i) check_case(list[i], i, ranks, results[i]->values);
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllReduce, ::testing::Combine(::testing::Range(1, 6), ::testing::Bool()));

TEST(Group, RepeatedRunsGiveTheSameBits) {
  for (const auto strategy : {Strategy::ring, Strategy::two_phase}) {
    Results first(4), second(4);
    for (auto* results : {&first, &second}) {
      run_ranks(4, {.loopback = {.shuffle_seed = results == &first ? 3u : 4u}, .queue_seed = 5},
                [&](Group& g, Engine&) {
                  auto values = random_values(1000, static_cast<uint64_t>(g.rank()));
                  g.all_reduce(view_of(values), {.strategy = strategy, .mean = true, .parts = 3});
                  results->put(g.rank(), std::move(values));
                });
    }
    EXPECT_EQ(first.values, second.values);
  }
}

TEST(Group, OffExchangesNothing) {
  run_ranks(2, {}, [](Group& g, Engine& e) {
    auto values = random_values(10, static_cast<uint64_t>(g.rank()));
    const auto before = values;
    g.all_reduce(view_of(values), {.strategy = Strategy::off, .mean = true});
    EXPECT_EQ(values, before);
    EXPECT_EQ(e.transport().traffic().bytes_sent, 0);
  });
}

TEST(Group, MovesBytes) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (size_t bytes : {0u, 1u, 3u, 64u, 1000u}) {
      run_ranks(ranks, {.loopback = {.shuffle_seed = bytes + 1}}, [&](Group& g, Engine&) {
        const auto n = static_cast<size_t>(g.size()), me = static_cast<size_t>(g.rank());
        for (int root = 0; root < g.size(); ++root) {
          std::vector<uint8_t> data(bytes, g.rank() == root ? uint8_t(root + 1) : uint8_t{0});
          g.broadcast(bytes_of(data), root);
          EXPECT_EQ(data, std::vector<uint8_t>(bytes, uint8_t(root + 1)));
        }
        std::vector<uint8_t> mine(bytes, uint8_t(me)), all(bytes * n), from(bytes * n), to(bytes * n);
        g.all_gather(bytes_of(mine), bytes_of(all));
        for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], i / bytes);
        for (size_t i = 0; i < from.size(); ++i) from[i] = uint8_t(me * 16 + i / bytes);
        g.all_to_all(bytes_of(from), bytes_of(to));
        for (size_t i = 0; i < to.size(); ++i) EXPECT_EQ(to[i], i / bytes * 16 + me);
      });
    }
  }
}

TEST(Group, ReduceScatterLeavesOtherSharesAlone) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (int64_t share : {0, 1, 7, 300}) {
      run_ranks(ranks, {.loopback = {.shuffle_seed = 2}, .queue_seed = 3}, [&](Group& g, Engine&) {
        std::vector<std::vector<float>> inputs;
        for (int r = 0; r < ranks; ++r)
          inputs.push_back(random_values(static_cast<size_t>(share * ranks), uint64_t(r)));
        const auto expected = reference_sum(inputs);
        auto data = inputs[static_cast<size_t>(g.rank())];
        std::vector<float> mine(static_cast<size_t>(share));
        g.reduce_scatter(view_of(data), mine, true);
        for (size_t i = 0; i < data.size(); ++i) {
          const auto owner = static_cast<int>(i / static_cast<size_t>(share));
          if (owner != g.rank()) {
            EXPECT_EQ(data[i], inputs[static_cast<size_t>(g.rank())][i]);
          } else {
            EXPECT_EQ(data[i], mine[i % static_cast<size_t>(share)]);
            EXPECT_NEAR(data[i], expected.sum[i] / ranks, 1e-6 * expected.magnitude[i]);
          }
        }
      });
    }
  }
}

TEST(Group, PairsAndSubgroupsDoNotDisturbEachOther) {
  run_ranks(4, {.loopback = {.shuffle_seed = 9}}, [](Group& all, Engine& engine) {
    Group half = all.subgroup(all.rank() < 2 ? std::vector{0, 1} : std::vector{3, 2}, all.rank() < 2 ? 1 : 2);
    Group odd(engine, {all.rank() % 2, all.rank() % 2 + 2}, uint16_t(3 + all.rank() % 2));
    for (int round = 0; round < 50; ++round) {
      std::vector<float> a{static_cast<float>(all.rank())}, b = a, c = a;
      half.all_reduce(view_of(a));
      odd.all_reduce(view_of(b), {.strategy = Strategy::two_phase});
      EXPECT_EQ(a[0], all.rank() < 2 ? 1 : 5);
      EXPECT_EQ(b[0], all.rank() % 2 == 0 ? 2 : 4);
      if (all.rank() == 0) all.send(3, bytes_of(c));
      if (all.rank() == 3) {
        all.receive(0, bytes_of(c));
        EXPECT_EQ(c[0], 0);
      }
      all.barrier();
    }
  });
}

TEST(Group, ABarrierHoldsEveryoneBack) {
  std::atomic<int> entered = 0;
  run_ranks(4, {}, [&](Group& g, Engine&) {
    for (int round = 1; round <= 20; ++round) {
      ++entered;
      g.barrier();
      EXPECT_GE(entered.load(), 4 * round);
      g.barrier();
    }
  });
}

TEST(Group, RefusesWhatDoesNotFit) {
  run_ranks(2, {}, [](Group& g, Engine& e) {
    std::vector<uint8_t> three(3), five(5);
    std::vector<float> f(5), out(2);
    EXPECT_THROW(g.all_gather(bytes_of(three), bytes_of(five)), Error);
    EXPECT_THROW(g.all_to_all(bytes_of(five), bytes_of(five)), Error);
    EXPECT_THROW(g.reduce_scatter(view_of(f), out), Error);
    EXPECT_THROW(g.broadcast(bytes_of(five), 2), Error);
    EXPECT_THROW(g.send(g.rank(), bytes_of(five)), Error);
    EXPECT_THROW(Group(e, {1 - g.rank()}, 1), Error);
    EXPECT_THROW(Group(e, {0, 1, 1}, 1), Error);
    EXPECT_THROW(Group(e, {0, 1}, 600), Error);
  });
}

}  // namespace
}  // namespace trireme::comm
