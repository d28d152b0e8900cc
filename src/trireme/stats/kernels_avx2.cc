// Compiled with -mavx2 -mpopcnt. AVX2 has no popcount of its own: carry-save adders (Harley and Seal; Mula,
// Kurz and Lemire, "Faster population counts using AVX2 instructions", 2018) leave one table look-up per
// eight vectors.
#include <immintrin.h>

#include "trireme/stats/kernels_inl.h"
#include "trireme/stats/products_inl.h"

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

// Vectors of bytes for code_products: two rows a group, 16 tables of 16 bytes.
struct Bytes {
  static constexpr size_t kBytes = 32, kGroupRows = 2, kBlock = 4;
  static constexpr int kIndexShift =
      1;  // a table of 16 bytes is then 8 stored indices away: an addressing mode
  static constexpr ProductTables<kGroupRows> kTables{};
  __m256i bytes;
  static Bytes zero() { return {_mm256_setzero_si256()}; }
  static Bytes load(const uint8_t* p) { return {_mm256_load_si256(reinterpret_cast<const __m256i*>(p))}; }
  static Bytes table(size_t stored) {
    return {_mm256_broadcastsi128_si256(
        _mm_load_si128(reinterpret_cast<const __m128i*>(&kTables.sums[0][0] + 8 * stored)))};
  }
  static Bytes look_up(Bytes table, Bytes index) { return {_mm256_shuffle_epi8(table.bytes, index.bytes)}; }
  // In assembler, since gcc 12 begins all look-ups of a group before the additions, runs out of registers and
  // spills.
  static Bytes add(Bytes a, Bytes b) {
    asm("vpaddb %1, %0, %0" : "+x"(a.bytes) : "x"(b.bytes));
    return a;
  }
  Bytes even() const { return {_mm256_and_si256(bytes, _mm256_set1_epi16(255))}; }
  Bytes odd() const { return {_mm256_srli_epi16(bytes, 8)}; }
  void add_to(uint16_t* p) const {
    auto* to = reinterpret_cast<__m256i*>(p);
    _mm256_store_si256(to, _mm256_add_epi16(_mm256_load_si256(to), bytes));
  }

  // out[b]: byte b (8 rows) of word `word` of 16 columns.
  static void transpose_bytes(const uint64_t* const* columns, size_t word, __m128i* out) {
    __m128i a[8], b[8];
    const auto at = [&](size_t c) {
      return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(columns[c] + word));
    };
    for (size_t c = 0; c < 8; ++c) a[c] = _mm_unpacklo_epi8(at(c), at(c + 8));
    for (size_t c = 0; c < 4; ++c) {
      b[c] = _mm_unpacklo_epi8(a[c], a[c + 4]);
      b[c + 4] = _mm_unpackhi_epi8(a[c], a[c + 4]);
    }
    for (size_t half = 0; half < 8; half += 4)
      for (size_t c = 0; c < 2; ++c) {
        a[half + c] = _mm_unpacklo_epi8(b[half + c], b[half + c + 2]);
        a[half + c + 2] = _mm_unpackhi_epi8(b[half + c], b[half + c + 2]);
      }
    for (size_t pair = 0; pair < 4; ++pair) {
      out[2 * pair] = _mm_unpacklo_epi8(a[2 * pair], a[2 * pair + 1]);
      out[2 * pair + 1] = _mm_unpackhi_epi8(a[2 * pair], a[2 * pair + 1]);
    }
  }

  // out[k]: the indices of rows 8 b + 2 k and 8 b + 2 k + 1 of 16 columns.
  static void indices_of(__m128i high, __m128i low, __m128i* out) {
    const __m128i low_mask = _mm_set1_epi8(3),
                  high_mask = _mm_set1_epi8(12);  // drop the neighbouring byte's bits
    const auto join = [&](__m128i l, __m128i h) {
      return _mm_or_si128(_mm_and_si128(l, low_mask), _mm_and_si128(h, high_mask));
    };
    out[0] = join(low, _mm_slli_epi16(high, 2));
    out[1] = join(_mm_srli_epi16(low, 2), high);
    out[2] = join(_mm_srli_epi16(low, 4), _mm_srli_epi16(high, 2));
    out[3] = join(_mm_srli_epi16(low, 6), _mm_srli_epi16(high, 4));
  }

  // put(group, column, out): four groups from `group` on of the 16 columns from `column` on.
  template <typename Put>
  static void index_words(const CodeBlock& block, size_t first, size_t count, Put put) {
    for (size_t column = 0; column < count; column += 16)
      for (size_t w = 0; w < kWordAlign; ++w) {
        __m128i high[8], low[8], out[4];
        transpose_bytes(block.high + column, first + w, high);
        transpose_bytes(block.low + column, first + w, low);
        for (size_t b = 0; b < 8; ++b) {
          indices_of(high[b], low[b], out);
          put(32 * w + 4 * b, column, out);
        }
      }
  }
  template <typename Indices>
  static void index_rows(const CodeBlock& block, size_t first, size_t count, Indices& indices) {
    index_words(block, first, count, [&](size_t group, size_t column, const __m128i* out) {
      for (size_t k = 0; k < 4; ++k)
        _mm_store_si128(reinterpret_cast<__m128i*>(&indices.rows[column / 96][group + k][column % 96]),
                        out[k]);
    });
  }
  template <typename Indices>
  static void index_columns(const CodeBlock& block, size_t first, size_t count, Indices& indices) {
    index_words(block, first, count, [&](size_t group, size_t column, const __m128i* out) {
      const __m128i a = _mm_unpacklo_epi32(out[0], out[1]), b = _mm_unpacklo_epi32(out[2], out[3]);
      const __m128i c = _mm_unpackhi_epi32(out[0], out[1]), d = _mm_unpackhi_epi32(out[2], out[3]);
      const __m128i blocks[4] = {_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b), _mm_unpacklo_epi64(c, d),
                                 _mm_unpackhi_epi64(c, d)};  // four columns by four groups each
      for (size_t k = 0; k < 4; ++k)
        _mm_store_si128(
            reinterpret_cast<__m128i*>(indices.columns[column / kBlock + k][group]),
            _mm_slli_epi16(blocks[k], kIndexShift));  // indices have four bits: none moves to the next byte
    });
  }
};

constexpr Kernels with_products(Kernels kernels) {
  kernels.code_products = &CodeProducts<Bytes>::run;
  return kernels;
}

}  // namespace

const Kernels kAvx2Kernels = with_products(make_kernels<Lanes>("avx2"));

}  // namespace trireme::stats
