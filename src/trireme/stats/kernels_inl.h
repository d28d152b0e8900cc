#pragma once
// The kernels over a vector type, included once per instruction set. Each including file is compiled with
// other flags, so its vector type, and with it every instantiation here, must live in an unnamed namespace.
//
// Lanes: kWords; load, store, fill; operators ^ & |; count(vectors, at): set bits of at(0) … at(vectors - 1);
// and for the dithers multiply (32 x 32 -> 64 bits per lane) and high (the upper half of each lane, moved
// down).
#include "trireme/stats/kernels.h"

namespace trireme::stats {

template <typename V, typename At>
inline uint64_t count_bits(size_t words, At at) {
  return V::count(words / V::kWords, [&](size_t v) { return at(v * V::kWords); });
}

template <typename V>
struct CountKernels {
  static uint64_t xor_count(const uint64_t* a, const uint64_t* b, size_t words) {
    return count_bits<V>(words, [=](size_t k) { return V::load(a + k) ^ V::load(b + k); });
  }
  static uint64_t and_count(const uint64_t* a, const uint64_t* b, size_t words) {
    return count_bits<V>(words, [=](size_t k) { return V::load(a + k) & V::load(b + k); });
  }
  static MaskedCount masked_count(const uint64_t* s, const uint64_t* m, const uint64_t* s2,
                                  const uint64_t* m2, size_t words) {
    return {and_count(m, m2, words), count_bits<V>(words, [=](size_t k) {
              return V::load(m + k) & V::load(m2 + k) & (V::load(s + k) ^ V::load(s2 + k));
            })};
  }
  // Three passes over words that lie in the first-level cache: one pass would need more registers than there
  // are.
  static TriangularCount triangular_count(const uint64_t* s, const uint64_t* m, const uint64_t* s2,
                                          const uint64_t* m2, size_t words) {
    return {xor_count(s, s2, words),
            count_bits<V>(words,
                          [=](size_t k) {
                            return V::load(s + k) ^ V::load(s2 + k) ^ (V::load(m + k) & V::load(m2 + k));
                          }),
            count_bits<V>(words, [=](size_t k) {
              return V::load(s + k) ^ V::load(s2 + k) ^ (V::load(m + k) | V::load(m2 + k));
            })};
  }
};

// Philox4x32-10 with one row per 64-bit lane. Only the low half of a lane counts: multiply() ignores the high
// one, so what the exclusive-ors leave there never matters. Equal to base/rng.h's philox4x32_10, to which a
// test holds it.
template <typename V>
struct DitherKernel {
  struct State {
    V c0, c1, c2, c3;
  };
  static State start(uint32_t stream, uint32_t column, uint64_t row) {
    uint64_t low[V::kWords], high[V::kWords];
    for (size_t i = 0; i < V::kWords; ++i) {
      low[i] = (row + i) & 0xffffffff;
      high[i] = (row + i) >> 32;
    }
    return {V::fill(column), V::load(low), V::load(high), V::fill(stream)};
  }
  static void round(State& s, V k0, V k1) {
    const V p0 = V::multiply(s.c0, V::fill(0xD2511F53)), p1 = V::multiply(s.c2, V::fill(0xCD9E8D57));
    s = {p1.high() ^ s.c1 ^ k0, p1, p0.high() ^ s.c3 ^ k1, p0};
  }
  static void words(uint64_t seed, uint32_t stream, uint32_t column, uint64_t first_row, size_t count,
                    uint32_t* out0, uint32_t* out1) {
    constexpr size_t kChains =
        8 / V::kWords < 2 ? 1 : 2;  // two independent chains hide the multiplier's latency
    constexpr size_t kRows = kChains * V::kWords;
    for (size_t base = 0; base < count; base += kRows) {
      State chains[kChains];
      for (size_t c = 0; c < kChains; ++c)
        chains[c] = start(stream, column, first_row + base + c * V::kWords);
      uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
      for (int r = 0; r < 10; ++r, k0 += 0x9E3779B9, k1 += 0xBB67AE85)
        for (State& chain : chains) round(chain, V::fill(k0), V::fill(k1));
      for (size_t c = 0; c < kChains; ++c) {
        uint64_t w0[V::kWords], w1[V::kWords];
        chains[c].c0.store(w0);
        chains[c].c1.store(w1);
        for (size_t i = 0; i < V::kWords; ++i) {
          out0[base + c * V::kWords + i] = static_cast<uint32_t>(w0[i]);
          out1[base + c * V::kWords + i] = static_cast<uint32_t>(w1[i]);
        }
      }
    }
  }
};

// Plain loops for the compiler's vectoriser; V only keeps one instantiation for each instruction set apart.
// All give the same codes bit for bit, so the files are compiled without contraction to fused operations.
template <typename V>
struct CodesKernel {
  static double fraction(uint32_t word) {  // by way of a signed integer, which AVX2 can convert
    return (static_cast<double>(static_cast<int32_t>(word ^ 0x80000000u)) + 0x1p31) * 0x1p-32;
  }
  template <typename Dither>
  static bool codes(const CodeRule& rule, const double* x, size_t count, uint8_t* out, Dither dither) {
    const double centre = rule.centre, limit = rule.limit, step = rule.step, half = rule.half_levels;
    const double top = rule.top;
    uint64_t broken = 0;
    for (size_t i = 0; i < count; ++i) {
      constexpr uint64_t kExponent = uint64_t{0x7ff} << 52;
      uint64_t bits;
      __builtin_memcpy(&bits, &x[i], sizeof bits);
      broken |= (bits & kExponent) == kExponent ? 1 : 0;
    }
    for (size_t i = 0; i < count; ++i) {
      double value = x[i] - centre;
      value = value < -limit ? -limit : value;
      value = value > limit ? limit : value;
      double cell = value / step + dither(i) + half;
      cell = cell < 0 ? 0 : cell;
      cell = cell > top ? top : cell;
      out[i] = static_cast<uint8_t>(static_cast<int>(cell));
    }
    return broken == 0;
  }
  static bool run(const CodeRule& rule, const double* x, const uint32_t* word0, const uint32_t* word1,
                  size_t count, uint8_t* out) {
    if (rule.triangular)
      return codes(rule, x, count, out,
                   [=](size_t i) { return fraction(word0[i]) + fraction(word1[i]) - 1.0; });
    return codes(rule, x, count, out, [=](size_t i) { return fraction(word0[i]) - 0.5; });
  }
};

template <typename V>
constexpr Kernels make_kernels(const char* name) {
  return {name,
          &CountKernels<V>::xor_count,
          &CountKernels<V>::and_count,
          &CountKernels<V>::masked_count,
          &CountKernels<V>::triangular_count,
          &DitherKernel<V>::words,
          &CodesKernel<V>::run,
          nullptr};
}

}  // namespace trireme::stats
