// What every codec promises, for every codec and for the options that change its arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/codec/test_data.h"

namespace trireme::codec {
namespace {

class Conformance : public testing::TestWithParam<Variant> {
 protected:
  CodecPtr codec = built_in_codecs().make(GetParam().codec, GetParam().options);
  bool carries_infinity() const { return codec->traits().near_exact; }
};

TEST_P(Conformance, RoundTripsEveryLengthAtAnyAddress) {
  for (size_t n = 0; n <= 65; ++n) {
    for (const size_t shift : {0u, 1u, 3u}) {
      const auto x = wide(n, n * 7 + shift);
      const auto wire = encoded(*codec, x, call_of(n));
      std::vector<std::byte> memory(wire.size() + shift + codec->wire_bound(n));
      const std::span<std::byte> there(memory.data() + shift, codec->wire_bound(n));
      ASSERT_EQ(codec->encode(x, there, call_of(n)), wire.size()) << n;
      ASSERT_TRUE(std::equal(wire.begin(), wire.end(), there.begin()))
          << "other bytes at another address, " << n;
      ASSERT_LE(wire.size(), codec->wire_bound(n));
      if (codec->traits().fixed_size) {
        ASSERT_EQ(wire.size(), codec->wire_bound(n));
      }
      const auto out = decoded(*codec, there.first(wire.size()), n);
      auto sum = gaussian(n, 1);
      const auto before = sum;
      codec->decode_add(there.first(wire.size()), sum);
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(sum[i], before[i] + out[i]) << n << " " << i;
    }
  }
}

TEST_P(Conformance, StaysWithinItsBoundAndRateOnLongInputs) {
  for (const size_t n : {1000u, 4095u, 4096u, 4097u, 12345u, 70000u}) {
    const auto x = student3(n, n);
    const auto wire = encoded(*codec, x, call_of(3, 100));  // after any warm-up
    EXPECT_LE(wire.size(), codec->wire_bound(n));
    const auto out = decoded(*codec, wire, n);
    EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float v) { return std::isfinite(v); }));
    const bool by_shape = codec->traits().rounds > 1 || codec->name() == "acpsgd";
    if (n == 70000 && !by_shape && codec->name() != "adacomp") {
      EXPECT_NEAR(8.0 * static_cast<double>(wire.size()) / n, codec->traits().bits_per_element,
                  0.05 + 0.5 * (codec->traits().fixed_size ? 0 : codec->traits().bits_per_element));
    }
  }
}

TEST_P(Conformance, EqualSeedsGiveEqualBytes) {
  const auto x = gaussian(5000, 1);
  EXPECT_EQ(encoded(*codec, x, call_of(5)), encoded(*codec, x, call_of(5)));
  const bool random = codec->traits().unbiased && codec->name() != "none";
  if (random) {
    EXPECT_NE(encoded(*codec, x, call_of(5)), encoded(*codec, x, call_of(6)));
  }
}

TEST_P(Conformance, ZerosStayZeros) {
  const std::vector<float> x(1000);
  for (const float v : round_trip(*codec, x, 1)) {
    ASSERT_TRUE(v == 0 || GetParam().label == "dither_fixed4") << v;  // its grid has no zero
  }
}

TEST_P(Conformance, TakesEqualTinyAndHugeValues) {
  const float tiny = std::numeric_limits<float>::denorm_min(), least = std::numeric_limits<float>::min();
  for (const float value : {1.0f, -0.37f, tiny, -7 * tiny, least, 1e-30f, 1e30f, -0.0f}) {
    const std::vector<float> x(777, value);
    const auto out = round_trip(*codec, x, 2);
    // Lengthening stretches (randk) and grids that reach further than the values go beyond the value itself.
    for (const float v : out)
      ASSERT_TRUE(std::isfinite(v) || (carries_infinity() && GetParam().codec == "fp16")) << value;
  }
  const std::vector<float> huge(300, std::numeric_limits<float>::max());
  try {
    round_trip(*codec, huge, 2);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::diverged) << e.what();
  }
}

TEST_P(Conformance, NotFiniteValuesAreCarriedOrNamed) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const size_t at : {0u, 17u, 499u}) {
      auto x = gaussian(500, 3);
      x[at] = bad;
      if (carries_infinity()) {
        const auto out = round_trip(*codec, x, 1);
        EXPECT_EQ(std::isnan(out[at]), std::isnan(bad));
        EXPECT_TRUE(std::isnan(bad) || out[at] == bad);
        continue;
      }
      try {
        round_trip(*codec, x, 1);
        ADD_FAILURE() << bad << " at " << at << " went through";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::diverged);
        EXPECT_NE(std::string(e.what()).find(cat("element ", at, " is ")), std::string::npos) << e.what();
      }
    }
  }
}

