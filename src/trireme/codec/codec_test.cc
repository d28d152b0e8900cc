#include "trireme/codec/codec.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/codec/test_data.h"

namespace trireme::codec {
namespace {

float bf16_reference(float value) {  // the two neighbours, and the nearer one; ties to the even mantissa
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint32_t low = bits & 0xffff0000u, high = low + 0x10000u;
  float down, up;
  std::memcpy(&down, &low, 4);
  std::memcpy(&up, &high, 4);
  if (std::isinf(up) && !std::isinf(value)) {  // infinity stands for 2^128 when rounding
    return std::fabs(double{value}) - std::fabs(double{down}) <
                   std::ldexp(1.0, 128) - std::fabs(double{value})
               ? down
               : up;
  }
  const double a = std::fabs(double{value} - double{down}), b = std::fabs(double{up} - double{value});
  if (a != b) return a < b ? down : up;
  return (low >> 16) % 2 == 0 ? down : up;
}

TEST(Casts, Bf16IsTheNearest) {
  const auto x = wide(20000, 1);
  const auto out = round_trip(*built_in_codecs().make("bf16"), x, 0);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], bf16_reference(x[i])) << x[i];
}

// Every half value, by its definition.
double half_value(uint32_t h) {
  const int exponent = static_cast<int>(h >> 10 & 31), mantissa = static_cast<int>(h & 1023);
  const double size = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return h >> 15 ? -size : size;
}

TEST(Casts, Fp16IsTheNearestAndKeepsItsOwnValues) {
  const CodecPtr fp16 = built_in_codecs().make("fp16");
  std::vector<float> own;
  for (uint32_t h = 0; h < 0x7c00; ++h) own.push_back(static_cast<float>(half_value(h)));
  EXPECT_EQ(round_trip(*fp16, own, 0), own);
  std::vector<float> between, expected;
  for (uint32_t h = 0; h + 1 < 0x7c00; ++h) {
    const double a = half_value(h), b = half_value(h + 1);
    between.push_back(static_cast<float>(a + (b - a) * 0.25));
    expected.push_back(static_cast<float>(a));
    between.push_back(static_cast<float>(a + (b - a) * 0.5));
    expected.push_back(static_cast<float>(h % 2 == 0 ? a : b));
    between.push_back(static_cast<float>(a + (b - a) * 0.75));
    expected.push_back(static_cast<float>(b));
  }
  EXPECT_EQ(round_trip(*fp16, between, 0), expected);
  const std::vector<float> edges{65519.0f, 65520.0f, -1e9f};
  const auto out = round_trip(*fp16, edges, 0);
  EXPECT_EQ(out[0], 65504.0f);
  EXPECT_TRUE(std::isinf(out[1]));
  EXPECT_EQ(out[2], -std::numeric_limits<float>::infinity());
}

TEST(Casts, Bf16KeepsSpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  float signalling;
  const uint32_t bits = 0x7f800001;  // its payload lies in the half that is dropped
  std::memcpy(&signalling, &bits, 4);
  const auto out = round_trip(
      *built_in_codecs().make("bf16"),
      std::vector<float>{-0.0f, inf, -inf, signalling, 1e-45f, std::numeric_limits<float>::max()}, 0);
  EXPECT_TRUE(std::signbit(out[0]));
  EXPECT_EQ(out[1], inf);
  EXPECT_EQ(out[2], -inf);
  EXPECT_TRUE(std::isnan(out[3]));
  EXPECT_EQ(out[4], 0.0f);
  EXPECT_EQ(out[5], inf);
}

// Each fp8 value, spread so that the block's scale is exactly 1.
TEST(Fp8, KeepsItsOwnValues) {
  for (const bool e4m3 : {true, false}) {
    const int mantissa_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15, last = e4m3 ? 0x7e : 0x7b;
    std::vector<float> own;
    for (int code = 0; code <= last; ++code) {
      const int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
      own.push_back(std::ldexp(static_cast<float>(exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits)),
                               std::max(exponent, 1) - bias - mantissa_bits));
      own.push_back(-own.back());
    }
    const CodecPtr fp8 = built_in_codecs().make(
        "fp8", {{"format", std::string(e4m3 ? "e4m3" : "e5m2")}, {"block", int64_t{0}}});
    EXPECT_EQ(round_trip(*fp8, own, 0), own);
  }
}

