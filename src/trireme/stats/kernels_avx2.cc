// Compiled with -mavx2 -mpopcnt. AVX2 has no popcount of its own: carry-save adders (Harley and Seal; Mula,
// Kurz and Lemire, "Faster population counts using AVX2 instructions", 2018) leave one table look-up per
// eight vectors.
#include <immintrin.h>

#include "trireme/stats/kernels_inl.h"

namespace trireme::stats {
namespace {

struct Lanes {
  static constexpr size_t kWords = 4;
  __m256i bits;
  static Lanes load(const uint64_t* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
  static Lanes fill(uint64_t value) { return {_mm256_set1_epi64x(static_cast<long long>(value))}; }
  void store(uint64_t* p) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bits); }
  static Lanes multiply(Lanes a, Lanes b) { return {_mm256_mul_epu32(a.bits, b.bits)}; }
  Lanes high() const { return {_mm256_srli_epi64(bits, 32)}; }
  Lanes operator^(Lanes o) const { return {_mm256_xor_si256(bits, o.bits)}; }
  Lanes operator&(Lanes o) const { return {_mm256_and_si256(bits, o.bits)}; }
  Lanes operator|(Lanes o) const { return {_mm256_or_si256(bits, o.bits)}; }

  // Adds a and b to `sum`, bit by bit; returns the carries, which weigh twice as much.
  static Lanes carry_save(Lanes& sum, Lanes a, Lanes b) {
    const Lanes partial = sum ^ a;
    const Lanes carry = (sum & a) | (partial & b);
    sum = partial ^ b;
    return carry;
  }

  // Set bits, as four sums of 64 bits.
  static __m256i count_each(Lanes v) {
    const __m256i table = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1, 2, 1, 2,
                                           2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i low = _mm256_shuffle_epi8(table, _mm256_and_si256(v.bits, nibble));
    const __m256i high = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(v.bits, 4), nibble));
    return _mm256_sad_epu8(_mm256_add_epi8(low, high), _mm256_setzero_si256());
  }

  template <typename At>
  static uint64_t count(size_t vectors, At at) {
    const Lanes zero{_mm256_setzero_si256()};
    Lanes ones = zero, twos = zero, fours = zero;
    __m256i eights = _mm256_setzero_si256(), rest = _mm256_setzero_si256();
    size_t v = 0;
    for (; v + 8 <= vectors; v += 8) {
      const Lanes two_a = carry_save(ones, at(v), at(v + 1));
      const Lanes two_b = carry_save(ones, at(v + 2), at(v + 3));
      const Lanes four_a = carry_save(twos, two_a, two_b);
      const Lanes two_c = carry_save(ones, at(v + 4), at(v + 5));
      const Lanes two_d = carry_save(ones, at(v + 6), at(v + 7));
      const Lanes four_b = carry_save(twos, two_c, two_d);
      eights = _mm256_add_epi64(eights, count_each(carry_save(fours, four_a, four_b)));
    }
    for (; v < vectors; ++v) rest = _mm256_add_epi64(rest, count_each(at(v)));
    __m256i total = _mm256_slli_epi64(eights, 3);
    total = _mm256_add_epi64(total, _mm256_slli_epi64(count_each(fours), 2));
    total = _mm256_add_epi64(total, _mm256_slli_epi64(count_each(twos), 1));
    total = _mm256_add_epi64(total, _mm256_add_epi64(count_each(ones), rest));
    uint64_t sums[4];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), total);
    return sums[0] + sums[1] + sums[2] + sums[3];
  }
};

// Products of 2-bit codes by tables ("four Russians"): for 8 rows and 32 strip columns a table holds, for
// each of the 256 sign patterns, the signed sum of the columns' values; a column's 8 high bits and 8 low bits
// then each cost one look-up and one addition for 8 x 32 products. Sums: 8 bits over 4 groups of rows (4 * 24
// < 128), 16 bits over kBlockWords words.
constexpr size_t kGroups = 4;
constexpr size_t kSteps = 8 / kGroups;  // of a word
constexpr size_t kBlockWords = 56;      // 56 * 64 rows * 9 < 2^15

struct Tables {
  alignas(32) int8_t sums[kGroups][256][kStrip];
};

