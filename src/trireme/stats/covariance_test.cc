#include "trireme/stats/covariance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/stats/quantiser.h"
#include "trireme/stats/test_data.h"

namespace trireme::stats {
namespace {

using namespace testing;
using ::testing::HasSubstr;

struct Setting {
  Scheme scheme;
  Pairing pairing = Pairing::all_pairs;
  unsigned bits = 0;
};
const Setting kSettings[] = {
    {Scheme::one_bit},         {Scheme::two_dither},        {Scheme::two_dither, Pairing::raw},
    {Scheme::triangular},      {Scheme::triangular, {}, 4}, {Scheme::multi_bit, {}, 2},
    {Scheme::multi_bit, {}, 3}};

// The estimate and its standard errors from decoded values, straight from the formulas.
struct Reference {
  Dense moment, error;
};
Reference slow_reference(const BitMatrix& bits, Pairing pairing) {
  const size_t d = bits.columns();
  Reference out{Dense(d, d), Dense(d, d)};
  const bool two = bits.book().scheme == Scheme::two_dither;
  for (size_t i = 0; i < d; ++i)
    for (size_t j = 0; j < d; ++j) {
      double n = 0, sum = 0, square = 0;
      for (size_t k = 0; k < bits.rows(); ++k) {
        if (!bits.seen(k, i) || !bits.seen(k, j)) continue;
        const double a = bits.value(k, i, 0), b = bits.value(k, j, 0);
        double term = a * b;
        if (two) {
          const double a2 = bits.value(k, i, 1), b2 = bits.value(k, j, 1);
          term = pairing == Pairing::raw || i == j ? (a * b2 + a2 * b) / 2 : (a + a2) * (b + b2) / 4;
        }
        n += 1;
        sum += term;
        square += term * term;
      }
      const double step = bits.book().step_of(i);
      out.moment(i, j) = sum / n - (i == j && bits.book().scheme == Scheme::triangular ? step * step / 4 : 0);
      out.error(i, j) = std::sqrt(std::max(0.0, square / n - sum / n * (sum / n)) / (n - 1));
    }
  return out;
}

TEST(Covariance, CountsGiveWhatDecodedValuesGive) {
  Dense x = block_data(777, 21, 9);
  for (const bool missing : {false, true}) {
    if (missing)
      for (size_t k = 0; k < x.rows; ++k) x(k, k * 7 % 21) = std::nan("");
    for (const Setting& s : kSettings) {
      CodeBook book = book_of(s.scheme, 21, 2.5, s.bits);
      for (size_t j = 0; j < 21; ++j) book.range[j] = 1.5 + 0.1 * static_cast<double>(j);
      const BitMatrix bits = quantise(view(x), book, {.seed = 8}, Missing::mask);
      CovarianceCounts counts(book, s.pairing, true);
      counts.add(bits, 2);
      const std::vector<double> variances(21, 1.0);
      const bool given = s.scheme == Scheme::one_bit || s.scheme == Scheme::multi_bit;
      const Dense moment = counts.second_moment(given ? variances : std::vector<double>{});
      const Dense error = counts.standard_errors();
      const Reference expected = slow_reference(bits, s.pairing);
      for (size_t i = 0; i < 21; ++i)
        for (size_t j = 0; j < 21; ++j) {
          SCOPED_TRACE(std::string(name(s.scheme)) + (missing ? " masked " : " ") + std::to_string(i) + "," +
                       std::to_string(j));
          ASSERT_NEAR(moment(i, j), i == j && given ? 1.0 : expected.moment(i, j), 1e-9);
          ASSERT_NEAR(error(i, j), expected.error(i, j), 1e-7);
        }
    }
  }
}

TEST(Covariance, WideBlocksTakeProductsOfCodesAndGiveTheSame) {
  const Dense x = block_data(333, 130, 9);
  const CodeBook book = book_of(Scheme::triangular, 130, 2.5);
  const BitMatrix bits = quantise(view(x), book, {.seed = 8});
  CovarianceCounts counts(book, {}, true);
  counts.add(bits);
  const Dense moment = counts.second_moment(), error = counts.standard_errors();
  const Reference expected = slow_reference(bits, {});
  for (size_t k = 0; k < moment.values.size(); ++k) {
    ASSERT_NEAR(moment.values[k], expected.moment.values[k], 1e-9);
    ASSERT_NEAR(error.values[k], expected.error.values[k], 1e-7);
  }
}

TEST(Covariance, EveryKernelGivesTheSameCounts) {
  // Below and above the least width, more than one block of columns, and rows enough to be shared out in
  // pieces.
  const std::vector<std::pair<size_t, size_t>> shapes{{1, 24}, {99, 23}, {513, 37}, {700, 250}, {20'000, 30}};
  for (const auto& [n, d] : shapes) {
    const Dense x = block_data(n, d, 4);
    for (const Setting& s : kSettings) {
      const CodeBook book = book_of(s.scheme, d, 3, s.bits);
      const BitMatrix bits = quantise(view(x), book, {});
      CovarianceCounts expected(book, s.pairing, true);
      expected.add(bits, 1, kPortableKernels);
      for (const Kernels* k : runnable_kernels())
        for (unsigned threads : {1, 3}) {
          CovarianceCounts counts(book, s.pairing, true);
          counts.add(bits, threads, *k);
          EXPECT_EQ(counts, expected) << k->name << " " << name(s.scheme) << " " << n << " x " << d;
        }
    }
  }
}

TEST(Covariance, StreamThreadsAndMergeGiveTheSameCounts) {
  const Dense x = block_data(1000, 37, 4);
  for (const Setting& s : kSettings) {
    const CodeBook book = book_of(s.scheme, 37, 3, s.bits);
    CovarianceCounts whole(book, s.pairing, true), stream(book, s.pairing, true), left(book, s.pairing, true),
        right(book, s.pairing, true);
    whole.add(quantise(view(x), book, {}), 3);
    const size_t cuts[] = {0, 1, 100, 613, 1000};
    for (int c = 0; c < 4; ++c) {
      const auto part = row_major(&x.values[cuts[c] * 37], cuts[c + 1] - cuts[c], 37);
      const BitMatrix bits = quantise(part, book, {.first_row = cuts[c]});
      stream.add(bits, 1);
      (c < 2 ? left : right).add(bits);
    }
    EXPECT_EQ(whole, stream) << name(s.scheme);
    left.merge(right);
    EXPECT_EQ(whole, left) << name(s.scheme);
    EXPECT_EQ(CovarianceCounts::from_state(whole.state()), whole);
  }
}

TEST(Covariance, MergingMaskedWithUnmaskedCountsBoth) {
  Dense x = block_data(600, 6, 4);
  x(10, 3) = x(200, 0) = std::nan("");
  const CodeBook book = book_of(Scheme::triangular, 6, 3);
  CovarianceCounts whole(book), a(book), b(book);
  whole.add(quantise(view(x), book, {}, Missing::mask));
  a.add(quantise(row_major(x.values.data(), 300, 6), book, {}, Missing::mask));
  b.add(quantise(row_major(&x.values[300 * 6], 300, 6), book, {.first_row = 300}, Missing::mask));
  b.merge(a);
  EXPECT_EQ(b.second_moment(), whole.second_moment());
  EXPECT_EQ(b.pairs(3, 0), 598u);
  EXPECT_EQ(b.pairs(1, 2), 600u);
}

TEST(Covariance, ReusedDithersAreRefused) {
  const CodeBook book = book_of(Scheme::triangular, 2, 1);
  const BitMatrix bits = quantise(view(normal_matrix(100, 2, 1)), book, {.seed = 1, .first_row = 50});
  CovarianceCounts counts(book);
  counts.add(bits);
  EXPECT_THROW(counts.add(bits), Error);
  EXPECT_THROW(counts.add(quantise(view(normal_matrix(60, 2, 2)), book, {.seed = 1})), Error);
  counts.add(quantise(view(normal_matrix(50, 2, 2)), book, {.seed = 1}));
  counts.add(quantise(view(normal_matrix(60, 2, 2)), book, {.seed = 1, .stream = 9}));
  EXPECT_THROW(
      counts.add(quantise(view(normal_matrix(60, 2, 2)), book_of(Scheme::triangular, 2, 2), {.seed = 3})),
      Error);
}

// Mean over trials of the squared Frobenius error, against the sum of the per-entry variances over n.
TEST(Covariance, SquaredErrorIsTheVarianceFormula) {
  constexpr size_t d = 20, n = 2000;
  constexpr int trials = 100;
  constexpr double g = 3;
  // E clip^2 of a normal at 3 is 0.995: the formulas hold up to that bias.
  double raw = 0, all = 0, tri = 0, raw_predicted = 0, all_predicted = 0, tri_predicted = 0;
  for (size_t i = 0; i < d; ++i)
    for (size_t j = 0; j < d; ++j) {
      const double s = block_covariance(i, j), m = 1 + 2 * s * s;
      raw_predicted += (i == j ? g * g * g * g - 1 : std::pow(g, 4) / 2 + m / 2 - s * s) / n;
      all_predicted += (i == j ? g * g * g * g - 1 : std::pow(g, 4) / 4 + g * g / 2 + m / 4 - s * s) / n;
      tri_predicted += (i == j ? 2 * g * g - 1 : m + g * g / 2 + std::pow(g, 4) / 16 - s * s) / n;
    }
  const auto error = [](const CovarianceCounts& counts) {
    const Dense moment = counts.second_moment();
    double sum = 0;
    for (size_t i = 0; i < d; ++i)
      for (size_t j = 0; j < d; ++j) sum += std::pow(moment(i, j) - block_covariance(i, j), 2);
    return sum / trials;
  };
  for (int t = 0; t < trials; ++t) {
    const Dense x = block_data(n, d, 100 + t);
    const DitherPlace place{.seed = static_cast<uint64_t>(t)};
    CovarianceCounts a(book_of(Scheme::two_dither, d, g), Pairing::raw), b(a.book()),
        c(book_of(Scheme::triangular, d, g));
    const BitMatrix two = quantise(view(x), a.book(), place);
    a.add(two, 1);
    b.add(two, 1);
    c.add(quantise(view(x), c.book(), place), 1);
    raw += error(a);
    all += error(b);
    tri += error(c);
  }
  EXPECT_NEAR(raw / raw_predicted, 1, 0.03);
  EXPECT_NEAR(all / all_predicted, 1, 0.03);
  EXPECT_NEAR(tri / tri_predicted, 1, 0.03);
}

TEST(Covariance, MeanAndCentredCovariance) {
  Dense x = normal_matrix(200'000, 2, 4);
  for (size_t i = 0; i < x.rows; ++i) x(i, 0) = 0.7 + 0.5 * x(i, 0), x(i, 1) = x(i, 0) - 1;
  CodeBook book = book_of(Scheme::triangular, 2, 2);
  book.centre = {0.5, 0};
  CovarianceCounts counts(book, {}, true);
  counts.add(quantise(view(x), book, {}));
  EXPECT_NEAR(counts.mean()[0], 0.2, 0.012);
  EXPECT_NEAR(counts.mean()[1], -0.3, 0.012);
  const double tolerance = 4 * counts.standard_errors()(0, 0);
  for (double entry : counts.covariance().values) EXPECT_NEAR(entry, 0.25, tolerance);
}

TEST(Covariance, UnknownDiagonalIsRefusedUnlessGiven) {
  const CodeBook book = book_of(Scheme::one_bit, 3, 2);
  CovarianceCounts counts(book);
  counts.add(quantise(view(normal_matrix(500, 3, 1)), book, {}));
  EXPECT_THROW((void)counts.second_moment(), Error);
  EXPECT_EQ(counts.second_moment({1, 2, 3})(1, 1), 2);
}

Dense symmetric(std::initializer_list<double> rows, size_t d) {
  Dense m(d, d);
  m.values = rows;
  return m;
}

TEST(Threshold, HardKeepsOrDropsSoftAlsoMoves) {
  const Dense start = symmetric({1, 0.5, -0.2, 0.5, 1, 0.1, -0.2, 0.1, 1}, 3);
  const double multiple = 0.3 / std::sqrt(std::log(3.0) / 100);  // level 0.3 at unit scale
  Dense hard = start, soft = start;
  threshold(hard, Shrink::hard, multiple, {1, 1, 1}, 100);
  threshold(soft, Shrink::soft, multiple, {1, 1, 1}, 100);
  EXPECT_EQ(hard, symmetric({1, 0.5, 0, 0.5, 1, 0, 0, 0, 1}, 3));
  EXPECT_NEAR(soft(0, 1), 0.2, 1e-12);
  EXPECT_EQ(soft(0, 2), 0);
  EXPECT_EQ(soft(0, 0), 1);
}

TEST(Threshold, FoldsChooseALevelNearTheBest) {
  constexpr size_t d = 40, n = 8000;
  const CodeBook book = book_of(Scheme::two_dither, d, 3);
  const BitMatrix bits = quantise(view(block_data(n, d, 2)), book, {});
  CovarianceCounts counts(book);
  counts.add(bits);
  std::vector<double> candidates;
  for (int c = 0; c <= 24; ++c) candidates.push_back(0.1 * c);
  const ThresholdChoice choice = choose_threshold(bits, Pairing::all_pairs, Shrink::hard, candidates, 5);
  // Blocks that come one by one have folds of their own: the same choice but for the noise of other folds.
  std::vector<CovarianceCounts> parts(5, CovarianceCounts(book));
  for (size_t first = 0; first < n; first += n / 4) add_in_folds(bits.slice(first, n / 4), parts);
  EXPECT_NEAR(choose_threshold(parts, Shrink::hard, candidates).multiple, choice.multiple, 0.21);
  EXPECT_THROW(
      choose_threshold(std::vector<CovarianceCounts>(3, CovarianceCounts(book)), Shrink::hard, candidates),
      Error);
  std::vector<double> errors;
  for (double c : candidates) {
    Dense cut = counts.second_moment();
    threshold(cut, Shrink::hard, c, book.range, n);
    double sum = 0;
    for (size_t i = 0; i < d; ++i)
      for (size_t j = 0; j < d; ++j) sum += std::pow(cut(i, j) - block_covariance(i, j), 2);
    errors.push_back(std::sqrt(sum));
  }
  const size_t chosen = static_cast<size_t>(std::lround(choice.multiple / 0.1));
  EXPECT_LE(errors[chosen], 1.15 * *std::min_element(errors.begin(), errors.end()));
  EXPECT_LE(errors[chosen], 0.6 * errors[0]);
}

TEST(Definite, ProjectionAndShrinkingMendNegativeEigenvalues) {
  const Dense bad = symmetric({1, 0.9, 0, 0.9, 1, 0.9, 0, 0.9, 1}, 3);
  EXPECT_NEAR(smallest_eigenvalue(bad), 1 - 0.9 * std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(smallest_eigenvalue(project_psd(bad, 0.01)), 0.01, 1e-9);
  const Dense kept = shrink_to_definite(bad, 0.05);
  EXPECT_EQ(kept(0, 2), 0);
  EXPECT_NEAR(smallest_eigenvalue(kept), 0.05, 1e-6);
  const Dense good = symmetric({2, 1, 1, 2}, 2);
  EXPECT_EQ(shrink_to_definite(good, 0.5), good);
  EXPECT_THROW(shrink_to_definite(symmetric({0, 0, 0, 1}, 2), 0.1), Error);
}

TEST(Complex, FoldsToTheHermitianCovariance) {
  // x2 = i x1: E x1 x2^* = -i.
  constexpr size_t n = 100'000;
  Dense parts(n, 4);
  const Dense z = normal_matrix(n, 2, 8);
  for (size_t k = 0; k < n; ++k) {
    parts(k, 0) = z(k, 0), parts(k, 2) = z(k, 1);
    parts(k, 1) = -z(k, 1), parts(k, 3) = z(k, 0);
  }
  CodeBook book = book_of(Scheme::triangular, 4, 4);
  book.complex = true;
  CovarianceCounts counts(book);
  counts.add(quantise(view(parts), book, {}));
  const ComplexDense c = fold_complex(counts.second_moment());
  EXPECT_NEAR(c.real(0, 0), 2, 0.1);
  EXPECT_NEAR(c.real(0, 1), 0, 0.1);
  EXPECT_NEAR(c.imaginary(0, 1), -2, 0.1);
  EXPECT_NEAR(c.imaginary(1, 0), 2, 0.1);
  const ComplexDense t = toeplitz(c);
  EXPECT_EQ(t.real(0, 0), t.real(1, 1));
  EXPECT_EQ(t.imaginary(0, 1), c.imaginary(0, 1));
  // E x x^H has rank 1 and trace 4: eigenvalues 0 and 4, each twice in the embedding.
  EXPECT_NEAR(smallest_eigenvalue(embed(c)), 0, 0.1);
  EXPECT_EQ(extract(embed(c)).imaginary, c.imaginary);
  EXPECT_EQ(extract(embed(c)).real, c.real);
}

TEST(Baselines, FullPrecisionAndArcsine) {
  const Dense x = block_data(100'000, 4, 8);
  const Dense full = full_precision_second_moment(view(x)), arcsine = arcsine_correlation(view(x));
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 4; ++j) {
      EXPECT_NEAR(full(i, j), block_covariance(i, j), 0.02);
      EXPECT_NEAR(arcsine(i, j), block_covariance(i, j), 0.02);
    }
  EXPECT_DOUBLE_EQ(full_precision_second_moment(view(normal_matrix(2000, 3, 1)))(1, 2),
                   full_precision_second_moment(view(normal_matrix(2000, 3, 1)))(2, 1));
}

}  // namespace
}  // namespace trireme::stats
