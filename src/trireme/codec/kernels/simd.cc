// The kernels in vectors, compiled once for each instruction set and chosen at run time (Highway). Same bytes
// as scalar.cc: the same IEEE operations per element, sums in the same lanes, random numbers by element.
#include <cstring>

#include "trireme/codec/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/codec/kernels/simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace trireme::codec::kernels {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_HAVE_SCALABLE  // no vectors, or vectors whose length is not known here

const Kernels* table() {
  return &kScalar;
}

#else
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 elements, so that a vector never spans two groups of one word's half (Random's layout).
using Floats = hn::CappedTag<float, 16>;
using Words = hn::RebindToUnsigned<Floats>;
using Ints = hn::RebindToSigned<Floats>;
using Bytes = hn::Rebind<uint8_t, Floats>;
using Shorts = hn::Rebind<uint16_t, Floats>;
using F = hn::VFromD<Floats>;
using W = hn::VFromD<Words>;
using M = hn::Mask<Floats>;
constexpr size_t kWide = hn::MaxLanes(Floats());
constexpr size_t kSums = kLanes / kWide;
static_assert(16 % kWide == 0 && kLanes % kWide == 0);

const Floats df;
const Words dw;
const Ints di;

HWY_INLINE F all(float value) {
  return hn::Set(df, value);
}
HWY_INLINE W words(uint32_t value) {
  return hn::Set(dw, value);
}
HWY_INLINE W bits(F v) {
  return hn::BitCast(dw, v);
}
HWY_INLINE F floats(W v) {
  return hn::BitCast(df, v);
}
HWY_INLINE W whole(F v) {
  return hn::BitCast(dw, hn::ConvertTo(di, v));
}
HWY_INLINE F number(W v) {
  return hn::ConvertTo(df, hn::BitCast(di, v));
}
HWY_INLINE W when(hn::Mask<Words> m, W yes, W no) {
  return hn::IfThenElse(m, yes, no);
}
HWY_INLINE W when(M m, W yes, W no) {
  return hn::IfThenElse(hn::RebindMask(dw, m), yes, no);
}

// --- statistics

// What is measured: x, or the sum that x becomes by adding to it.
struct Plain {
  const float* x;
  HWY_INLINE F vector(size_t i) const { return hn::LoadU(df, x + i); }
  HWY_INLINE float one(size_t i) const { return x[i]; }
};
struct Sum {
  const float* a;
  float* b;
  HWY_INLINE F vector(size_t i) const {
    const F v = hn::Add(hn::LoadU(df, b + i), hn::LoadU(df, a + i));
    hn::StoreU(v, df, b + i);
    return v;
  }
  HWY_INLINE float one(size_t i) const { return b[i] = b[i] + a[i]; }
};

template <typename Source>
HWY_INLINE uint32_t largest_of(const Source& source, size_t n) {
  W most[4] = {hn::Zero(dw), hn::Zero(dw), hn::Zero(dw), hn::Zero(dw)};
  const W mask = words(kMagnitude);
  size_t i = 0;
  for (; i + 4 * kWide <= n; i += 4 * kWide) {
    for (size_t k = 0; k < 4; ++k)
      most[k] = hn::Max(most[k], hn::And(bits(source.vector(i + k * kWide)), mask));
  }
  W of_all = hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]));
  for (; i + kWide <= n; i += kWide) of_all = hn::Max(of_all, hn::And(bits(source.vector(i)), mask));
  uint32_t result = hn::GetLane(hn::MaxOfLanes(dw, of_all));
  for (; i < n; ++i) {
    const uint32_t size = bits_of(source.one(i)) & kMagnitude;
    result = size > result ? size : result;
  }
  return result;
}

uint32_t largest(const float* x, size_t n) {
  return largest_of(Plain{x}, n);
}
uint32_t sum_and_largest(const float* a, float* b, size_t n) {
  return largest_of(Sum{a, b}, n);
}

// Sums of a term of each element in kLanes lanes, joined by halves.
template <typename Source, typename Term, typename ScalarTerm>
HWY_INLINE float lane_sum(const Source& source, size_t n, const Term& term, const ScalarTerm& scalar_term) {
  F sums[kSums];
  for (size_t k = 0; k < kSums; ++k) sums[k] = hn::Zero(df);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t k = 0; k < kSums; ++k) sums[k] = hn::Add(sums[k], term(source.vector(i + k * kWide)));
  }
  alignas(64) float lanes[kLanes];
  for (size_t k = 0; k < kSums; ++k) hn::Store(sums[k], df, lanes + k * kWide);
  for (size_t lane = 0; i < n; ++i, ++lane) lanes[lane] += scalar_term(source.one(i));
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

