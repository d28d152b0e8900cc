#pragma once
// The arithmetic of one element, for the plain CPU kernels and for the CUDA source (which NVRTC compiles: no
// standard headers here). Every operation is one IEEE float32 operation, rounded to nearest even, never
// fused: that is why other instruction sets give the same bytes.
#if defined(__CUDACC_RTC__)
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long long uint64_t;
#define TRIREME_ELEMENT __device__ inline
#else
#include <bit>
#include <cstdint>
#define TRIREME_ELEMENT inline
#endif

namespace trireme::codec::kernels {

#if defined(__CUDACC_RTC__)
TRIREME_ELEMENT uint32_t bits_of(float value) {
  return __float_as_uint(value);
}
TRIREME_ELEMENT float float_of(uint32_t bits) {
  return __uint_as_float(bits);
}
#else
TRIREME_ELEMENT uint32_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}
TRIREME_ELEMENT float float_of(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
#endif

constexpr uint32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;

TRIREME_ELEMENT float magnitude(float value) {
  return float_of(bits_of(value) & kMagnitude);
}

// --- random bits

// One payload's random streams. Philox4x32-10 (Salmon et al., SC'11) gives 4 words a counter; a tile of 128
// elements has 16 counters, and element i of it takes half (i / 16) % 2 of word i / 32 of counter i % 16, so
// that vectors of up to 16 elements are drawn as vectors of counters.
struct Random {
  uint32_t key[2];     // this rank's stream
  uint32_t shared[2];  // all ranks' stream: which stratum each takes
  uint32_t stratum, strata;
  float inverse_strata;
};
constexpr uint64_t kTile = 128;

struct PhiloxWords {
  uint32_t word[4];
};
TRIREME_ELEMENT PhiloxWords philox(uint64_t counter, uint32_t stream, const uint32_t* key) {
  uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = stream, c3 = 0x636f6463;
  uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = (uint64_t)0xD2511F53 * c0, p1 = (uint64_t)0xCD9E8D57 * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

TRIREME_ELEMENT uint32_t random16(uint64_t element, uint32_t stream, const uint32_t* key) {
  const uint64_t tile = element / kTile;
  const uint32_t within = (uint32_t)(element % kTile);
  const PhiloxWords words = philox(tile * 16 + within % 16, stream, key);
  return words.word[within / 32] >> (16 * (within / 16 % 2)) & 0xffff;
}

constexpr float kUniformStep = 1.0f / 65536, kUniformHalf = 0.5f / 65536, kUniformTop = 1 - 0.5f / 65536;

// In (0, 1), the middle of one of 65536 equal cells: P(u < p) differs from p by at most 2^-17. With strata,
// the ranks that share a stream fall into different equal parts of (0, 1), in an order that changes with the
// element (Suresh, Sun, Ro, Yu, "Correlated quantization", ICML'22); each rank's u is uniform all the same.
TRIREME_ELEMENT float uniform(const Random& r, uint64_t element) {
  const float own = (float)random16(element, 0, r.key) * kUniformStep + kUniformHalf;
  if (r.strata == 1) return own;
  uint32_t part = r.stratum + (random16(element, 1, r.shared) * r.strata >> 16);
  if (part >= r.strata) part -= r.strata;
  const float u = ((float)part + own) * r.inverse_strata;
  return u < kUniformTop ? u : kUniformTop;
}

// --- casts

TRIREME_ELEMENT uint32_t to_bf16(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40;  // rounding could carry a NaN's mantissa into infinity
  return (bits & kMagnitude) > kInfinity ? quiet_nan : rounded;
}
TRIREME_ELEMENT float from_bf16(uint32_t half) {
  return float_of(half << 16);
}

// Adding a power of two whose last place is the smallest subnormal rounds a small value to whole subnormals.
TRIREME_ELEMENT uint32_t to_fp16(float value) {
  const uint32_t bits = bits_of(value), size = bits & kMagnitude, sign = bits >> 16 & 0x8000;
  if (size > kInfinity) return sign | 0x7e00 | (size >> 13 & 0x1ff);
  if (size >= 0x47800000) return sign | 0x7c00;
  if (size < 0x38800000) return sign | (bits_of(float_of(size) + 0.5f) - 0x3f000000);
  return sign | (((size + 0xfff + (size >> 13 & 1)) >> 13) - (112u << 10));
}
TRIREME_ELEMENT float from_fp16(uint32_t half) {
  const uint32_t sign = (half & 0x8000) << 16, size = half & 0x7fff;
  if (size > 0x7c00) return float_of(sign | 0x7fc00000 | size << 13);
  if (size == 0x7c00) return float_of(sign | kInfinity);
  if (size < 0x400) return float_of(sign | bits_of((float)size * 0x1p-24f));
  return float_of(sign | ((size << 13) + (112u << 23)));
}

// Finite values up to the format's largest (and a rounding error beyond).
TRIREME_ELEMENT uint32_t to_e4m3(float value) {  // bias 7, largest 448
  const uint32_t bits = bits_of(value), size = bits & kMagnitude, sign = bits >> 24 & 0x80;
  if (size < 0x3c800000) return sign | (bits_of(float_of(size) + 16384.0f) - 0x46800000);
  const uint32_t code = ((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120u << 3);
  return sign | (code < 0x7e ? code : 0x7e);
}
TRIREME_ELEMENT float from_e4m3(uint32_t code) {
  const uint32_t sign = (code & 0x80) << 24, size = code & 0x7f;
  if (size < 8) return float_of(sign | bits_of((float)size * 0x1p-9f));
  return float_of(sign | ((size << 20) + (120u << 23)));
}
TRIREME_ELEMENT uint32_t to_e5m2(float value) {  // bias 15, largest 57344
  const uint32_t bits = bits_of(value), size = bits & kMagnitude, sign = bits >> 24 & 0x80;
  if (size < 0x38800000) return sign | (bits_of(float_of(size) + 128.0f) - 0x43000000);
  const uint32_t code = ((size + 0xfffff + (size >> 21 & 1)) >> 21) - (112u << 2);
  return sign | (code < 0x7b ? code : 0x7b);
}
TRIREME_ELEMENT float from_e5m2(uint32_t code) {
  const uint32_t sign = (code & 0x80) << 24, size = code & 0x7f;
  if (size < 4) return float_of(sign | bits_of((float)size * 0x1p-16f));
  return float_of(sign | ((size << 21) + (112u << 23)));
}

// --- quantisers: one element to a code of q.bits bits, and back

// How elements become codes. The scales below are a block's: one or two floats.
enum Coder {
  kBf16,
  kFp16,
  kE4m3,
  kE5m2,
  kSign,        // bit set where x < 0
  kDither,      // levels + 1 points over [-scale, scale], random rounding
  kThreshold,   // 0, 1, 2: one step down, none, one up
  kTernary,     // as kThreshold, at random in proportion to |x|
  kMinMax,      // levels + 1 points over [low, high], random rounding
  kMagnitudes,  // QSGD: |x| on a grid of `levels` steps to the norm, random rounding, sign
  kNearest,     // signed whole numbers up to +-levels, nearest even
  kStochastic,  // the same, random rounding
  kCoders
};

struct Quantiser {
  Coder coder;
  uint32_t bits;  // of a code: 1, 2, 4, 8 or 16; kDither, kMinMax and kMagnitudes: 1..8
  float levels;   // steps of the grid
  float two_over_levels;
  bool subtractive;   // kDither: the decoder takes the dither off again
  float truncation;   // kDither: values beyond this share of the range are clipped first
  bool needs_random;  // to encode
  Random random;
};

TRIREME_ELEMENT uint32_t round_at_random(float y, float u) {  // y >= 0
  const uint32_t whole = (uint32_t)(int32_t)y;
  return whole + (u < y - (float)whole ? 1 : 0);
}
TRIREME_ELEMENT float clip(float x, float limit) {
  return x > limit ? limit : x < -limit ? -limit : x;
}
TRIREME_ELEMENT uint32_t at_most(uint32_t code, float levels) {
  return code < (uint32_t)levels ? code : (uint32_t)levels;
}

// `a` and `b`: the block's numbers for encoding, as Scheme::measure gives them.
TRIREME_ELEMENT uint32_t quantise(const Quantiser& q, float x, float a, float b, float u) {
  switch (q.coder) {
    case kBf16:
      return to_bf16(x);
    case kFp16:
      return to_fp16(x);
    case kE4m3:
      return to_e4m3(x * a);
    case kE5m2:
      return to_e5m2(x * a);
    case kSign:
      return x < 0 ? 1 : 0;
    case kDither: {  // a: range, b: levels / (2 range)
      const float c = q.truncation < 1 ? clip(x, a * q.truncation) : x;
      if (q.bits == 1) return c > a * (u + u - 1) ? 1 : 0;
      return at_most(round_at_random((clip(c, a) + a) * b, u), q.levels);
    }
    case kThreshold:
      return 1u + (x >= a ? 1 : 0) - (x <= -a ? 1 : 0);
    case kTernary:
      return magnitude(x) > u * a ? (x < 0 ? 0 : 2) : 1;
    case kMinMax: {  // a: low, b: levels / (high - low)
      const float y = (x - a) * b;
      return at_most(round_at_random(y, u), q.levels);
    }
    case kMagnitudes: {  // a: levels / norm
      const uint32_t size = at_most(round_at_random(magnitude(x) * a, u), q.levels);
      return x < 0 ? (uint32_t)q.levels - size : (uint32_t)q.levels + size;
    }
    case kNearest:  // adding 1.5 * 2^23 rounds to whole numbers
      return (bits_of(x * a + 12582912.0f) - 0x4b400000) & ((1u << q.bits) - 1);
    case kStochastic: {
      const float y = x * a;
      float down = (float)(int32_t)y;
      down = down > y ? down - 1 : down;
      const int32_t code = (int32_t)down + (u < y - down ? 1 : 0);
      return (uint32_t)code & ((1u << q.bits) - 1);
    }
    default:
      return 0;
  }
}

TRIREME_ELEMENT int32_t signed_code(uint32_t code, uint32_t bits) {
  return (int32_t)(code << (32 - bits)) >> (32 - bits);
}

// `s`: the block's numbers on the wire; `gap`: for kMinMax the grid's step (high - low) / levels, for
// kMagnitudes norm / levels.
TRIREME_ELEMENT float dequantise(const Quantiser& q, uint32_t code, float s, float gap, float u) {
  switch (q.coder) {
    case kBf16:
      return from_bf16(code);
    case kFp16:
      return from_fp16(code);
    case kE4m3:
      return from_e4m3(code) * s;
    case kE5m2:
      return from_e5m2(code) * s;
    case kSign:
      return code != 0 ? -s : s;
    case kDither:
      if (q.subtractive) return s * (((float)code + (u - 0.5f)) * q.two_over_levels - 1);
      if (q.bits == 1) return code != 0 ? s : -s;
      return s * ((float)code * q.two_over_levels - 1);
    case kThreshold:
    case kTernary:
      return (float)((int32_t)code - 1) * s;
    case kMinMax:
      return s + (float)code * gap;
    case kMagnitudes:
      return ((float)code - q.levels) * gap;
    case kNearest:
    case kStochastic:
      return (float)signed_code(code, q.bits) * s;
    default:
      return 0;
  }
}

}  // namespace trireme::codec::kernels