// The strip's rows of the step-th part of word w.
void fill_tables(const uint64_t* const* strip_high, const uint64_t* const* strip_low, size_t w, size_t step,
                 Tables& tables) {
  alignas(32) uint8_t high[kGroups][kStrip], low[kGroups][kStrip];
  for (size_t c = 0; c < kStrip; ++c) {
    const uint32_t h = static_cast<uint32_t>(strip_high[c][w] >> (8 * kGroups * step));
    const uint32_t l = static_cast<uint32_t>(strip_low[c][w] >> (8 * kGroups * step));
    for (size_t g = 0; g < kGroups; ++g) {
      high[g][c] = static_cast<uint8_t>(h >> (8 * g));
      low[g][c] = static_cast<uint8_t>(l >> (8 * g));
    }
  }
  for (size_t g = 0; g < kGroups; ++g) {
    const __m256i h = _mm256_load_si256(reinterpret_cast<const __m256i*>(high[g]));
    const __m256i l = _mm256_load_si256(reinterpret_cast<const __m256i*>(low[g]));
    __m256i twice[8], all_minus = _mm256_setzero_si256();
    for (int k = 0; k < 8; ++k) {
      const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << k));
      const auto is_set = [&](__m256i v) { return _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit); };
      __m256i value = _mm256_set1_epi8(-3);
      value = _mm256_add_epi8(value, _mm256_and_si256(is_set(h), _mm256_set1_epi8(4)));
      value = _mm256_add_epi8(value, _mm256_and_si256(is_set(l), _mm256_set1_epi8(2)));
      all_minus = _mm256_sub_epi8(all_minus, value);
      twice[k] = _mm256_add_epi8(value, value);
    }
    __m256i* table = reinterpret_cast<__m256i*>(tables.sums[g]);
    _mm256_store_si256(table, all_minus);
    for (size_t k = 0; k < 8; ++k)  // patterns with bit k as their highest
      for (size_t p = 0; p < (size_t{1} << k); ++p)
        _mm256_store_si256(table + p + (size_t{1} << k),
                           _mm256_add_epi8(_mm256_load_si256(table + p), twice[k]));
  }
}

__m256i look_up(const Tables& tables, uint32_t bits) {
  __m256i sum = _mm256_load_si256(reinterpret_cast<const __m256i*>(tables.sums[0][bits & 255]));
  for (size_t g = 1; g < kGroups; ++g)
    sum = _mm256_add_epi8(
        sum, _mm256_load_si256(reinterpret_cast<const __m256i*>(tables.sums[g][bits >> (8 * g) & 255])));
  return sum;
}

// total (32 sums of 16 bits, in the order of order()) += 2 high + low.
void accumulate(__m256i high, __m256i low, __m256i* total) {
  const __m256i weights = _mm256_set1_epi16(0x0102);  // 2 for the first of each pair, 1 for the second
  const auto add = [&](__m256i pairs, __m256i* to) {
    _mm256_store_si256(to, _mm256_add_epi16(_mm256_load_si256(to), _mm256_maddubs_epi16(weights, pairs)));
  };
  add(_mm256_unpacklo_epi8(high, low), total);
  add(_mm256_unpackhi_epi8(high, low), total + 1);
}

// Which strip column the k-th 16-bit sum belongs to: AVX2 interleaves within each half of a vector.
constexpr size_t order(size_t k) {
  return k % 8 + (k / 8 % 2) * 16 + (k / 16) * 8;
}

void strip_products(const uint64_t* const* high, const uint64_t* const* low, size_t columns,
                    const uint64_t* const* strip_high, const uint64_t* const* strip_low, size_t words,
                    int64_t* out) {
  // Raw memory: std::vector's code, instantiated here, could be the one the linker keeps for all processors.
  auto* tables = static_cast<Tables*>(_mm_malloc(sizeof(Tables), 64));
  auto* totals = static_cast<__m256i*>(_mm_malloc(columns * 2 * sizeof(__m256i), 64));
  auto* planes =
      static_cast<uint32_t*>(_mm_malloc(kBlockWords * columns * 2 * kSteps * sizeof(uint32_t), 64));
  for (size_t k = 0; k < columns * kStrip; ++k) out[k] = 0;
  for (size_t first = 0; first < words; first += kBlockWords) {
    const size_t count = words - first < kBlockWords ? words - first : kBlockWords;
    for (size_t i = 0; i < columns; ++i)  // step by step, so that the loop below reads memory in order
      for (size_t step = 0; step < kSteps * count; ++step) {
        uint32_t* pair = &planes[2 * (step * columns + i)];
        pair[0] = static_cast<uint32_t>(high[i][first + step / kSteps] >> (8 * kGroups * (step % kSteps)));
        pair[1] = static_cast<uint32_t>(low[i][first + step / kSteps] >> (8 * kGroups * (step % kSteps)));
      }
    for (size_t k = 0; k < columns * 2; ++k) totals[k] = _mm256_setzero_si256();
    for (size_t step = 0; step < kSteps * count; ++step) {
      fill_tables(strip_high, strip_low, first + step / kSteps, step % kSteps, *tables);
      const uint32_t* pair = &planes[2 * step * columns];
      for (size_t i = 0; i < columns; ++i)
        accumulate(look_up(*tables, pair[2 * i]), look_up(*tables, pair[2 * i + 1]), totals + 2 * i);
    }
    for (size_t i = 0; i < columns; ++i) {
      alignas(32) int16_t sums[kStrip];
      _mm256_store_si256(reinterpret_cast<__m256i*>(sums), totals[2 * i]);
      _mm256_store_si256(reinterpret_cast<__m256i*>(sums) + 1, totals[2 * i + 1]);
      for (size_t k = 0; k < kStrip; ++k) out[i * kStrip + order(k)] += sums[k];
    }
  }
  _mm_free(planes);
  _mm_free(totals);
  _mm_free(tables);
}

constexpr Kernels with_strips(Kernels kernels) {
  kernels.strip_products = &strip_products;
  return kernels;
}

}  // namespace

const Kernels kAvx2Kernels = with_strips(make_kernels<Lanes>("avx2"));

}  // namespace trireme::stats