template <typename Source>
HWY_INLINE float magnitudes_of(const Source& source, size_t n) {
  return lane_sum(
      source, n, [](F v) HWY_ATTR { return hn::Abs(v); }, [](float v) HWY_ATTR { return magnitude(v); });
}

float magnitude_sum(const float* x, size_t n) {
  return magnitudes_of(Plain{x}, n);
}
float sum_and_magnitudes(const float* a, float* b, size_t n) {
  return magnitudes_of(Sum{a, b}, n);
}

float square_sum(const float* x, size_t n, float scale) {
  const F factor = all(scale);
  return lane_sum(
      Plain{x}, n,
      [factor](F v) HWY_ATTR {
        const F scaled = hn::Mul(v, factor);
        return hn::Mul(scaled, scaled);
      },
      [scale](float v) HWY_ATTR {
        const float scaled = v * scale;
        return scaled * scaled;
      });
}

void range(const float* x, size_t n, float* low, float* high) {
  F least = all(x[0]), most = least;
  size_t i = 0;
  for (; i + kWide <= n; i += kWide) {
    const F v = hn::LoadU(df, x + i);
    least = hn::Min(least, v);
    most = hn::Max(most, v);
  }
  *low = hn::GetLane(hn::MinOfLanes(df, least));
  *high = hn::GetLane(hn::MaxOfLanes(df, most));
  for (; i < n; ++i) {
    *low = x[i] < *low ? x[i] : *low;
    *high = x[i] > *high ? x[i] : *high;
  }
}

void sum(const float* a, float* b, size_t n) {
  size_t i = 0;
  for (; i + kWide <= n; i += kWide)
    hn::StoreU(hn::Add(hn::LoadU(df, b + i), hn::LoadU(df, a + i)), df, b + i);
  for (; i < n; ++i) b[i] += a[i];
}

void velocity(const float* g, float* u, float* v, size_t n, float momentum, bool nesterov) {
  const F m = all(momentum);
  size_t i = 0;
  for (; i + kWide <= n; i += kWide) {
    const F gradient = hn::LoadU(df, g + i);
    const F fast = hn::Add(hn::Mul(m, hn::LoadU(df, u + i)), gradient);
    hn::StoreU(fast, df, u + i);
    const F step = nesterov ? hn::Add(hn::Mul(m, fast), gradient) : fast;
    hn::StoreU(hn::Add(hn::LoadU(df, v + i), step), df, v + i);
  }
  kScalar.velocity(g + i, u + i, v + i, n - i, momentum, nesterov);
}

size_t select(const float* x, size_t n, uint32_t least, uint32_t first, uint32_t* out) {
  const W mask = words(kMagnitude), bound = words(least);
  size_t count = 0, i = 0;
  for (; i + 4 * kWide <= n; i += 4 * kWide) {
    W size[4];
    for (size_t k = 0; k < 4; ++k) size[k] = hn::And(bits(hn::LoadU(df, x + i + k * kWide)), mask);
    const W most = hn::Max(hn::Max(size[0], size[1]), hn::Max(size[2], size[3]));
    if (hn::AllTrue(dw, hn::Lt(most, bound))) continue;
    for (size_t k = 0; k < 4; ++k) {
      const W index = hn::Iota(dw, first + static_cast<uint32_t>(i + k * kWide));
      count += hn::CompressStore(index, hn::Not(hn::Lt(size[k], bound)), dw, out + count);
    }
  }
  return count + kScalar.select(x + i, n - i, least, first + static_cast<uint32_t>(i), out + count);
}

// --- random numbers

constexpr size_t kParts = 16 / kWide;  // vectors of a group of 16 elements

// The words of a tile's 16 counters, as vectors.
struct TileWords {
  W word[4][kParts];
};

