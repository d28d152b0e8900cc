#include "trireme/codec/linear.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/codec/test_data.h"

namespace trireme::codec {
namespace {

// rows x columns of rank `rank`, row by row.
std::vector<float> low_rank(size_t rows, size_t columns, size_t rank, uint64_t seed) {
  const auto a = gaussian(rows * rank, seed), b = gaussian(columns * rank, seed + 1);
  std::vector<float> m(rows * columns);
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j)
      for (size_t k = 0; k < rank; ++k) m[i * columns + j] += a[i * rank + k] * b[j * rank + k];
  return m;
}

std::vector<std::span<const float>> views(const std::vector<std::vector<float>>& numbers) {
  return {numbers.begin(), numbers.end()};
}

// Ranks side by side: numbers summed by hand, in rank order; returns what all decode to.
std::vector<float> exchange(std::vector<std::unique_ptr<Rounds>>& ranks,
                            const std::vector<std::vector<float>>& data, const Call& call) {
  std::vector<std::vector<float>> means;
  for (int r = 0; r < ranks[0]->count(); ++r) {
    std::vector<float> mean(ranks[0]->elements(r));
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      std::vector<float> own(mean.size());
      ranks[rank]->encode(r, data[rank], views(means), own, call);
      for (size_t i = 0; i < own.size(); ++i) mean[i] += own[i] / static_cast<float>(ranks.size());
    }
    means.push_back(mean);
  }
  std::vector<float> result(data[0].size()), other(data[0].size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank]->decode(views(means), rank == 0 ? result : other, call);
    if (rank > 0) {
      EXPECT_EQ(other, result) << "replicas differ";
    }
    ranks[rank]->finish(views(means), call);
  }
  return result;
}

TEST(PowerSgd, ReturnsAMatrixOfItsRank) {
  const size_t rows = 60, columns = 40;
  const auto m = low_rank(rows, columns, 3, 1);
  Call call = call_of(1);
  call.rows = rows, call.columns = columns;
  const CodecPtr powersgd = built_in_codecs().make("powersgd");
  const auto wire = encoded(*powersgd, m, call);
  EXPECT_EQ(wire.size(), 32 + 4 * 4 * (rows + columns));
  EXPECT_LT(distance(decoded(*powersgd, wire, m.size()), m), 1e-9 * square(m));
}

TEST(PowerSgd, TravelsAsItIsWhereFactorsWouldNotBeSmaller) {
  const auto m = gaussian(6 * 5, 1);
  Call call = call_of(1);
  call.rows = 6, call.columns = 5;
  const CodecPtr powersgd = built_in_codecs().make("powersgd");
  EXPECT_EQ(decoded(*powersgd, encoded(*powersgd, m, call), m.size()), m);
}

// A constant gradient of full rank: warm start turns the factors to its largest directions.
TEST(LowRank, WarmStartFindsTheLargestDirections) {
  for (const char* name : {"powersgd", "acpsgd"}) {
    auto m = low_rank(64, 48, 2, 3);
    const auto noise = gaussian(m.size(), 5, 0.05);
    for (size_t i = 0; i < m.size(); ++i) m[i] += noise[i];
    const CodecPtr codec = built_in_codecs().make(name, {{"rank", int64_t{2}}});
    std::vector<std::unique_ptr<Rounds>> one;
    one.push_back(codec->rounds({{"m", 64, 48}}));
    std::vector<float> last;
    for (uint64_t step = 1; step <= 10; ++step) last = exchange(one, {m}, call_of(step, step));
    EXPECT_LT(distance(last, m), 1.02 * square(noise)) << name;
  }
}

// Mean over ranks, equal on all; with feedback the sum of what came out nears the sum of what went in.
TEST(LowRank, FeedbackSendsEverythingInTheEnd) {
  const Shapes shapes{{"w", 30, 20}, {"b", 7, 1}, {"v", 16, 50}};
  const size_t n = 30 * 20 + 7 + 16 * 50;
  for (const char* name : {"randk", "powersgd", "acpsgd"}) {
    const CodecSet set = built_in_codecs();
    const Choice choice = choose(set, name, {}, Feedback::automatic, "o", "f");
    ASSERT_TRUE(choice.feedback) << name;
    std::vector<std::unique_ptr<Rounds>> ranks;
    for (int r = 0; r < 3; ++r) ranks.push_back(choice.codec->rounds(shapes));
    const std::vector<std::vector<float>> data{gaussian(n, 1), gaussian(n, 2), gaussian(n, 3)};
    std::vector<double> out(n);
    const int steps = name == std::string("randk") ? 400 : 60;
    for (int step = 1; step <= steps; ++step) {
      const auto mean =
          exchange(ranks, data, call_of(static_cast<uint64_t>(step), static_cast<uint64_t>(step)));
      for (size_t i = 0; i < n; ++i) out[i] += mean[i];
    }
    // What is missing is the mean of the residuals.
    std::vector<double> missing(n);
    for (auto& r : ranks) {
      size_t at = 0;
      const auto state = r->state();
      for (const auto& part : state.at("residual"))
        for (const float v : part) missing[at++] += v / 3.0;
    }
    double whole = 0, left = 0;
    for (size_t i = 0; i < n; ++i) {
      const double in = steps * (double{data[0][i]} + data[1][i] + data[2][i]) / 3;
      ASSERT_NEAR(out[i] + missing[i], in, 2e-3 * (1 + std::fabs(in))) << name << i;
      whole += in * in;
      left += missing[i] * missing[i];
    }
    EXPECT_LT(left, 0.2 * whole) << name;  // bounded, while `whole` grows with the steps
  }
}

TEST(LowRank, ZeroGradientsDoNotEndIt) {
  for (const char* name : {"powersgd", "acpsgd"}) {
    std::vector<std::unique_ptr<Rounds>> one;
    one.push_back(built_in_codecs().make(name)->rounds({{"m", 40, 40}}));
    const std::vector<float> zeros(1600);
    for (uint64_t step = 1; step <= 3; ++step) EXPECT_EQ(exchange(one, {zeros}, call_of(step, step)), zeros);
    const auto m = low_rank(40, 40, 1, 1);
    std::vector<float> last;
    for (uint64_t step = 4; step <= 6; ++step) last = exchange(one, {m}, call_of(step, step));
    EXPECT_LT(distance(last, m), 1e-6 * square(m)) << name;
  }
}

TEST(AcpSgd, SendsAboutHalfOfBothFactors) {
  const Shapes shapes{{"a", 400, 100}, {"b", 100, 400}, {"c", 300, 300}};
  const auto p = built_in_codecs().make("powersgd")->rounds(shapes),
             a = built_in_codecs().make("acpsgd")->rounds(shapes);
  EXPECT_LT(static_cast<double>(a->elements(0)), 0.6 * static_cast<double>(p->elements(0) + p->elements(1)));
}

}  // namespace
}  // namespace trireme::codec
