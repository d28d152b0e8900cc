// Every vector table against the plain one, byte by byte: all lengths around vectors and tiles, any address,
// values of every kind, several places in a payload.
#include "trireme/codec/kernels/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/codec/test_data.h"

namespace trireme::codec::kernels {
namespace {

// Random bits as floats: every exponent, denormals, both zeros; NaN and infinity where wanted.
std::vector<float> any_floats(size_t n, uint64_t seed, bool finite) {
  PhiloxStream rng(seed, 4);
  std::vector<float> x(n);
  for (auto& v : x) {
    const uint32_t word = rng.next_u32();
    v = word % 17 == 0 ? 0.0f : word % 19 == 0 ? -0.0f : float_of(rng.next_u32());
    while (finite && !std::isfinite(v)) v = float_of(rng.next_u32());
  }
  return x;
}

std::vector<size_t> lengths() {
  std::vector<size_t> all;
  for (size_t n = 0; n <= 65; ++n) all.push_back(n);
  for (const size_t n : {127u, 128u, 129u, 255u, 256u, 500u, 1000u, 4095u, 4096u}) all.push_back(n);
  return all;
}

struct Case {
  const char* label;
  Quantiser quantiser;
  float a, b, s, gap;
};

Random random_of(uint32_t stratum, uint32_t strata) {
  return {{0x12345678, 0x9abcdef0}, {77, 99}, stratum, strata, 1.0f / static_cast<float>(strata)};
}

std::vector<Case> cases() {
  const auto grid = [](Coder coder, uint32_t bits, float levels, bool subtractive = false,
                       float truncation = 1, uint32_t strata = 1) {
    return Quantiser{coder,       bits,       levels, 2 / levels,
                     subtractive, truncation, true,   random_of(strata > 1 ? 2 : 0, strata)};
  };
  std::vector<Case> all{{"bf16", {.coder = kBf16, .bits = 16}, 0, 0, 0, 0},
                        {"fp16", {.coder = kFp16, .bits = 16}, 0, 0, 0, 0},
                        {"e4m3", {.coder = kE4m3, .bits = 8}, 100, 0, 0.01f, 0},
                        {"e5m2", {.coder = kE5m2, .bits = 8}, 100, 0, 0.01f, 0},
                        {"sign", {.coder = kSign, .bits = 1}, 0, 0, 0.7f, 0},
                        {"threshold", {.coder = kThreshold, .bits = 2}, 0.5f, 0, 0.5f, 0},
                        {"ternary", grid(kTernary, 2, 1), 2.5f, 0, 2.5f, 0},
                        {"int8", {.coder = kNearest, .bits = 8, .levels = 127}, 40, 0, 0.025f, 0},
                        {"int4", {.coder = kNearest, .bits = 4, .levels = 7}, 2.3f, 0, 0.43f, 0},
                        {"int8 stochastic", grid(kStochastic, 8, 127), 40, 0, 0.025f, 0},
                        {"int4 stochastic", grid(kStochastic, 4, 7), 2.3f, 0, 0.43f, 0}};
  for (uint32_t bits = 1; bits <= 8; ++bits) {
    const auto levels = static_cast<float>((1 << bits) - 1);
    all.push_back({"dither", grid(kDither, bits, levels), 3, levels / 6, 3, 0});
    all.push_back({"dither strata", grid(kDither, bits, levels, false, 0.8f, 5), 3, levels / 6, 3, 0});
    all.push_back({"dither subtractive", grid(kDither, bits, levels, true, 1, bits % 2 == 0 ? 1 : 3), 3,
                   levels / 6, 3, 0});
    if (bits >= 2) {
      const auto steps = static_cast<float>((1 << (bits - 1)) - 1);
      all.push_back({"qsgd", grid(kMagnitudes, bits, steps), steps / 3, 0, 0, 3 / steps});
    }
    if (bits == 1 || bits == 2 || bits == 4 || bits == 8)
      all.push_back({"minmax", grid(kMinMax, bits, levels), -3, levels / 6, -3, 6 / levels});
  }
  return all;
}

class Tables : public testing::TestWithParam<const Kernels*> {};

TEST_P(Tables, QuantiseAndBackAsTheReference) {
  const Kernels& k = *GetParam();
  for (const Case& c : cases()) {
    for (const size_t n : lengths()) {
      for (const uint64_t first : {uint64_t{0}, (uint64_t{1} << 31) + kTile}) {
        // Casts take anything; the grids what lies within their range.
        auto x = c.quantiser.bits == 16 ? any_floats(n + 3, n, false) : wide(n + 3, n);
        if (c.quantiser.bits != 16) {
          const auto inside = gaussian(n + 3, n + 1);
          for (size_t i = 0; i < x.size(); ++i)
            x[i] = i % 3 == 0 ? std::clamp(x[i], -2.9f, 2.9f) : std::clamp(inside[i], -2.9f, 2.9f);
        }
        const float* from = x.data() + n % 3;
        const size_t bytes = code_bytes(c.quantiser.bits, n);
        std::vector<uint8_t> expected(bytes + 4, 0xee), got(bytes + 4, 0xee);
        kScalar.quantise(c.quantiser, from, n, c.a, c.b, first, expected.data() + n % 2);
        k.quantise(c.quantiser, from, n, c.a, c.b, first, got.data() + n % 2);
        ASSERT_EQ(got, expected) << c.label << " " << c.quantiser.bits << " bits, n = " << n;
        std::vector<float> total(from, from + n), other_total(total);
        kScalar.quantise_with_feedback(c.quantiser, total.data(), n, c.a, c.b, c.s, c.gap, first,
                                       expected.data() + n % 2);
        k.quantise_with_feedback(c.quantiser, other_total.data(), n, c.a, c.b, c.s, c.gap, first,
                                 got.data() + n % 2);
        ASSERT_EQ(got, expected);
        if (n > 0) {
          ASSERT_EQ(std::memcmp(total.data(), other_total.data(), n * sizeof(float)), 0)
              << c.label << " " << c.quantiser.bits << " bits with feedback, n = " << n;
        }
        for (const Into into : {Into::set, Into::add}) {
          auto out = gaussian(n + 5, 3), other = out;
          kScalar.dequantise(c.quantiser, expected.data() + n % 2, n, c.s, c.gap, first, out.data() + 1,
                             into);
          k.dequantise(c.quantiser, expected.data() + n % 2, n, c.s, c.gap, first, other.data() + 1, into);
          ASSERT_EQ(std::memcmp(out.data(), other.data(), out.size() * sizeof(float)), 0)
              << c.label << " " << c.quantiser.bits << " bits back, n = " << n << " into "
              << static_cast<int>(into);
        }
      }
    }
  }
}

// All codes of 8 and 16 bits.
TEST_P(Tables, DecodesEveryCodeAsTheReference) {
  const Kernels& k = *GetParam();
  for (const Case& c : cases()) {
    if (c.quantiser.bits < 8) continue;
    std::vector<uint8_t> codes;
    for (uint32_t code = 0; code < 1u << c.quantiser.bits; ++code) {
      codes.push_back(static_cast<uint8_t>(code));
      if (c.quantiser.bits == 16) codes.push_back(static_cast<uint8_t>(code >> 8));
    }
    const size_t n = size_t{1} << c.quantiser.bits;
    std::vector<float> out(n), other(n);
    for (size_t i = 0; i < n; i += kChunk) {
      const size_t m = std::min(kChunk, n - i);
      kScalar.dequantise(c.quantiser, codes.data() + i * c.quantiser.bits / 8, m, c.s, c.gap, i,
                         out.data() + i, Into::set);
      k.dequantise(c.quantiser, codes.data() + i * c.quantiser.bits / 8, m, c.s, c.gap, i, other.data() + i,
                   Into::set);
    }
    ASSERT_EQ(std::memcmp(out.data(), other.data(), n * sizeof(float)), 0) << c.label;
  }
}

TEST_P(Tables, StatisticsAsTheReference) {
  const Kernels& k = *GetParam();
  for (const size_t n : lengths()) {
    const auto any = any_floats(n + 1, n, false);
    EXPECT_EQ(k.largest(any.data() + 1, n), kScalar.largest(any.data() + 1, n)) << n;
    const auto x = wide(n + 1, n);
    EXPECT_EQ(bits_of(k.magnitude_sum(x.data() + 1, n)), bits_of(kScalar.magnitude_sum(x.data() + 1, n)))
        << n;
    EXPECT_EQ(bits_of(k.square_sum(x.data() + 1, n, 0.3f)),
              bits_of(kScalar.square_sum(x.data() + 1, n, 0.3f)))
        << n;
    if (n > 0) {
      float low, high, low0, high0;
      k.range(x.data() + 1, n, &low, &high);
      kScalar.range(x.data() + 1, n, &low0, &high0);
      EXPECT_EQ(low, low0);
      EXPECT_EQ(high, high0);
    }
    auto u = gaussian(n + 1, 5), v = gaussian(n + 1, 6), u0 = u, v0 = v;
    k.velocity(x.data(), u.data() + 1, v.data() + 1, n, 0.9f, n % 2 == 0);
    kScalar.velocity(x.data(), u0.data() + 1, v0.data() + 1, n, 0.9f, n % 2 == 0);
    EXPECT_TRUE(u == u0 && v == v0) << n;
    for (const uint32_t least : {0u, 0x3f000000u, kInfinity}) {
      std::vector<uint32_t> picks(n + 16), picks0(n + 16);
      const size_t count = k.select(any.data() + 1, n, least, 100, picks.data());
      ASSERT_EQ(count, kScalar.select(any.data() + 1, n, least, 100, picks0.data()));
      picks.resize(count), picks0.resize(count);
      EXPECT_EQ(picks, picks0);
    }
    auto b = gaussian(n + 1, 2), b0 = b;
    k.sum(x.data() + 1, b.data() + 1, n);
    kScalar.sum(x.data() + 1, b0.data() + 1, n);
    EXPECT_EQ(b, b0);
    auto c = gaussian(n + 1, 3), d = c;
    EXPECT_EQ(k.sum_and_largest(x.data() + 1, c.data() + 1, n),
              kScalar.sum_and_largest(x.data() + 1, d.data() + 1, n));
    EXPECT_EQ(c, d);
    EXPECT_EQ(bits_of(k.sum_and_magnitudes(x.data() + 1, c.data() + 1, n)),
              bits_of(kScalar.sum_and_magnitudes(x.data() + 1, d.data() + 1, n)));
    EXPECT_EQ(c, d);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Tables, testing::ValuesIn(all_supported()),
                         [](const auto& info) { return cat(info.param->name, "_", info.index); });

}  // namespace
}  // namespace trireme::codec::kernels
