// Every codec over every strategy that fits it: equal results on all ranks, and what does not arrive is kept.
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/comm/rank_threads_for_tests.h"

namespace trireme::comm {
namespace {

using codec::Payload;

std::vector<std::string> codec_names() {
  std::vector<std::string> names;
  const auto set = codec::built_in_codecs();
  for (const auto& [name, kind] : set.all()) names.push_back(name);
  return names;
}

std::vector<Strategy> strategies_of(Payload payload) {
  switch (payload) {
    case Payload::summable:
      return {Strategy::ring, Strategy::two_phase};
    case Payload::two_phase:
      return {Strategy::ring, Strategy::two_phase, Strategy::gather};
    case Payload::gather_only:
      break;
  }
  return {Strategy::gather};
}

codec::Choice pick(const std::string& name, codec::Feedback feedback = codec::Feedback::automatic) {
  return codec::choose(codec::built_in_codecs(), name, {}, feedback, "options", "feedback");
}

// A rank's end of a codec: memory for its state, and the operation.
struct Exchange {
  Exchange(Group& group, const codec::CodecPtr& codec, Strategy strategy, std::vector<float>& data,
           int parts) {
    AllReduceOptions options{.strategy = strategy, .codec = codec, .mean = true, .parts = parts, .seed = 5};
    const auto n = static_cast<int64_t>(data.size());
    const int64_t rows = n % 64 == 0 ? 64 : n;
    rounds = codec->rounds({{"tensor", rows, n / rows}});
    options.rounds = rounds.get();
    if (rounds == nullptr) memory.assign(codec->state_names().size(), std::vector<float>(data.size()));
    for (auto& m : memory) options.codec_state.emplace_back(m);
    operation = group.prepare_all_reduce("tensor", view_of(data), options);
  }
  std::vector<float> residual() const {
    if (rounds == nullptr) return memory.empty() ? std::vector<float>() : memory[0];
    const auto state = rounds->state();
    const auto found = state.find("residual");
    if (found == state.end()) return {};
    return {found->second[0].begin(), found->second[0].end()};
  }
  std::vector<std::vector<float>> memory;
  std::unique_ptr<codec::Rounds> rounds;
  std::unique_ptr<Operation> operation;
};

class CodecExchange : public testing::TestWithParam<std::string> {};

TEST_P(CodecExchange, GivesAllRanksTheSameAndLosesNothing) {
  const codec::Choice choice = pick(GetParam());
  const bool linear = choice.codec->rounds({{"t", 9, 1}}) != nullptr;
  const bool velocities =
      GetParam() == "dgc" || GetParam() == "adacomp";  // what they keep is not all in one vector
  for (const Strategy strategy : strategies_of(choice.codec->traits().payload)) {
    for (const int ranks : {2, 3}) {
      for (const size_t n : {1u, 2u, 1000u, 64u * 33u, 40'001u}) {
        constexpr int kSteps = 4;
        std::vector<std::vector<float>> results(static_cast<size_t>(ranks)), residuals(results.size());
        std::vector<double> in(n), out(n);
        for (int r = 0; r < ranks; ++r) {
          for (uint32_t step = 1; step <= kSteps; ++step) {
            const auto x = random_values(n, step * 10 + static_cast<uint64_t>(r));
            for (size_t i = 0; i < n; ++i) in[i] += x[i] / static_cast<double>(ranks);
          }
        }
        run_ranks(ranks, {.loopback = {.shuffle_seed = 3}, .queue_seed = 4}, [&](Group& group, Engine&) {
          const auto rank = static_cast<size_t>(group.rank());
          std::vector<float> data(n), all;
          Exchange exchange(group, choice.codec, strategy, data, 2);
          for (uint32_t step = 1; step <= kSteps; ++step) {
            const auto x = random_values(n, step * 10 + rank);
            std::copy(x.begin(), x.end(), data.begin());  // in place: the operation knows this memory
            exchange.operation->start(step, 0);
            exchange.operation->wait();
            all.insert(all.end(), data.begin(), data.end());
          }
          results[rank] = all;
          residuals[rank] = exchange.residual();
        });
        const std::string label =
            cat(GetParam(), " ", static_cast<int>(strategy), " ranks ", ranks, " n ", n);
        for (int r = 1; r < ranks; ++r) ASSERT_EQ(results[static_cast<size_t>(r)], results[0]) << label;
        for (size_t i = 0; i < results[0].size(); ++i) {
          ASSERT_TRUE(std::isfinite(results[0][i])) << label;
          out[i % n] += results[0][i];
        }
        if (!choice.feedback || velocities) continue;
        for (size_t i = 0; i < n; ++i) {
          double pending = 0;
          for (int r = 0; r < ranks; ++r) {
            // The owner's residual is of the mean, the others' are of their own data (or, on a ring, of a
            // partial sum).
            const size_t begin = n * static_cast<size_t>(r) / static_cast<size_t>(ranks);
            const size_t end = n * (static_cast<size_t>(r) + 1) / static_cast<size_t>(ranks);
            const bool owns = !linear && strategy != Strategy::gather && i >= begin && i < end;
            pending += residuals[static_cast<size_t>(r)][i] / (owns ? 1.0 : ranks);
          }
          ASSERT_NEAR(out[i] + pending, in[i], 2e-4 * (1 + std::fabs(in[i]) + std::fabs(pending)))
              << label << " at " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodecExchange, testing::ValuesIn(codec_names()),
                         [](const auto& info) { return info.param; });

// Random codecs without feedback: the mean over steps nears the mean over ranks, in two phases, where the
// aggregator draws as well, and with strata.
TEST(CodecExchangeBias, RandomCodecsAreUnbiasedOverTheWholeExchange) {
  for (const char* name : {"dither", "terngrad", "qsgd"}) {
    const auto codec = pick(name, codec::Feedback::off).codec;
    for (const Strategy strategy : {Strategy::two_phase, Strategy::gather}) {
      constexpr size_t n = 200;
      constexpr int kSteps = 600, kRanks = 3;
      run_ranks(kRanks, {}, [&](Group& group, Engine&) {
        const auto mine = random_values(n, 1 + static_cast<uint64_t>(group.rank()));
        std::vector<float> data(n);
        Exchange exchange(group, codec, strategy, data, 1);
        std::vector<double> sum(n), squares(n);
        for (uint32_t step = 1; step <= kSteps; ++step) {
          std::copy(mine.begin(), mine.end(), data.begin());
          exchange.operation->start(step, 0);
          exchange.operation->wait();
          for (size_t i = 0; i < n; ++i) sum[i] += data[i], squares[i] += double{data[i]} * data[i];
        }
        for (size_t i = 0; i < n; ++i) {
          double mean = 0;
          for (uint64_t r = 1; r <= kRanks; ++r) mean += random_values(n, r)[i] / kRanks;
          const double got = sum[i] / kSteps, variance = squares[i] / kSteps - got * got;
          ASSERT_NEAR(got, mean, 6 * std::sqrt(variance / kSteps) + 1e-3) << name << " " << i;
        }
      });
    }
  }
}

TEST(CodecExchangeErrors, NamesTheStrategyThatDoesNotFit) {
  run_ranks(2, {}, [](Group& group, Engine&) {
    std::vector<float> data(100);
    EXPECT_THROW(Exchange(group, pick("topk").codec, Strategy::two_phase, data, 1), Error);
    EXPECT_THROW(Exchange(group, pick("powersgd").codec, Strategy::gather, data, 1), Error);
    EXPECT_THROW(group.all_reduce(view_of(data), {.codec = pick("randk").codec}), Error);  // without rounds
  });
}

}  // namespace
}  // namespace trireme::comm
