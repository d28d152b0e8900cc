#include "trireme/codec/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"

namespace trireme::codec {
namespace {

std::vector<float> random_floats(size_t count, uint64_t seed) {
  PhiloxStream rng(seed, 0);
  std::vector<float> values(count);
  for (auto& v : values)
    v = std::ldexp(static_cast<float>(rng.next_double() * 2 - 1), rng.next_u32() % 40 - 20);
  return values;
}

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

TEST(Codec, RoundTripsEveryLengthAtAnyAddress) {
  for (const auto& codec : {make_none(), make_bf16()}) {
    for (size_t n = 0; n <= 65; ++n) {
      for (size_t shift : {0u, 1u, 3u}) {
        const auto in = random_floats(n, n * 7 + shift);
        std::vector<std::byte> memory(codec->wire_bound(n) + shift);
        const std::span<std::byte> wire(memory.data() + shift, memory.size() - shift);
        ASSERT_EQ(codec->encode(in, wire, 0), codec->wire_bound(n));
        std::vector<float> out(n, 99.0f), sum = random_floats(n, 1);
        const auto base = sum;
        codec->decode(wire, out);
        codec->decode_add(wire, sum);
        for (size_t i = 0; i < n; ++i) {
          const float expected = codec->name() == "none" ? in[i] : bf16_reference(in[i]);
          ASSERT_EQ(out[i], expected) << codec->name() << " " << in[i];
          ASSERT_EQ(sum[i], base[i] + expected);
        }
      }
    }
  }
}

TEST(Codec, Bf16KeepsSpecialValues) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  float signalling;
  const uint32_t bits = 0x7f800001;  // its payload lies in the half that is dropped
  std::memcpy(&signalling, &bits, 4);
  const std::vector<float> in{
      0.0f, -0.0f, inf, -inf, nan, -nan, signalling, 1e-45f, std::numeric_limits<float>::max()};
  std::vector<std::byte> wire(in.size() * 2);
  make_bf16()->encode(in, wire, 0);
  std::vector<float> out(in.size());
  make_bf16()->decode(wire, out);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_TRUE(std::signbit(out[1]));
  EXPECT_EQ(out[2], inf);
  EXPECT_EQ(out[3], -inf);
  EXPECT_TRUE(std::isnan(out[4]));
  EXPECT_TRUE(std::isnan(out[5]));
  EXPECT_TRUE(std::isnan(out[6]));
  EXPECT_EQ(out[7], 0.0f);
  EXPECT_EQ(out[8], inf);
}

TEST(Codec, RefusesPayloadsOfAnotherLength) {
  std::vector<float> out(3);
  for (const auto& codec : {make_none(), make_bf16()}) {
    for (size_t bytes : {size_t{0}, codec->wire_bound(3) - 1, codec->wire_bound(3) + 1}) {
      const std::vector<std::byte> wire(bytes);
      EXPECT_THROW(codec->decode(wire, out), Error);
      EXPECT_THROW(codec->decode_add(wire, out), Error);
    }
  }
}

TEST(CodecSet, NamesTheNearestCodec) {
  CodecSet set;
  set.add(make_none());
  set.add(make_bf16());
  EXPECT_EQ(set.find("bf16")->name(), "bf16");
  try {
    set.find("bf61");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_NE(std::string(e.what()).find("did you mean 'bf16'"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace trireme::codec