TEST(Fp8, ErrsByHalfAStepOfItsMantissa) {
  const auto x = gaussian(4096, 1);
  const auto out = round_trip(*built_in_codecs().make("fp8"), x, 0);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(out[i], x[i], std::fabs(x[i]) / 16 + 1e-5) << i;
}

TEST(Integers, NearestErrsByHalfAStep) {
  for (const auto& [name, levels] : {std::pair{"int8", 127.0f}, std::pair{"int4", 7.0f}}) {
    const auto x = gaussian(1000, 1);
    const auto out = round_trip(*built_in_codecs().make(name), x, 0);
    for (size_t begin = 0; begin < x.size(); begin += 128) {
      const size_t end = std::min(x.size(), begin + 128);
      float most = 0;
      for (size_t i = begin; i < end; ++i) most = std::max(most, std::fabs(x[i]));
      for (size_t i = begin; i < end; ++i) ASSERT_NEAR(out[i], x[i], most / levels * 0.5001) << name << i;
    }
  }
}

TEST(Onebit, SendsTheMeanMagnitude) {
  const std::vector<float> x{1, -2, 3, -0.0f, 0, -6};
  EXPECT_EQ(round_trip(*built_in_codecs().make("onebit"), x, 0), (std::vector<float>{2, -2, 2, 2, 2, -2}));
}

TEST(Sparse, TopkSendsTheLargestAndTheEarlierOfEquals) {
  const std::vector<float> x{1, -5, 2, 5, -2, 2, 0, 0.5f};
  const CodecPtr topk = built_in_codecs().make("topk", {{"ratio", 0.5}});
  EXPECT_EQ(round_trip(*topk, x, 0), (std::vector<float>{0, -5, 2, 5, -2, 0, 0, 0}));
}

TEST(Sparse, SampledThresholdsSendAboutTheirShare) {
  const auto x = gaussian(200'000, 1);
  for (const char* name : {"graddrop", "dgc"}) {
    const auto out = round_trip(*built_in_codecs().make(name), x, 1);
    const auto sent = std::count_if(out.begin(), out.end(), [](float v) { return v != 0; });
    EXPECT_GT(sent, 80) << name;  // of 200 meant
    EXPECT_LE(sent, name == std::string("dgc") ? 200 : 400) << name;
    for (size_t i = 0; i < x.size(); ++i) ASSERT_TRUE(out[i] == 0 || out[i] == x[i]);
  }
}

// Lin et al., algorithm 1 with momentum correction and masking, written out for one element in plain words.
TEST(Sparse, DgcIsMomentumOnWhatWasNotSent) {
  const CodecPtr dgc = built_in_codecs().make("dgc", {{"momentum", 0.5}, {"ratio", 0.25}});
  const size_t n = 4;  // one travels each step
  StateVectors state(*dgc, n);
  std::vector<double> u(n), v(n);
  for (uint64_t step = 1; step <= 20; ++step) {
    const auto g = gaussian(n, step);
    size_t largest = 0;
    for (size_t i = 0; i < n; ++i) {
      u[i] = 0.5 * u[i] + g[i];
      v[i] += u[i];
      if (std::fabs(v[i]) > std::fabs(v[largest])) largest = i;
    }
    const auto out = decoded(*dgc, encoded(*dgc, g, call_of(step, step), state.spans), n);
    for (size_t i = 0; i < n; ++i) ASSERT_NEAR(out[i], i == largest ? v[i] : 0, 1e-5) << step;
    u[largest] = v[largest] = 0;
  }
}

TEST(Sparse, AdacompSendsWhatStandsOutInItsBin) {
  const CodecPtr adacomp = built_in_codecs().make("adacomp", {{"bin", int64_t{3}}});
  StateVectors state(*adacomp, 6);
  const std::vector<float> g{1, -4, 3, 0.5f, 0, -2};  // 2 x 3 >= 4: two of the first bin
  const auto out = decoded(*adacomp, encoded(*adacomp, g, call_of(1), state.spans), 6);
  EXPECT_EQ(out, (std::vector<float>{0, -3, 3, 0, 0, -3}));  // (4 + 2) / 2
  EXPECT_EQ(state.memory[0], (std::vector<float>{1, -1, 0, 0.5f, 0, 1}));
}

// --- HiPress's layouts, byte by byte

TEST(Hipress, TbqCodesLieBareAndLittleEndFirst) {
  const CodecPtr tbq =
      built_in_codecs().make("tbq", {{"threshold", 0.5}, {"layout", std::string("hipress")}});
  const std::vector<float> x{0.5f, -0.5f, 0.49f, 3, -9};
  const auto wire = encoded(*tbq, x, call_of(1));
  ASSERT_EQ(wire.size(), 2u);
  EXPECT_EQ(wire[0], std::byte(2 | 0 << 2 | 1 << 4 | 2 << 6));
  EXPECT_EQ(wire[1], std::byte(0));
  EXPECT_EQ(decoded(*tbq, wire, 5), (std::vector<float>{0.5f, -0.5f, 0, 0.5f, -0.5f}));
}

TEST(Hipress, TernGradHasItsTenByteHeader) {
  const CodecPtr minmax = built_in_codecs().make(
      "terngrad", {{"scheme", std::string("minmax")}, {"layout", std::string("hipress")}});
  const std::vector<float> x{-1, 2, 0, 1, 2};  // on the grid of 2 bits: exact
  const auto wire = encoded(*minmax, x, call_of(1));
  ASSERT_EQ(wire.size(), 12u);
  EXPECT_EQ(wire[0], std::byte(2));
  EXPECT_EQ(wire[1], std::byte(3));
  float low, high;
  std::memcpy(&low, &wire[2], 4);
  std::memcpy(&high, &wire[6], 4);
  EXPECT_EQ(low, -1);
  EXPECT_EQ(high, 2);
  EXPECT_EQ(wire[10], std::byte(0 | 3 << 2 | 1 << 4 | 2 << 6));
  EXPECT_EQ(wire[11], std::byte(3));
  EXPECT_EQ(decoded(*minmax, wire, 5), x);
}

// --- the set, and the choice of feedback

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}
#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(CodecSet, NamesTheNearestCodecAndOption) {
  const CodecSet set = built_in_codecs();
  EXPECT_EQ(set.make("bf16")->name(), "bf16");
  EXPECT_CONTAINS(message_of([&] { set.find("bf61"); }), "did you mean 'bf16'");
  const auto wrong = [&](const char* codec, OptionTable options) {
    return message_of([&] { set.make(codec, options, "sync.codec_options"); });
  };
  EXPECT_CONTAINS(wrong("onebit", {{"blok", int64_t{128}}}), "sync.codec_options of onebit");
  EXPECT_CONTAINS(wrong("onebit", {{"blok", int64_t{128}}}), "block");
  EXPECT_CONTAINS(wrong("onebit", {{"block", int64_t{100}}}), "multiple of 128");
  EXPECT_CONTAINS(wrong("onebit", {{"block", std::string("x")}}), "whole number");
  EXPECT_CONTAINS(wrong("terngrad", {{"layout", std::string("hipress")}}), "minmax");
  EXPECT_CONTAINS(wrong("topk", {{"ratio", 0.0}}), "above 0");
}

