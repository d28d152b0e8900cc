// The numbers of uniformly dithered quantisation as a gradient codec: closed forms, and published or measured
// values where there is none.
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/codec/test_data.h"

namespace trireme::codec {
namespace {

OptionTable fixed(double gamma, OptionTable more = {}) {
  more["range"] = std::string("fixed");
  more["gamma"] = gamma;
  return more;
}
CodecPtr dither(const OptionTable& options) {
  return built_in_codecs().make("dither", options);
}

struct Moments {
  double mean = 0, variance = 0;
};
Moments moments_of(const std::vector<float>& values) {
  Moments m;
  for (const float v : values) m.mean += v / static_cast<double>(values.size());
  for (const float v : values) m.variance += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
  return m;
}

constexpr size_t kDraws = 1'000'000;

struct ScalarCase {
  double gamma, x, mean, variance;
};

TEST(Dither, OneBitHasTheMeanAndVarianceOfItsFormula) {
  for (const auto& c : {ScalarCase{1, 0, 0, 1},
                        {1, 0.3, 0.3, 0.91},
                        {1, -0.8, -0.8, 0.36},
                        {2, 1.5, 1.5, 1.75},
                        {2, -0.25, -0.25, 3.9375},
                        {1, 1.4, 1, 0},
                        {0.5, -2, -0.5, 0}}) {
    const auto out =
        round_trip(*dither(fixed(c.gamma)), std::vector<float>(kDraws, static_cast<float>(c.x)), 3);
    const Moments m = moments_of(out);
    EXPECT_NEAR(m.mean, c.mean, 4 * std::sqrt(c.variance / kDraws) + 2e-5) << c.gamma << " " << c.x;
    EXPECT_NEAR(m.variance, c.variance, 0.01 * c.gamma * c.gamma) << c.gamma << " " << c.x;
  }
}

// Two independent dithers: the mean of the product is the product; one dither on both: gamma^2 - gamma |x -
// y|.
TEST(Dither, ProductsOfIndependentDithersAreUnbiased) {
  struct Case {
    double gamma, x, y, independent, same;
  };
  for (const auto& c :
       {Case{1, 0.6, -0.5, -0.30, -0.10}, Case{2, 1.2, 0.7, 0.84, 3.0}, Case{1, 0.6, 0.6, 0.36, 1.0}}) {
    const CodecPtr codec = dither(fixed(c.gamma));
    const std::vector<float> x(kDraws, static_cast<float>(c.x)), y(kDraws, static_cast<float>(c.y));
    const auto qx = round_trip(*codec, x, 1), qy = round_trip(*codec, y, 2), same = round_trip(*codec, y, 1);
    double independent = 0, shared = 0;
    for (size_t i = 0; i < kDraws; ++i) {
      independent += double{qx[i]} * qy[i] / kDraws;
      shared += double{qx[i]} * same[i] / kDraws;
    }
    const double deviation = c.gamma * c.gamma / std::sqrt(double{kDraws});
    EXPECT_NEAR(independent, c.independent, 4 * deviation);
    EXPECT_NEAR(shared, c.same, 4 * deviation);
  }
}

TEST(Dither, SubtractiveDecodingErrsByAThirdWhateverTheValue) {
  const CodecPtr codec = dither(fixed(1, {{"subtractive", true}}));
  for (const auto& [x, bias] : {std::pair{0.0, 0.0}, {0.3, 0.0}, {-0.9, 0.0}, {1.3, -0.3}}) {
    auto out = round_trip(*codec, std::vector<float>(kDraws, static_cast<float>(x)), 4);
    for (float& v : out) v -= static_cast<float>(x);
    const Moments m = moments_of(out);
    EXPECT_NEAR(m.mean, bias, 4 * std::sqrt(1.0 / 3 / kDraws) + 2e-5) << x;
    EXPECT_NEAR(m.variance, 1.0 / 3, 0.003) << x;
  }
}

// Step D, uniform dither: D^2 f (1 - f), f the place within the cell; subtractive D^2 / 12.
TEST(Dither, MoreBitsRoundAtRandomOnTheGrid) {
  const int levels = 7;
  const double gamma = 3, step = 2 * gamma / levels;
  for (const double x : {0.0, 0.1, -1.7, 2.9}) {
    const double place = (x + gamma) / step, f = place - std::floor(place);
    const std::vector<float> values(kDraws, static_cast<float>(x));
    const Moments plain = moments_of(round_trip(*dither(fixed(gamma, {{"bits", int64_t{3}}})), values, 5));
    EXPECT_NEAR(plain.mean, x, 4 * step / std::sqrt(4.0 * kDraws) + 1e-4);
    EXPECT_NEAR(plain.variance, step * step * f * (1 - f), 0.01 * step * step);
    const Moments off = moments_of(
        round_trip(*dither(fixed(gamma, {{"bits", int64_t{3}}, {"subtractive", true}})), values, 5));
    EXPECT_NEAR(off.mean, x, 4 * step / std::sqrt(12.0 * kDraws) + 1e-4);
    EXPECT_NEAR(off.variance, step * step / 12, 0.005 * step * step);
  }
}

// --- as a gradient codec

using Draw = std::vector<float> (*)(size_t, uint64_t);
std::vector<float> plain_gaussian(size_t n, uint64_t seed) {
  return gaussian(n, seed);
}

double error_ratio(const Codec& codec, Draw draw, size_t n, int buckets) {
  double sum = 0;
  for (int b = 0; b < buckets; ++b) {
    const auto x = draw(n, 100 + static_cast<uint64_t>(b));
    sum += distance(round_trip(codec, x, static_cast<uint64_t>(b)), x) / square(x) / buckets;
  }
  return sum;
}

struct RatioCase {
  const char* label;
  const char* codec;
  OptionTable options;
  double gaussian[3], laplace[3], student[3];  // buckets of 128, 512, 4096
};

// Squared error over squared norm of one worker's buckets.
TEST(GradientError, MatchesTheTable) {
  const auto text = [](const char* s) { return OptionValue{std::string(s)}; };
  const OptionValue whole{int64_t{0}};
  const std::vector<RatioCase> table{
      {"dithered, max", "dither", {{"block", whole}}, {7.05, 9.80, 13.4}, {14.7, 22.8, 39.1}, {24, 73, 318}},
      {"subtractive, max",
       "dither",
       {{"block", whole}, {"subtractive", true}},
       {2.68, 3.60, 4.79},
       {5.2, 7.9, 13.4},
       {8.4, 25, 106}},
      {"dithered, 2.5 rms",
       "dither",
       {{"block", whole}, {"range", text("rms")}, {"factor", 2.5}},
       {5.22, 5.26, 5.27},
       {5.36, 5.39, 5.41},
       {5.50, 5.64, 5.70}},
      {"qsgd, 1 level",
       "qsgd",
       {{"block", whole}, {"bits", int64_t{2}}},
       {8.05, 17.0, 50.1},
       {7.02, 15.0, 44.3},
       {6.69, 13.8, 40.1}},
      {"terngrad, 2.5 rms",
       "terngrad",
       {{"block", whole}, {"clip", 2.5}},
       {0.99, 1.01, 1.01},
       {0.87, 0.88, 0.88},
       {0.92, 0.96, 0.98}},
      {"scaled sign",
       "onebit",
       {{"block", whole}},
       {0.36, 0.36, 0.36},
       {0.50, 0.50, 0.50},
       {0.53, 0.57, 0.58}}};
  const size_t sizes[] = {128, 512, 4096};
  for (const RatioCase& c : table) {
    const CodecPtr codec = built_in_codecs().make(c.codec, c.options);
    for (size_t k = 0; k < 3; ++k) {
      const int buckets = sizes[k] > 1000 ? 60 : 400;
      EXPECT_NEAR(error_ratio(*codec, plain_gaussian, sizes[k], buckets), c.gaussian[k],
                  0.05 * c.gaussian[k] + 0.005)
          << c.label << " gaussian " << sizes[k];
      EXPECT_NEAR(error_ratio(*codec, laplace, sizes[k], buckets), c.laplace[k], 0.08 * c.laplace[k] + 0.005)
          << c.label << " laplace " << sizes[k];
      // The largest of a heavy tail has no variance: orders of magnitude only.
      const double heavy = c.student[k] > 10 ? 0.6 : 0.3;
      EXPECT_NEAR(error_ratio(*codec, student3, sizes[k], buckets), c.student[k], heavy * c.student[k])
          << c.label << " t(3) " << sizes[k];
    }
  }
}

struct Bias {
  double square, variance;  // per element of variance 1
};
Bias bias_and_variance(const Codec& codec, Draw draw) {
  const size_t n = 200'000;
  const auto x = draw(n, 5);
  constexpr int kTrials = 20;
  std::vector<double> sum(n), squares(n);
  for (uint64_t t = 0; t < kTrials; ++t) {
    const auto out = round_trip(codec, x, t);
    for (size_t i = 0; i < n; ++i) sum[i] += out[i], squares[i] += double{out[i]} * out[i];
  }
  Bias b{0, 0};
  for (size_t i = 0; i < n; ++i) {
    const double mean = sum[i] / kTrials,
                 variance = (squares[i] / kTrials - mean * mean) * kTrials / (kTrials - 1);
    b.variance += variance / n;
    b.square += ((mean - x[i]) * (mean - x[i]) - variance / kTrials) / n;
  }
  return b;
}

TEST(GradientError, BiasAndVarianceByRange) {
  struct Case {
    double gamma, square, variance;
  };
  for (const auto& c : {Case{1, 0.15068, 0.48394},
                        {1.5, 0.04569, 1.47153},
                        {2, 0.01154, 3.07946},
                        {2.5, 0.00240, 5.27244},
                        {3, 0.00041, 8.00499}}) {
    const Bias b = bias_and_variance(*dither(fixed(c.gamma)), plain_gaussian);
    EXPECT_NEAR(b.square, c.square, 0.03 * c.square + 0.004 * c.gamma);
    EXPECT_NEAR(b.variance, c.variance, 0.01 * c.variance);
  }
  for (const auto& c : {Case{1, 0.36338, 0.63662}, {2, 0.20260, 3.38774}, {3, 0.13847, 8.27120}}) {
    const Bias b = bias_and_variance(*dither(fixed(c.gamma)), student3);
    EXPECT_NEAR(b.variance, c.variance, 0.01 * c.variance);
  }
}

// With bias^2 + variance / N the best range for Gaussian buckets is 0.647, 0.993, 1.400 of the rms at N = 1,
// 4, 16: ranges a quarter smaller or larger are worse.
TEST(GradientError, TheBestRangeGrowsWithTheWorkers) {
  struct Case {
    int workers;
    double best, error;
  };
  for (const auto& c : {Case{1, 0.647, 0.4539}, {4, 0.993, 0.2716}, {16, 1.400, 0.1354}}) {
    const auto error = [&](double factor) {
      const Bias b = bias_and_variance(
          *dither({{"range", std::string("rms")}, {"factor", factor}, {"block", int64_t{0}}}),
          plain_gaussian);
      return b.square + b.variance / c.workers;
    };
    EXPECT_NEAR(error(c.best), c.error, 0.03 * c.error);
    EXPECT_LT(error(c.best), error(0.75 * c.best));
    EXPECT_LT(error(c.best), error(1.25 * c.best));
  }
}

TEST(GradientError, MultiBitVariances) {
  const auto x = gaussian(400'000, 9);
  std::vector<float> inside;
  for (const float v : x) inside.push_back(std::clamp(v, -3.0f, 3.0f));
  const auto variance = [&](int64_t bits, bool subtractive) {
    const auto out = round_trip(*dither(fixed(3, {{"bits", bits}, {"subtractive", subtractive}})), inside, 1);
    return distance(out, inside) / static_cast<double>(inside.size());
  };
  for (const auto& [bits, plain, off] : {std::tuple{1, 8.007, 0.0},
                                         {2, 0.6686, 0.3333},
                                         {3, 0.1221, 0.0612},
                                         {4, 0.02659, 0.01333},
                                         {8, 0.000092, 0.000046}}) {
    EXPECT_NEAR(variance(bits, false), plain, 0.01 * plain) << bits;
    if (bits > 1) {
      EXPECT_NEAR(variance(bits, true), off, 0.01 * off) << bits;
    }
  }
}

// --- several workers

TEST(Workers, StrataCutTheVarianceOfTheMean) {
  constexpr size_t n = 200'000;
  struct Case {
    uint32_t workers;
    double x, independent, stratified;
  };
  for (const auto& c : {Case{2, 0.3, 0.455, 0.2100},
                        {4, 0.3, 0.2275, 0.0600},
                        {8, 0.3, 0.11375, 0.0100},
                        {16, 0.3, 0.05688, 0.00375},
                        {64, 0.3, 0.01422, 0.000234},
                        {4, 0, 0.25, 0}}) {
    for (const bool stratified : {false, true}) {
      const CodecPtr codec = dither(fixed(1, {{"stratified", stratified}}));
      const std::vector<float> x(n, static_cast<float>(c.x));
      std::vector<float> mean(n);
      for (uint32_t w = 0; w < c.workers; ++w) {
        Call call = call_of(1);
        call.seed = mix(7, w);
        call.worker = w;
        call.workers = c.workers;
        const auto out = decoded(*codec, encoded(*codec, x, call), n);
        for (size_t i = 0; i < n; ++i) mean[i] += out[i] / static_cast<float>(c.workers);
      }
      const Moments m = moments_of(mean);
      const double expected = stratified ? c.stratified : c.independent;
      EXPECT_NEAR(m.variance, expected, 0.02 * expected + 2e-5) << c.workers << " " << stratified;
      EXPECT_NEAR(m.mean, c.x, 5 * std::sqrt(expected / n) + 3e-5);
    }
  }
}

TEST(Workers, MajorityOfDitheredBitsLeansTheRightWay) {
  constexpr size_t n = 100'000;
  const CodecPtr codec = dither(fixed(1, {{"stratified", false}}));
  struct Case {
    int workers;
    double x, expected;
  };
  for (const auto& c :
       {Case{3, 0.05, 0.0749}, {3, 0.5, 0.6875}, {7, 0.1, 0.2166}, {15, 0.3, 0.7735}, {63, 0.1, 0.5756}}) {
    std::vector<int> votes(n);
    for (int w = 0; w < c.workers; ++w) {
      const auto out =
          round_trip(*codec, std::vector<float>(n, static_cast<float>(c.x)), 50 + static_cast<uint64_t>(w));
      for (size_t i = 0; i < n; ++i) votes[i] += out[i] > 0 ? 1 : -1;
    }
    double lean = 0;
    for (const int v : votes) lean += (v > 0 ? 1.0 : -1.0) / n;
    EXPECT_NEAR(lean, c.expected, 5 / std::sqrt(double{n})) << c.workers << " " << c.x;
  }
}

// Gradients 4, -1, -1: plain signs always vote against the mean; dithered ones with 0.609, and their mean is
// right.
TEST(Workers, UnequalGradientsAreNotOutvoted) {
  constexpr size_t n = 200'000;
  const CodecPtr codec = dither(fixed(4, {{"stratified", false}}));
  std::vector<float> sum(n);
  for (uint64_t w = 0; w < 3; ++w) {
    const auto out = round_trip(*codec, std::vector<float>(n, w == 0 ? 4.0f : -1.0f), w);
    for (size_t i = 0; i < n; ++i) sum[i] += out[i];
  }
  double positive = 0;
  for (const float v : sum) positive += (v > 0 ? 1.0 : 0.0) / n;
  for (float& v : sum) v /= 3;
  EXPECT_NEAR(positive, 0.609375, 0.005);
  EXPECT_NEAR(moments_of(sum).mean, 2.0 / 3, 0.02);
  EXPECT_NEAR(moments_of(sum).variance, 30.0 / 9, 0.05);
}

// --- error feedback on a constant gradient

std::vector<double> memory_after(const CodecPtr& codec, const std::vector<int>& steps) {
  const size_t n = 512;
  const auto g = gaussian(n, 3);
  const CodecPtr fed = with_error_feedback(codec);
  StateVectors state(*fed, n);
  std::vector<double> ratios;
  int step = 0;
  for (const int until : steps) {
    try {
      for (; step < until; ++step) encoded(*fed, g, call_of(static_cast<uint64_t>(step)), state.spans);
      ratios.push_back(square(state.memory[0]) / square(g));
    } catch (const Error&) {  // no longer finite
      ratios.push_back(INFINITY);
    }
  }
  return ratios;
}

void expect_orders(const std::vector<double>& got, const std::vector<double>& wanted, const char* label) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_GT(got[i], wanted[i] / 3) << label << " " << i;
    EXPECT_LT(got[i], wanted[i] * 3) << label << " " << i;
  }
}

TEST(Feedback, RangeAtTheLargestExplodesOthersStayBounded) {
  const std::vector<int> steps{1, 10, 50, 200, 2000};
  const auto by = [](const char* range, double factor) {
    return dither({{"range", std::string(range)}, {"factor", factor}, {"block", int64_t{0}}});
  };
  const auto exploding = memory_after(by("max", 1), steps);
  EXPECT_GT(exploding[1], 1e4);
  EXPECT_GT(exploding[2], 1e20);
  EXPECT_GT(memory_after(by("rms", 1.5), {50})[0], 1e5);
  EXPECT_GT(memory_after(by("rms", 2.0), {50})[0], 1e15);
  expect_orders(memory_after(dither({{"shrink", true}, {"block", int64_t{0}}}), steps),
                {0.91, 41, 79, 98, 131}, "shrink");
  expect_orders(memory_after(by("rms", 0.65), steps), {0.44, 5.8, 12, 19, 20}, "0.65 rms");
  expect_orders(memory_after(by("rms", 1.0), steps), {0.70, 4.8, 8.3, 9.2, 9.0}, "1.0 rms");
  expect_orders(memory_after(built_in_codecs().make("onebit", {{"block", int64_t{0}}}), steps),
                {0.38, 6.7, 39, 119, 540}, "scaled sign");
  const auto chosen = memory_after(by("mean", 1), steps);  // what automatic feedback takes
  EXPECT_LT(chosen.back(), 540);                           // scaled sign's
}

}  // namespace
}  // namespace trireme::codec
