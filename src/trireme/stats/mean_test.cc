#include "trireme/stats/mean.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/stats/quantiser.h"
#include "trireme/stats/test_data.h"

namespace trireme::stats {
namespace {

using namespace testing;

TEST(Mean, CountsGiveWhatDecodedValuesGive) {
  Dense x = normal_matrix(500, 3, 2);
  for (size_t i = 0; i < x.rows; i += 3) x(i, 1) = std::nan("");
  for (Scheme scheme : {Scheme::one_bit, Scheme::two_dither, Scheme::triangular, Scheme::multi_bit}) {
    CodeBook book = book_of(scheme, 3, 2);
    book.centre = {0.5, 0, -1};
    const BitMatrix bits = quantise(view(x), book, {.seed = 5}, Missing::mask);
    MeanCounts counts(book);
    counts.add(bits);
    for (size_t j = 0; j < 3; ++j) {
      double n = 0, sum = 0, square = 0;
      for (size_t i = 0; i < x.rows; ++i) {
        if (!bits.seen(i, j)) continue;
        double v = bits.value(i, j);
        if (scheme == Scheme::two_dither) v = (v + bits.value(i, j, 1)) / 2;
        n += 1, sum += v, square += v * v;
      }
      EXPECT_NEAR(counts.mean()[j], book.centre[j] + sum / n, 1e-12) << name(scheme);
      EXPECT_NEAR(counts.standard_errors()[j], std::sqrt((square / n - sum / n * sum / n) / (n - 1)), 1e-9)
          << name(scheme);
    }
  }
}

TEST(Mean, StreamAndMergeGiveTheSameCounts) {
  const Dense x = normal_matrix(900, 4, 2);
  const CodeBook book = book_of(Scheme::one_bit, 4, 2);
  MeanCounts whole(book), left(book), right(book);
  whole.add(quantise(view(x), book, {}));
  left.add(quantise(row_major(x.values.data(), 333, 4), book, {}));
  right.add(quantise(row_major(&x.values[333 * 4], 567, 4), book, {.first_row = 333}));
  MeanCounts stream = left;
  stream.add(quantise(row_major(&x.values[333 * 4], 567, 4), book, {.first_row = 333}));
  EXPECT_EQ(stream, whole);
  left.merge(right);
  EXPECT_EQ(left.mean(), whole.mean());
  EXPECT_EQ(left.standard_errors(), whole.standard_errors());
  EXPECT_THROW(left.merge(right), Error);
}

// dither.md's setting: mean 0.7, standard deviation 1, one thousand trials in the bench; here fewer, wider.
TEST(Mean, PilotRuleHasTheErrorOfItsRange) {
  constexpr int trials = 300;
  constexpr size_t n = 1000;
  double square = 0, range = 0, claimed = 0;
  for (int t = 0; t < trials; ++t) {
    Dense x = normal_matrix(n, 1, 1000 + t);
    for (double& v : x.values) v += 0.7;
    const PilotBook pilot = pilot_book(view(x), n);
    MeanCounts counts(pilot.book);
    counts.add(quantise(row_major(&x.values[pilot.rows], n - pilot.rows, 1), pilot.book,
                        {.seed = static_cast<uint64_t>(t), .first_row = pilot.rows}));
    square += std::pow(counts.mean()[0] - 0.7, 2) / trials;
    claimed += std::pow(counts.standard_errors()[0], 2) / trials;
    range += pilot.book.range[0] / trials;
  }
  EXPECT_NEAR(range, 1.54, 0.06);
  EXPECT_NEAR(std::sqrt(square), 0.0596, 0.006);
  EXPECT_NEAR(std::sqrt(claimed / square), 0.85, 0.2);  // the clipping bias is not in the standard error
}

TEST(Mean, CorruptedShareMovesTheMeanByNoMoreThanItsRange) {
  constexpr size_t n = 4000;
  Dense x = normal_matrix(n, 1, 3);
  for (size_t i = 0; i < n; i += 20) x(i, 0) = 1e6;  // 5 %
  const PilotBook pilot = pilot_book(view(x), n, 0.05);
  EXPECT_LT(pilot.book.range[0], 5);
  MeanCounts counts(pilot.book);
  counts.add(
      quantise(row_major(&x.values[pilot.rows], n - pilot.rows, 1), pilot.book, {.first_row = pilot.rows}));
  EXPECT_NEAR(counts.mean()[0], 0, 2 * 0.05 * pilot.book.range[0] + 0.2);
}

}  // namespace
}  // namespace trireme::stats
