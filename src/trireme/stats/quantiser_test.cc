#include "trireme/stats/quantiser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/stats/test_data.h"

namespace trireme::stats {
namespace {

using namespace testing;
using ::testing::HasSubstr;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing thrown";
}

struct Moments {
  double mean = 0, variance = 0;
};

// Of the decoded value of x over n rows of dithers.
Moments moments(double x, const CodeBook& book, size_t n = 400'000) {
  const Dense data(n, 1, x);
  const BitMatrix bits = quantise(view(data), book, {.seed = 3});
  double sum = 0, square = 0;
  for (size_t i = 0; i < n; ++i) {
    const double v = bits.value(i, 0);
    sum += v;
    square += v * v;
  }
  return {sum / n, square / n - sum / n * sum / n};
}

TEST(Quantiser, MeanAndVarianceOfOneBitAreThoseOfTheory) {
  struct Row {
    double range, x, mean, variance;
  };
  constexpr double n = 400'000;
  for (const Row& r : std::vector<Row>{{1, 0, 0, 1},
                                       {1, 0.3, 0.3, 0.91},
                                       {1, -0.8, -0.8, 0.36},
                                       {2, 1.5, 1.5, 1.75},
                                       {2, -0.25, -0.25, 3.9375},
                                       {1, 1.4, 1, 0},
                                       {0.5, -2, -0.5, 0},
                                       {1, 1, 1, 0},
                                       {1, -1, -1, 0}}) {
    const Moments m = moments(r.x, book_of(Scheme::one_bit, 1, r.range));
    EXPECT_NEAR(m.mean, r.mean, 4 * std::sqrt(r.variance / n) + 1e-12) << r.range << " " << r.x;
    EXPECT_NEAR(m.variance, r.variance, 0.01 * r.variance + 1e-9) << r.range << " " << r.x;
  }
}

TEST(Quantiser, TriangularErrorIsTheSameForEveryValue) {
  for (double x : {0.0, 0.1, 0.25, 0.4, 0.5, 0.9, -0.77, 1.0, -1.0}) {
    const Moments m = moments(x, book_of(Scheme::triangular, 1, 1.0));
    EXPECT_NEAR(m.mean, x, 4 * std::sqrt(0.25 / 400'000)) << x;
    EXPECT_NEAR(m.variance, 0.25, 0.0025) << x;
  }
  const CodeBook wide{.scheme = Scheme::triangular, .bits = 5, .range = {9.5}, .step = 1.0};
  EXPECT_NEAR(moments(9.5, wide).mean, 9.5, 4 * std::sqrt(0.25 / 400'000));
  EXPECT_NEAR(moments(-7.3, wide).variance, 0.25, 0.0025);
}

TEST(Quantiser, MultiBitIsStochasticRounding) {
  const CodeBook book{.scheme = Scheme::multi_bit, .bits = 3, .range = {3.5}, .step = 1.0};
  const double expected[][2] = {{0, 0.25}, {0.1, 0.24}, {0.25, 0.1875}, {0.4, 0.09},
                                {0.5, 0},  {0.9, 0.24}, {-0.77, 0.1971}};
  for (const auto& [x, variance] : expected) {
    const Moments m = moments(x, book);
    EXPECT_NEAR(m.mean, x, 4 * std::sqrt(variance / 400'000) + 1e-12) << x;
    EXPECT_NEAR(m.variance, variance, 0.01 * variance + 1e-9) << x;
  }
}

TEST(Quantiser, ProductsOfTwoValues) {
  // Independent dithers: E gamma^2 q q' = x y with variance gamma^4 - x^2 y^2. The same dither: gamma^2 -
  // gamma |x - y|.
  constexpr size_t n = 400'000;
  struct Row {
    double range, x, y, independent, variance, same;
  };
  for (const Row& r : std::vector<Row>{{1, 0.6, -0.5, -0.30, 0.91, -0.10},
                                       {2, 1.2, 0.7, 0.84, 15.2944, 3.0},
                                       {1, 0.6, 0.6, 0.36, 0.8704, 1.0}}) {
    Dense data(n, 2), first(n, 1, r.x), second(n, 1, r.y);
    for (size_t i = 0; i < n; ++i) data(i, 0) = r.x, data(i, 1) = r.y;
    const BitMatrix bits = quantise(view(data), book_of(Scheme::two_dither, 2, r.range), {});
    const CodeBook one = book_of(Scheme::one_bit, 1, r.range);
    const BitMatrix a = quantise(view(first), one, {}),
                    b = quantise(view(second), one, {});  // one place, so one dither
    double across = 0, square = 0, along = 0, same = 0;
    for (size_t i = 0; i < n; ++i) {
      const double product = bits.value(i, 0, 0) * bits.value(i, 1, 1);
      across += product / n;
      square += product * product / n;
      along += bits.value(i, 0, 0) * bits.value(i, 0, 1) / n;
      same += a.value(i, 0) * b.value(i, 0) / n;
    }
    const double g4 = std::pow(r.range, 4);
    EXPECT_NEAR(across, r.independent, 4 * std::sqrt(r.variance / n));
    EXPECT_NEAR(square - across * across, r.variance, 0.01 * r.variance);
    EXPECT_NEAR(along, r.x * r.x, 4 * std::sqrt((g4 - std::pow(r.x, 4)) / n));
    EXPECT_NEAR(same, r.same, 4 * std::sqrt((g4 - r.same * r.same) / n) + 1e-9);
  }
}

TEST(Quantiser, EveryCodeIsThatOfTheSlowReference) {
  const Dense x = normal_matrix(1111, 19, 5);
  std::vector<CodeBook> books{book_of(Scheme::one_bit, 19, 2), book_of(Scheme::two_dither, 19, 2),
                              book_of(Scheme::triangular, 19, 2), book_of(Scheme::triangular, 19, 2, 4),
                              book_of(Scheme::multi_bit, 19, 2, 3)};
  books[0].centre.assign(19, 0.25);
  books[1].truncation.assign(19, 1.5);
  books[2].range[4] = 0;
  for (const CodeBook& book : books) {
    const DitherPlace place{.seed = 77, .stream = 2, .first_row = 1000};
    const BitMatrix bits = quantise(view(x), book, place, Missing::error, 2);
    for (size_t i = 0; i < x.rows; ++i)
      for (size_t j = 0; j < x.cols; ++j) {
        unsigned got = 0, expected = 0;
        for (unsigned p = 0; p < book.planes(); ++p)
          got = 2 * got + (bits.plane(p, j)[i / 64] >> (i % 64) & 1);
        expected = quantise_one(x(i, j), book, place, i, j);
        if (book.scheme == Scheme::two_dither)
          expected = 2 * expected + quantise_one(x(i, j), book, place, i, j, 1);
        ASSERT_EQ(got, expected) << name(book.scheme) << " " << i << " " << j;
      }
  }
}

TEST(Quantiser, BitsDoNotDependOnThreadsChunksOrderOrWidth) {
  const Dense x = normal_matrix(1500, 37, 6);
  Dense transposed(37, 1500);
  std::vector<float> single(x.values.begin(), x.values.end());
  Dense rounded(1500, 37);
  for (size_t i = 0; i < x.rows; ++i)
    for (size_t j = 0; j < x.cols; ++j) {
      transposed(j, i) = x(i, j);
      rounded(i, j) = single[i * 37 + j];
    }
  const CodeBook book = book_of(Scheme::triangular, 37, 3);
  const BitMatrix whole = quantise(view(x), book, {.seed = 1}, Missing::error, 1);
  EXPECT_EQ(whole, quantise(view(x), book, {.seed = 1}, Missing::error, 5));
  EXPECT_EQ(whole,
            quantise(MatrixView<double>{transposed.values.data(), 1500, 37, 1, 1500}, book, {.seed = 1}));
  EXPECT_EQ(quantise(view(rounded), book, {}), quantise(row_major(single.data(), 1500, 37), book, {}));
  for (size_t first : {0, 1, 63, 700}) {
    const size_t count = 1500 - first - 100;
    const auto part = row_major(&x.values[first * 37], count, 37);
    EXPECT_EQ(quantise(part, book, {.seed = 1, .first_row = first}), whole.slice(first, count)) << first;
  }
}

TEST(Quantiser, ZeroRangeDecodesToTheCentre) {
  CodeBook book = book_of(Scheme::triangular, 2, 1);
  book.range[1] = 0;
  book.centre = {0, 5};
  const Dense x(100, 2, 5.0);
  const BitMatrix bits = quantise(view(x), book, {});
  EXPECT_EQ(bits.value(17, 1), 0.0);
}

TEST(Quantiser, RefusesWhatIsNotANumberAndSaysWhere) {
  Dense x = normal_matrix(200, 3, 1);
  x(130, 2) = std::nan("");
  const CodeBook book = book_of(Scheme::one_bit, 3, 1);
  EXPECT_THAT(message_of([&] { quantise(view(x), book, {}); }), HasSubstr("row 130, column 2 is NaN"));
  const BitMatrix masked = quantise(view(x), book, {}, Missing::mask);
  EXPECT_FALSE(masked.seen(130, 2));
  EXPECT_TRUE(masked.seen(131, 2));
  x(7, 1) = INFINITY;
  EXPECT_THAT(message_of([&] { quantise(view(x), book, {}, Missing::mask); }),
              HasSubstr("row 7, column 1 is infinite"));
  EXPECT_THAT(message_of([&] { quantise(view(Dense(0, 3)), book, {}); }), HasSubstr("no rows"));
  EXPECT_THAT(message_of([&] { quantise(view(Dense(5, 2)), book, {}); }),
              HasSubstr("2 columns, the ranges are for 3"));
}

TEST(Quantiser, WrongCodeBooksAreNamed) {
  const Dense x = normal_matrix(10, 1, 1);
  const auto says = [&](CodeBook book, const char* text) {
    EXPECT_THAT(message_of([&] { quantise(view(x), book, {}); }), HasSubstr(text));
  };
  says({.range = {-1}}, "must not be negative");
  says({.range = {1}, .truncation = {2}}, "must lie in [0, range = 1]");
  says({.range = {std::nan("")}}, "finite");
  says({.bits = 1, .range = {1}}, "takes 2 to 16");
  says({.bits = 3, .range = {9}, .step = 1}, "give 5 bits");
  says({.scheme = Scheme::one_bit, .bits = 2, .range = {1}}, "one bit a dither");
  says({}, "no columns");
}

TEST(Quantiser, PrivacyFollowsTheLikelihoodRatio) {
  CodeBook book = book_of(Scheme::one_bit, 1, 2);
  EXPECT_TRUE(std::isinf(privacy_epsilon(book, 0)));
  book.truncation = {1};
  EXPECT_NEAR(privacy_epsilon(book, 0), std::log(3), 1e-12);
  book.scheme = Scheme::two_dither;
  EXPECT_NEAR(privacy_epsilon(book, 0), 2 * std::log(3), 1e-12);
  // The bound is attained: P(+1 | x = 1) / P(+1 | x = -1) = (3/4) / (1/4).
  book.scheme = Scheme::one_bit;
  EXPECT_NEAR(moments(5, book).mean, 1, 0.02);
}

TEST(Ranges, FollowTheBalanceOfBiasAndNoise) {
  const double ratio = 64000 / std::log(60.0);
  EXPECT_DOUBLE_EQ(moment_range(Problem::covariance, 1, 4, 64000, 60), std::pow(ratio, 1.0 / 8));
  EXPECT_DOUBLE_EQ(moment_range(Problem::regression, 1, 4, 64000, 60), std::pow(ratio, 1.0 / 6));
  EXPECT_DOUBLE_EQ(moment_range(Problem::completion, 1, 2, 64000, 40),
                   std::pow(64000 / (40 * std::log(80.0)), 0.25));
  EXPECT_DOUBLE_EQ(light_tail_range(2, 1000), 2 * std::sqrt(std::log(1000.0)));
  const PilotRange p = pilot_range({0, 10, 5, 2, 8}, 0.25);
  EXPECT_DOUBLE_EQ(p.centre, 5);
  EXPECT_DOUBLE_EQ(p.range, 3);
  EXPECT_EQ(pilot_rule(1000, 1).count, 32u);
  EXPECT_DOUBLE_EQ(pilot_rule(1000, 5).e, std::sqrt(9.0 / 1000));
}

}  // namespace
}  // namespace trireme::stats