// The mean over seeds lies within six standard errors, and what 16 random bits leave, of the input.
TEST_P(Conformance, UnbiasedWhereItSaysSo) {
  if (!codec->traits().unbiased) return;
  constexpr int kTrials = 1000;
  auto x = student3(300, 11);
  x[7] = 0;
  std::vector<double> sum(x.size()), squares(x.size());
  float most = 0;
  for (const float v : x) most = std::max(most, std::fabs(v));
  for (int t = 0; t < kTrials; ++t) {
    const auto out = round_trip(*codec, x, 1000 + static_cast<uint64_t>(t));
    for (size_t i = 0; i < x.size(); ++i) {
      sum[i] += out[i];
      squares[i] += double{out[i]} * out[i];
    }
  }
  const bool norm_grid = codec->name() == "qsgd";
  const double reach = norm_grid ? std::sqrt(square(x)) : most;
  // Rare events may not show in the trials at all: a step of the grid (or, for randk, a lengthened element)
  // once in them is within the errors.
  const double once = codec->name() == "randk" ? 100 * most : reach;
  for (size_t i = 0; i < x.size(); ++i) {
    const double mean = sum[i] / kTrials;
    const double variance = std::max(squares[i] / kTrials - mean * mean, once * once / kTrials);
    ASSERT_NEAR(mean, x[i], 6 * std::sqrt(variance / kTrials) + 2 * reach * 0x1p-16)
        << i << " of " << GetParam().label;
  }
}

// E |decoded - x|^2 < |x|^2, whatever x: dense, heavy-tailed, sparse, a single spike, all equal.
TEST_P(Conformance, ContractiveWhereItSaysSo) {
  if (!codec->traits().contractive) return;
  std::vector<std::vector<float>> inputs{gaussian(2000, 1),  student3(2000, 2),
                                         few(2000, 3, 7),    few(2000, 4, 90),
                                         few(2000, 5, 1999), std::vector<float>(2000, 0.25f),
                                         wide(2000, 6)};
  auto ramp = gaussian(2000, 7);  // a quarter of the largest nearly everywhere: hard for random grids
  for (auto& v : ramp) v = v > 2 ? 1.0f : 0.25f;
  inputs.push_back(ramp);
  for (size_t k = 0; k < inputs.size(); ++k) {
    const auto& x = inputs[k];
    const double whole = square(x);
    double error = 0;
    constexpr int kTrials = 40;
    for (int t = 0; t < kTrials; ++t)
      error += distance(round_trip(*codec, x, static_cast<uint64_t>(t)), x) / kTrials;
    if (GetParam().label.starts_with("tbq_")) {
      EXPECT_LE(error, whole) << k;  // a fixed step may be out of reach
    } else if (codec->name() == "randk") {
      EXPECT_LE(error, whole * (1 + 1e-9)) << k;  // equal where its draws miss every spike
    } else {
      EXPECT_LT(error, whole) << GetParam().label << " " << k;
    }
  }
}

// Sent so far + residual = put in so far: nothing is lost, for any codec.
TEST_P(Conformance, FeedbackLosesNothing) {
  if (codec->rounds({{"t", 3000, 1}}) != nullptr) return;  // their residuals: linear_test.cc
  const CodecPtr fed = with_error_feedback(codec);
  const size_t n = 3000;
  StateVectors state(*fed, n);
  std::vector<double> in(n), sent(n);
  for (uint64_t step = 1; step <= 6; ++step) {
    const auto x = gaussian(n, step, 0.1);
    const auto out = decoded(*fed, encoded(*fed, x, call_of(step, step), state.spans), n);
    for (size_t i = 0; i < n; ++i) in[i] += x[i], sent[i] += out[i];
    if (!codec->state_names().empty()) continue;  // what they keep apart is theirs
    for (size_t i = 0; i < n; ++i)
      ASSERT_NEAR(in[i], sent[i] + state.memory[0][i],
                  1e-5 * (1 + std::fabs(sent[i]) + std::fabs(state.memory[0][i])));
  }
}

TEST_P(Conformance, FeedbackInOnePassEqualsThreeSteps) {
  if (!codec->state_names().empty() || codec->rounds({{"t", 700, 1}}) != nullptr) return;
  const size_t n = 700;
  const auto x = gaussian(n, 1);
  auto residual = gaussian(n, 2, 0.3);
  std::vector<float> total(n);
  for (size_t i = 0; i < n; ++i) total[i] = residual[i] + x[i];
  std::vector<std::byte> wire(codec->wire_bound(n));
  wire.resize(codec->encode_with_feedback(x, residual, wire, call_of(9), {}));
  EXPECT_EQ(wire, encoded(*codec, total, call_of(9)));
  const auto out = decoded(*codec, wire, n);
  for (size_t i = 0; i < n; ++i) ASSERT_EQ(residual[i], total[i] - out[i]) << i;
}