TEST(Choice, WearsFeedbackWhereItConverges) {
  const CodecSet set = built_in_codecs();
  const auto pick = [&](const char* name, Feedback f, OptionTable options = {}) {
    return choose(set, name, options, f, "sync.codec_options", "sync.error_feedback");
  };
  for (const char* name : {"onebit", "int8", "topk", "tbq", "graddrop", "powersgd", "acpsgd", "fp8"})
    EXPECT_TRUE(pick(name, Feedback::automatic).feedback) << name;
  for (const char* name : {"none", "bf16", "fp16", "qsgd"})
    EXPECT_FALSE(pick(name, Feedback::automatic).feedback) << name;
  for (const char* name : {"dither", "terngrad", "randk"}) {
    const Choice c = pick(name, Feedback::automatic);
    EXPECT_TRUE(c.feedback && !c.note.empty()) << name;
    EXPECT_FALSE(pick(name, Feedback::off).feedback);
  }
  EXPECT_FALSE(pick("dither", Feedback::automatic, {{"range", std::string("max")}}).feedback);
  EXPECT_TRUE(pick("dither", Feedback::on, {{"shrink", true}}).feedback == false ||
              pick("dither", Feedback::on, {{"shrink", true}}).codec->state_names().size() == 1);
  EXPECT_CONTAINS(message_of([&] {
                    pick("dither", Feedback::on, {{"range", std::string("max")}});
                  }),
                  "sync.error_feedback");
  EXPECT_CONTAINS(message_of([&] { pick("qsgd", Feedback::on); }), "sync.error_feedback");
  EXPECT_CONTAINS(message_of([&] { pick("dgc", Feedback::off); }), "sync.error_feedback");
}

}  // namespace
}  // namespace trireme::codec