// The high and low halves of factor * v.
HWY_INLINE void multiply(W v, W factor, W& high, W& low) {
  const hn::Repartition<uint64_t, Words> d64;
  const auto even = hn::MulEven(v, factor);
  const auto odd = hn::MulEven(hn::BitCast(dw, hn::ShiftRight<32>(hn::BitCast(d64, v))), factor);
  high = hn::OddEven(hn::BitCast(dw, odd), hn::BitCast(dw, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(dw, hn::ShiftLeft<32>(odd)), hn::BitCast(dw, even));
}

HWY_INLINE TileWords tile_words(uint64_t tile, uint32_t stream, const uint32_t* key) {
  const W m0 = words(0xD2511F53), m1 = words(0xCD9E8D57);
  W c0[kParts], c1[kParts], c2[kParts], c3[kParts];
  const auto counter = static_cast<uint32_t>(tile * 16);
  for (size_t p = 0; p < kParts; ++p) {
    c0[p] = hn::Iota(dw, counter + static_cast<uint32_t>(p * kWide));
    c1[p] = words(static_cast<uint32_t>(tile >> 28));  // the counter's upper half
    c2[p] = words(stream);
    c3[p] = words(0x636f6463);
  }
  uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    for (size_t p = 0; p < kParts; ++p) {
      W high0, low0, high1, low1;
      multiply(c0[p], m0, high0, low0);
      multiply(c2[p], m1, high1, low1);
      c0[p] = hn::Xor(hn::Xor(high1, c1[p]), words(k0));
      c2[p] = hn::Xor(hn::Xor(high0, c3[p]), words(k1));
      c1[p] = low1;
      c3[p] = low0;
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  TileWords t;
  for (size_t p = 0; p < kParts; ++p)
    t.word[0][p] = c0[p], t.word[1][p] = c1[p], t.word[2][p] = c2[p], t.word[3][p] = c3[p];
  return t;
}

// u of element group g (16 elements), part p.
HWY_INLINE W half_word(const TileWords& t, size_t group, size_t part) {
  const W word = t.word[group / 2][part];
  return group % 2 == 0 ? hn::And(word, words(0xffff)) : hn::ShiftRight<16>(word);
}
HWY_INLINE F own_uniform(const TileWords& t, size_t group, size_t part) {
  return hn::Add(hn::Mul(number(half_word(t, group, part)), all(kUniformStep)), all(kUniformHalf));
}
HWY_INLINE F stratified(F own, const TileWords& shared, size_t group, size_t part, const Random& r) {
  const W strata = words(r.strata);
  const W shift = hn::ShiftRight<16>(hn::Mul(half_word(shared, group, part), strata));
  W place = hn::Add(words(r.stratum), shift);
  place = when(hn::Lt(place, strata), place, hn::Sub(place, strata));
  const F u = hn::Mul(hn::Add(number(place), own), all(r.inverse_strata));
  return hn::Min(u, all(kUniformTop));
}

// All 128 numbers of a tile.
HWY_INLINE void tile_uniforms(const Random& r, uint64_t tile, float* u) {
  const TileWords own = tile_words(tile, 0, r.key);
  if (r.strata == 1) {
    for (size_t g = 0; g < 8; ++g)
      for (size_t p = 0; p < kParts; ++p) hn::Store(own_uniform(own, g, p), df, u + g * 16 + p * kWide);
    return;
  }
  const TileWords shared = tile_words(tile, 1, r.shared);
  for (size_t g = 0; g < 8; ++g)
    for (size_t p = 0; p < kParts; ++p)
      hn::Store(stratified(own_uniform(own, g, p), shared, g, p, r), df, u + g * 16 + p * kWide);
}

// --- codes of one vector

HWY_INLINE W to_bf16_v(F v) {
  const W b = bits(v);
  const W odd = hn::And(hn::ShiftRight<16>(b), words(1));
  const W rounded = hn::ShiftRight<16>(hn::Add(hn::Add(b, words(0x7fff)), odd));
  const W quiet = hn::Or(hn::ShiftRight<16>(b), words(0x40));
  return when(hn::Gt(hn::And(b, words(kMagnitude)), words(kInfinity)), quiet, rounded);
}

HWY_INLINE W to_fp16_v(F v) {
  const W b = bits(v), size = hn::And(b, words(kMagnitude));
  const W sign = hn::And(hn::ShiftRight<16>(b), words(0x8000));
  const W odd = hn::And(hn::ShiftRight<13>(size), words(1));
  W code = hn::Sub(hn::ShiftRight<13>(hn::Add(hn::Add(size, words(0xfff)), odd)), words(112u << 10));
  const W small = hn::Sub(bits(hn::Add(floats(size), all(0.5f))), words(0x3f000000));
  code = when(hn::Lt(size, words(0x38800000)), small, code);
  code = when(hn::Gt(size, words(0x477fffff)), words(0x7c00), code);
  const W nan = hn::Or(words(0x7e00), hn::And(hn::ShiftRight<13>(size), words(0x1ff)));
  code = when(hn::Gt(size, words(kInfinity)), nan, code);
  return hn::Or(sign, code);
}

template <int kShift, uint32_t kNormal, uint32_t kMagic, uint32_t kBias, uint32_t kTop>
HWY_INLINE W to_fp8_v(F v) {
  const W b = bits(v), size = hn::And(b, words(kMagnitude));
  const W sign = hn::And(hn::ShiftRight<24>(b), words(0x80));
  const W odd = hn::And(hn::ShiftRight<kShift>(size), words(1));
  W code = hn::ShiftRight<kShift>(hn::Add(hn::Add(size, words((1u << (kShift - 1)) - 1)), odd));
  code = hn::Min(hn::Sub(code, words(kBias)), words(kTop));
  const W small = hn::Sub(bits(hn::Add(floats(size), floats(words(kMagic)))), words(kMagic));
  return hn::Or(sign, when(hn::Lt(size, words(kNormal)), small, code));
}

HWY_INLINE W round_up_at_random(F y, F u) {  // y >= 0
  const W down = whole(y);
  return hn::Add(down, when(hn::Lt(u, hn::Sub(y, number(down))), words(1), hn::Zero(dw)));
}
HWY_INLINE F clip_v(F x, F limit) {
  return hn::Max(hn::Min(x, limit), hn::Neg(limit));
}

struct Constants {
  F a, b, levels, truncated;
  W top, mask;
};
HWY_INLINE Constants constants(const Quantiser& q, float a, float b) {
  return {all(a),
          all(b),
          all(q.levels),
          all(a * q.truncation),
          words(static_cast<uint32_t>(q.levels)),
          words((1u << q.bits) - 1)};
}

template <Coder kCoder>
HWY_INLINE W code_of(const Constants& c, F x, F u) {
  if constexpr (kCoder == kBf16) return to_bf16_v(x);
  if constexpr (kCoder == kFp16) return to_fp16_v(x);
  if constexpr (kCoder == kE4m3)
    return to_fp8_v<20, 0x3c800000, 0x46800000, 120u << 3, 0x7e>(hn::Mul(x, c.a));
  if constexpr (kCoder == kE5m2)
    return to_fp8_v<21, 0x38800000, 0x43000000, 112u << 2, 0x7b>(hn::Mul(x, c.a));
  if constexpr (kCoder == kDither) {
    const F y = hn::Mul(hn::Add(clip_v(clip_v(x, c.truncated), c.a), c.a), c.b);
    return hn::Min(round_up_at_random(y, u), c.top);
  }
  if constexpr (kCoder == kThreshold) {
    const W up = when(hn::Ge(x, c.a), words(2), words(1));
    return hn::Sub(up, when(hn::Le(x, hn::Neg(c.a)), words(1), hn::Zero(dw)));
  }
  if constexpr (kCoder == kTernary) {
    const W signed_code = when(hn::Lt(x, hn::Zero(df)), hn::Zero(dw), words(2));
    return when(hn::Gt(hn::Abs(x), hn::Mul(u, c.a)), signed_code, words(1));
  }
  if constexpr (kCoder == kMinMax) {
    return hn::Min(round_up_at_random(hn::Mul(hn::Sub(x, c.a), c.b), u), c.top);
  }
  if constexpr (kCoder == kMagnitudes) {
    const W size = hn::Min(round_up_at_random(hn::Mul(hn::Abs(x), c.a), u), c.top);
    return when(hn::Lt(x, hn::Zero(df)), hn::Sub(c.top, size), hn::Add(c.top, size));
  }
  if constexpr (kCoder == kNearest) {
    const F shifted = hn::Add(hn::Mul(x, c.a), all(12582912.0f));
    return hn::And(hn::Sub(bits(shifted), words(0x4b400000)), c.mask);
  }
  if constexpr (kCoder == kStochastic) {
    const F y = hn::Mul(x, c.a);
    F down = hn::ConvertTo(df, hn::ConvertTo(di, y));
    down = hn::IfThenElse(hn::Gt(down, y), hn::Sub(down, all(1)), down);
    const W up = when(hn::Lt(u, hn::Sub(y, down)), words(1), hn::Zero(dw));
    return hn::And(hn::Add(whole(down), up), c.mask);
  }
  return hn::Zero(dw);
}

// --- and back: the value of one vector's codes

struct Decoded {
  F s, gap, levels, two_over_levels;
  uint32_t width;
};

// Of a dither that the receiver takes off again.
HWY_INLINE F undithered(const Decoded& d, W code, F u) {
  const F place = hn::Add(number(code), hn::Sub(u, all(0.5f)));
  return hn::Mul(d.s, hn::Sub(hn::Mul(place, d.two_over_levels), all(1)));
}

template <Coder kCoder>
HWY_INLINE F value_of(const Decoded& d, W code) {
  if constexpr (kCoder == kBf16) return floats(hn::ShiftLeft<16>(code));
  if constexpr (kCoder == kFp16) {
    const W sign = hn::ShiftLeft<16>(hn::And(code, words(0x8000))), size = hn::And(code, words(0x7fff));
    W b = hn::Add(hn::ShiftLeft<13>(size), words(112u << 23));
    b = when(hn::Lt(size, words(0x400)), bits(hn::Mul(number(size), all(0x1p-24f))), b);
    b = when(hn::Gt(size, words(0x7bff)), words(kInfinity), b);
    b = when(hn::Gt(size, words(0x7c00)), hn::Or(words(0x7fc00000), hn::ShiftLeft<13>(size)), b);
    return floats(hn::Or(sign, b));
  }
  if constexpr (kCoder == kE4m3 || kCoder == kE5m2) {
    constexpr bool kFour = kCoder == kE4m3;
    const W sign = hn::ShiftLeft<24>(hn::And(code, words(0x80))), size = hn::And(code, words(0x7f));
    const W normal = hn::Add(hn::ShiftLeft<(kFour ? 20 : 21)>(size), words((kFour ? 120u : 112u) << 23));
    const W small = bits(hn::Mul(number(size), all(kFour ? 0x1p-9f : 0x1p-16f)));
    return hn::Mul(floats(hn::Or(sign, when(hn::Lt(size, words(kFour ? 8 : 4)), small, normal))), d.s);
  }
  if constexpr (kCoder == kDither)
    return hn::Mul(d.s, hn::Sub(hn::Mul(number(code), d.two_over_levels), all(1)));
  if constexpr (kCoder == kThreshold || kCoder == kTernary)
    return hn::Mul(number(hn::Sub(code, words(1))), d.s);
  if constexpr (kCoder == kMinMax) return hn::Add(d.s, hn::Mul(number(code), d.gap));
  if constexpr (kCoder == kMagnitudes) return hn::Mul(hn::Sub(number(code), d.levels), d.gap);
  if constexpr (kCoder == kNearest || kCoder == kStochastic) {
    // Sign of a code of 8 or 4 bits.
    const auto wide = hn::BitCast(di, d.width == 8 ? hn::ShiftLeft<24>(code) : hn::ShiftLeft<28>(code));
    const auto value = d.width == 8 ? hn::ShiftRight<24>(wide) : hn::ShiftRight<28>(wide);
    return hn::Mul(hn::ConvertTo(df, value), d.s);
  }
  return hn::Zero(df);
}

constexpr bool draws(Coder c) {
  return c == kDither || c == kTernary || c == kMinMax || c == kMagnitudes || c == kStochastic;
}

// --- tiles of 128 elements

template <typename Body>
HWY_INLINE void for_each_vector(const Body& body) {
  for (size_t i = 0; i < kTile; i += kWide) body(i);
}

// One bit an element, from vector masks.
HWY_INLINE void store_mask(M mask, size_t i, uint8_t* out) {
  if constexpr (kWide >= 8) {
    hn::StoreMaskBits(df, mask, out + i / 8);
  } else {
    uint8_t few = 0;
    hn::StoreMaskBits(df, mask, &few);
    if (i % 8 == 0) {
      out[i / 8] = few;
    } else {
      out[i / 8] = static_cast<uint8_t>(out[i / 8] | few << i % 8);
    }
  }
}
HWY_INLINE M load_mask(size_t i, const uint8_t* in) {
  if constexpr (kWide >= 8) {
    return hn::LoadMaskBits(df, in + i / 8);
  } else {
    const auto few = static_cast<uint8_t>(in[i / 8] >> i % 8 & 15);
    uint8_t room[8] = {few};
    return hn::LoadMaskBits(df, room);
  }
}

// 128 codes of a byte each to codes of `width` bits.
HWY_INLINE void pack(const uint8_t* wide, uint32_t width, uint8_t* out) {
  if (width == 4) {
    const hn::CappedTag<uint16_t, 16> d16;
    const hn::Rebind<uint8_t, decltype(d16)> d8;
    constexpr size_t kN = hn::MaxLanes(d16);
    for (size_t i = 0; i < kTile / 2; i += kN) {
      const auto v = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(wide) + i);
      hn::StoreU(hn::TruncateTo(d8, hn::Or(v, hn::ShiftRight<4>(v))), d8, out + i);
    }
  } else if (width == 2) {
    const hn::Rebind<uint8_t, Words> d8;
    for (size_t i = 0; i < kTile / 4; i += kWide) {
      const W v = hn::LoadU(dw, reinterpret_cast<const uint32_t*>(wide) + i);
      const W low = hn::Or(v, hn::ShiftRight<6>(v)),
              high = hn::Or(hn::ShiftRight<12>(v), hn::ShiftRight<18>(v));
      hn::StoreU(hn::TruncateTo(d8, hn::Or(low, high)), d8, out + i);
    }
  } else {
    std::memset(out, 0, kTile * width / 8);
    for (size_t i = 0; i < kTile; ++i) {
      const size_t at = i * width;
      const uint32_t code = static_cast<uint32_t>(wide[i]) << at % 8;
      out[at / 8] = static_cast<uint8_t>(out[at / 8] | code);
      if (at % 8 + width > 8) out[at / 8 + 1] = static_cast<uint8_t>(code >> 8);
    }
  }
}
HWY_INLINE void unpack(const uint8_t* codes, uint32_t width, uint8_t* wide) {
  if (width == 4) {
    const hn::CappedTag<uint16_t, 16> d16;
    const hn::Rebind<uint8_t, decltype(d16)> d8;
    constexpr size_t kN = hn::MaxLanes(d16);
    for (size_t i = 0; i < kTile / 2; i += kN) {
      const auto v = hn::PromoteTo(d16, hn::LoadU(d8, codes + i));
      const auto spread = hn::And(hn::Or(v, hn::ShiftLeft<4>(v)), hn::Set(d16, 0x0f0f));
      hn::StoreU(spread, d16, reinterpret_cast<uint16_t*>(wide) + i);
    }
  } else if (width == 2) {
    const hn::Rebind<uint8_t, Words> d8;
    for (size_t i = 0; i < kTile / 4; i += kWide) {
      const W v = hn::PromoteTo(dw, hn::LoadU(d8, codes + i));
      const W low = hn::Or(v, hn::ShiftLeft<6>(v)), high = hn::Or(hn::ShiftLeft<12>(v), hn::ShiftLeft<18>(v));
      hn::StoreU(hn::And(hn::Or(low, high), words(0x03030303)), dw, reinterpret_cast<uint32_t*>(wide) + i);
    }
  } else {
    for (size_t i = 0; i < kTile; ++i) {
      const size_t at = i * width;
      uint32_t pair = codes[at / 8];
      if (at % 8 + width > 8) pair |= static_cast<uint32_t>(codes[at / 8 + 1]) << 8;
      wide[i] = static_cast<uint8_t>(pair >> at % 8 & ((1u << width) - 1));
    }
  }
}

// With feedback: x -= value.
template <bool kFeedback>
HWY_INLINE void take_off(F x, F value, float* at) {
  if constexpr (kFeedback) hn::StoreU(hn::Sub(x, value), df, at);
}

template <Coder kCoder, bool kFeedback>
HWY_INLINE void quantise_tile(const Quantiser& q, const Constants& c, const Decoded& d, float* x,
                              uint64_t tile, uint8_t* out) {
  alignas(64) float u[kTile];
  if constexpr (draws(kCoder)) tile_uniforms(q.random, tile, u);
  const auto uniform_at = [&](size_t i) HWY_ATTR {
    if constexpr (draws(kCoder)) return hn::Load(df, u + i);
    return hn::Zero(df);
  };
  if constexpr (kCoder == kSign) {
    for_each_vector([&](size_t i) HWY_ATTR {
      const F v = hn::LoadU(df, x + i);
      const M negative = hn::Lt(v, hn::Zero(df));
      store_mask(negative, i, out);
      take_off<kFeedback>(v, hn::IfThenElse(negative, hn::Neg(d.s), d.s), x + i);
    });
    return;
  }
  if constexpr (kCoder == kDither) {
    if (q.bits == 1) {
      for_each_vector([&](size_t i) HWY_ATTR {
        const F r = uniform_at(i), v = hn::LoadU(df, x + i);
        const M up = hn::Gt(clip_v(v, c.truncated), hn::Mul(c.a, hn::Sub(hn::Add(r, r), all(1))));
        store_mask(up, i, out);
        const F plain = hn::IfThenElse(up, d.s, hn::Neg(d.s));
        const W code = when(up, words(1), hn::Zero(dw));
        take_off<kFeedback>(v, q.subtractive ? undithered(d, code, r) : plain, x + i);
      });
      return;
    }
  }
  const auto code_at = [&](size_t i) HWY_ATTR {
    const F v = hn::LoadU(df, x + i), r = uniform_at(i);
    const W code = code_of<kCoder>(c, v, r);
    if constexpr (kFeedback) {
      const bool off = kCoder == kDither && q.subtractive;
      take_off<kFeedback>(v, off ? undithered(d, code, r) : value_of<kCoder>(d, code), x + i);
    }
    return code;
  };
  if constexpr (kCoder == kBf16 || kCoder == kFp16) {
    const Shorts d16;
    for_each_vector([&](size_t i) HWY_ATTR {
      alignas(64) uint16_t room[kWide];
      hn::Store(hn::TruncateTo(d16, code_at(i)), d16, room);
      std::memcpy(out + 2 * i, room, sizeof room);
    });
    return;
  }
  alignas(64) uint8_t wide[kTile];
  uint8_t* to = q.bits == 8 ? out : wide;
  const Bytes d8;
  for_each_vector([&](size_t i) HWY_ATTR { hn::StoreU(hn::TruncateTo(d8, code_at(i)), d8, to + i); });
  if (q.bits != 8) pack(wide, q.bits, out);
}

template <Coder kCoder, bool kFeedback>
void quantise_with(const Quantiser& q, float* x, size_t n, float a, float b, float s, float gap,
                   uint64_t first, uint8_t* codes) {
  const Constants c = constants(q, a, b);
  const Decoded d{all(s), all(gap), all(q.levels), all(q.two_over_levels), q.bits};
  const size_t tile_bytes = kTile * q.bits / 8;
  size_t i = 0;
  for (; i + kTile <= n; i += kTile)
    quantise_tile<kCoder, kFeedback>(q, c, d, x + i, (first + i) / kTile, codes + i / kTile * tile_bytes);
  if (i == n) return;
  alignas(64) float rest[kTile] = {};
  alignas(64) uint8_t last[kTile * 2];
  std::memcpy(rest, x + i, (n - i) * sizeof(float));
  quantise_tile<kCoder, kFeedback>(q, c, d, rest, (first + i) / kTile, last);
  if constexpr (kFeedback) std::memcpy(x + i, rest, (n - i) * sizeof(float));
  const size_t used = code_bytes(q.bits, n - i), left = (n - i) * q.bits % 8;
  if (left > 0) last[used - 1] = static_cast<uint8_t>(last[used - 1] & ((1u << left) - 1));
  std::memcpy(codes + i / kTile * tile_bytes, last, used);
}

template <bool kFeedback>
void quantise_coder(const Quantiser& q, float* x, size_t n, float a, float b, float s, float gap,
                    uint64_t first, uint8_t* codes) {
  switch (q.coder) {
    case kBf16:
      return quantise_with<kBf16, kFeedback>(q, x, n, a, b, s, gap, first, codes);
    case kFp16:
      return quantise_with<kFp16, kFeedback>(q, x, n, a, b, s, gap, first, codes);
    case kE4m3:
      return quantise_with<kE4m3, kFeedback>(q, x, n, a, b, s, gap, first, codes);
    case kE5m2:
      return quantise_with<kE5m2, kFeedback>(q, x, n, a, b, s, gap, first, codes);
    case kSign:
      return quantise_with<kSign, kFeedback>(q, x, n, a, b, s, gap, first, codes);
    case kDither:
      return quantise_with<kDither, kFeedback>(q, x, n, a, b, s, gap, first, codes);
    case kThreshold:
      return quantise_with<kThreshold, kFeedback>(q, x, n, a, b, s, gap, first, codes);
    case kTernary:
      return quantise_with<kTernary, kFeedback>(q, x, n, a, b, s, gap, first, codes);
    case kMinMax:
      return quantise_with<kMinMax, kFeedback>(q, x, n, a, b, s, gap, first, codes);
    case kMagnitudes:
      return quantise_with<kMagnitudes, kFeedback>(q, x, n, a, b, s, gap, first, codes);
    case kNearest:
      return quantise_with<kNearest, kFeedback>(q, x, n, a, b, s, gap, first, codes);
    case kStochastic:
      return quantise_with<kStochastic, kFeedback>(q, x, n, a, b, s, gap, first, codes);
    case kCoders:
      return;
  }
}

// Without feedback nothing is written to x.
void quantise_any(const Quantiser& q, const float* x, size_t n, float a, float b, uint64_t first,
                  uint8_t* codes) {
  quantise_coder<false>(q, const_cast<float*>(x), n, a, b, 0, 0, first, codes);
}
void quantise_with_feedback(const Quantiser& q, float* x, size_t n, float a, float b, float s, float gap,
                            uint64_t first, uint8_t* codes) {
  quantise_coder<true>(q, x, n, a, b, s, gap, first, codes);
}

// --- decoding

template <Into kInto>
HWY_INLINE void put(F value, float* out) {
  if constexpr (kInto == Into::add) value = hn::Add(hn::LoadU(df, out), value);
  hn::StoreU(value, df, out);
}

template <Coder kCoder, Into kInto>
HWY_INLINE void dequantise_tile(const Quantiser& q, const Decoded& d, const uint8_t* codes, uint64_t tile,
                                float* out) {
  if constexpr (kCoder == kBf16 || kCoder == kFp16) {
    const Shorts d16;
    for_each_vector([&](size_t i) HWY_ATTR {
      alignas(64) uint16_t room[kWide];
      std::memcpy(room, codes + 2 * i, sizeof room);
      put<kInto>(value_of<kCoder>(d, hn::PromoteTo(dw, hn::Load(d16, room))), out + i);
    });
    return;
  }
  if constexpr (kCoder == kSign) {
    for_each_vector([&](size_t i) HWY_ATTR {
      put<kInto>(hn::IfThenElse(load_mask(i, codes), hn::Neg(d.s), d.s), out + i);
    });
    return;
  }
  if constexpr (kCoder == kDither) {
    if (q.bits == 1 && !q.subtractive) {
      for_each_vector([&](size_t i) HWY_ATTR {
        put<kInto>(hn::IfThenElse(load_mask(i, codes), d.s, hn::Neg(d.s)), out + i);
      });
      return;
    }
  }
  alignas(64) uint8_t room[kTile];
  const uint8_t* wide = q.bits == 8 ? codes : room;
  if (q.bits != 8) unpack(codes, q.bits, room);
  const Bytes d8;
  if constexpr (kCoder == kDither) {
    if (q.subtractive) {
      alignas(64) float u[kTile];
      tile_uniforms(q.random, tile, u);
      for_each_vector([&](size_t i) HWY_ATTR {
        put<kInto>(undithered(d, hn::PromoteTo(dw, hn::LoadU(d8, wide + i)), hn::Load(df, u + i)), out + i);
      });
      return;
    }
  }
  for_each_vector([&](size_t i) HWY_ATTR {
    put<kInto>(value_of<kCoder>(d, hn::PromoteTo(dw, hn::LoadU(d8, wide + i))), out + i);
  });
}

template <Coder kCoder, Into kInto>
void dequantise_with(const Quantiser& q, const uint8_t* codes, size_t n, float s, float gap, uint64_t first,
                     float* out) {
  const Decoded d{all(s), all(gap), all(q.levels), all(q.two_over_levels), q.bits};
  const size_t tile_bytes = kTile * q.bits / 8;
  size_t i = 0;
  for (; i + kTile <= n; i += kTile)
    dequantise_tile<kCoder, kInto>(q, d, codes + i / kTile * tile_bytes, (first + i) / kTile, out + i);
  if (i == n) return;
  alignas(64) float rest[kTile] = {};
  alignas(64) uint8_t last[kTile * 2] = {};
  std::memcpy(last, codes + i / kTile * tile_bytes, code_bytes(q.bits, n - i));
  std::memcpy(rest, out + i, (n - i) * sizeof(float));
  dequantise_tile<kCoder, kInto>(q, d, last, (first + i) / kTile, rest);
  std::memcpy(out + i, rest, (n - i) * sizeof(float));
}

template <Into kInto>
void dequantise_into(const Quantiser& q, const uint8_t* codes, size_t n, float s, float gap, uint64_t first,
                     float* out) {
  switch (q.coder) {
    case kBf16:
      return dequantise_with<kBf16, kInto>(q, codes, n, s, gap, first, out);
    case kFp16:
      return dequantise_with<kFp16, kInto>(q, codes, n, s, gap, first, out);
    case kE4m3:
      return dequantise_with<kE4m3, kInto>(q, codes, n, s, gap, first, out);
    case kE5m2:
      return dequantise_with<kE5m2, kInto>(q, codes, n, s, gap, first, out);
    case kSign:
      return dequantise_with<kSign, kInto>(q, codes, n, s, gap, first, out);
    case kDither:
      return dequantise_with<kDither, kInto>(q, codes, n, s, gap, first, out);
    case kThreshold:
    case kTernary:
      return dequantise_with<kThreshold, kInto>(q, codes, n, s, gap, first, out);
    case kMinMax:
      return dequantise_with<kMinMax, kInto>(q, codes, n, s, gap, first, out);
    case kMagnitudes:
      return dequantise_with<kMagnitudes, kInto>(q, codes, n, s, gap, first, out);
    case kNearest:
    case kStochastic:
      return dequantise_with<kNearest, kInto>(q, codes, n, s, gap, first, out);
    case kCoders:
      return;
  }
}

void dequantise_any(const Quantiser& q, const uint8_t* codes, size_t n, float s, float gap, uint64_t first,
                    float* out, Into into) {
  switch (into) {
    case Into::set:
      return dequantise_into<Into::set>(q, codes, n, s, gap, first, out);
    case Into::add:
      return dequantise_into<Into::add>(q, codes, n, s, gap, first, out);
  }
}

}  // namespace

const Kernels* table() {
  static const Kernels kernels{hwy::TargetName(HWY_TARGET),
                               largest,
                               magnitude_sum,
                               square_sum,
                               range,
                               sum,
                               sum_and_largest,
                               sum_and_magnitudes,
                               velocity,
                               select,
                               quantise_any,
                               quantise_with_feedback,
                               dequantise_any};
  return &kernels;
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace trireme::codec::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::codec::kernels {

HWY_EXPORT(table);

const Kernels& fastest() {
  return *HWY_DYNAMIC_DISPATCH(table)();
}

std::vector<const Kernels*> all_supported() {
  std::vector<const Kernels*> all;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    all.push_back(HWY_DYNAMIC_DISPATCH(table)());
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return all;
}

}  // namespace trireme::codec::kernels
#endif