TEST_P(Conformance, StateGoesOnWhereItWasCopied) {
  const CodecPtr fed = codec->state_names().empty() && codec->rounds({{"t", 9, 1}}) == nullptr
                           ? with_error_feedback(codec)
                           : codec;
  const size_t n = 900;
  StateVectors state(*fed, n);
  for (uint64_t step = 1; step <= 3; ++step)
    encoded(*fed, gaussian(n, step), call_of(step, step), state.spans);
  StateVectors copy(state);
  for (uint64_t step = 4; step <= 6; ++step) {
    const auto x = gaussian(n, step);
    ASSERT_EQ(encoded(*fed, x, call_of(step, step), state.spans),
              encoded(*fed, x, call_of(step, step), copy.spans));
  }
  EXPECT_EQ(state.memory, copy.memory);
}

// Any bytes: refused with an Error(input), or decoded; never a crash, never a write outside.
TEST_P(Conformance, HostileBytesAreRefusedOrDecoded) {
  PhiloxStream rng(77, 0);
  for (int trial = 0; trial < 600; ++trial) {
    const size_t n = rng.next_u32() % 600;
    auto wire = encoded(*codec, gaussian(n, rng.next_u32()), call_of(1));
    const size_t changes = rng.next_u32() % 4;
    for (size_t c = 0; c < changes && !wire.empty(); ++c)
      wire[rng.next_u32() % wire.size()] = std::byte(rng.next_u32());
    if (rng.next_u32() % 3 == 0) wire.resize(rng.next_u32() % (wire.size() + 9));
    std::vector<float> out(n + 2, 5.0f);
    try {
      codec->decode(wire, std::span(out).subspan(1, n));
      codec->decode_add(wire, std::span(out).subspan(1, n));
    } catch (const Error& e) {
      ASSERT_EQ(e.code(), ErrorCode::input) << e.what();
    }
    ASSERT_EQ(out.front(), 5.0f);
    ASSERT_EQ(out.back(), 5.0f);
  }
}

TEST_P(Conformance, RefusesPayloadsOfAnotherLength) {
  const auto wire = encoded(*codec, gaussian(300, 1), call_of(1));
  std::vector<float> out(300), other(301);
  EXPECT_THROW(codec->decode(wire, other), Error);
  for (const size_t bytes : {size_t{0}, wire.size() - 1})
    EXPECT_THROW(codec->decode(std::span(wire).first(bytes), out), Error) << bytes;
  auto longer = wire;
  longer.resize(wire.size() + 1);
  EXPECT_THROW(codec->decode(longer, out), Error);
}

TEST_P(Conformance, BatchesEqualSingleCallsOnAnyNumberOfThreads) {
  std::vector<std::vector<float>> inputs;
  for (const size_t n : {0u, 1u, 130u, 5000u, 3u, 257u}) inputs.push_back(gaussian(n, n + 1));
  for (const int threads : {1, 3}) {
    std::vector<EncodeJob> jobs;
    std::vector<std::vector<std::byte>> wires;
    for (const auto& x : inputs) wires.emplace_back(codec->wire_bound(x.size()));
    for (size_t i = 0; i < inputs.size(); ++i) jobs.push_back({inputs[i], wires[i], call_of(i), {}});
    encode_all(*codec, jobs, threads);
    std::vector<DecodeJob> decodes;
    std::vector<std::vector<float>> outs;
    for (const auto& x : inputs) outs.emplace_back(x.size(), 1.0f);
    for (size_t i = 0; i < inputs.size(); ++i) {
      wires[i].resize(jobs[i].used);
      ASSERT_EQ(wires[i], encoded(*codec, inputs[i], call_of(i)));
      decodes.push_back({wires[i], outs[i], i % 2 == 1});
    }
    decode_all(*codec, decodes, threads);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto single = decoded(*codec, wires[i], inputs[i].size());
      for (size_t k = 0; k < single.size(); ++k)
        ASSERT_EQ(outs[i][k], single[k] + (i % 2 == 1 ? 1.0f : 0.0f));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Conformance, testing::ValuesIn(variants()),
                         [](const auto& info) { return info.param.label; });

TEST(CodecSet, TheSuiteCoversEveryCodec) {
  const CodecSet set = built_in_codecs();
  const auto all = variants();
  for (const auto& [name, kind] : set.all()) {
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const Variant& v) { return v.codec == name; }))
        << name;
  }
}

}  // namespace
}  // namespace trireme::codec
