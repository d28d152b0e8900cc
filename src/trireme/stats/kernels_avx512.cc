// Compiled with -mavx512f -mavx512bw -mavx512vbmi -mavx512vpopcntdq.
#include <immintrin.h>

#include "trireme/stats/kernels_inl.h"
#include "trireme/stats/products_inl.h"

namespace trireme::stats {
namespace {

struct Lanes {
  static constexpr size_t kWords = 8;
  __m512i bits;
  static Lanes load(const uint64_t* p) { return {_mm512_loadu_si512(p)}; }
  static Lanes fill(uint64_t value) { return {_mm512_set1_epi64(static_cast<long long>(value))}; }
  void store(uint64_t* p) const { _mm512_storeu_si512(p, bits); }
  static Lanes multiply(Lanes a, Lanes b) { return {_mm512_mul_epu32(a.bits, b.bits)}; }
  Lanes high() const { return {_mm512_srli_epi64(bits, 32)}; }
  Lanes operator^(Lanes o) const { return {_mm512_xor_si512(bits, o.bits)}; }
  Lanes operator&(Lanes o) const { return {_mm512_and_si512(bits, o.bits)}; }
  Lanes operator|(Lanes o) const { return {_mm512_or_si512(bits, o.bits)}; }

  template <typename At>
  static uint64_t count(size_t vectors, At at) {
    __m512i even = _mm512_setzero_si512(), odd = _mm512_setzero_si512();
    size_t v = 0;
    for (; v + 2 <= vectors; v += 2) {
      even = _mm512_add_epi64(even, _mm512_popcnt_epi64(at(v).bits));
      odd = _mm512_add_epi64(odd, _mm512_popcnt_epi64(at(v + 1).bits));
    }
    if (v < vectors) even = _mm512_add_epi64(even, _mm512_popcnt_epi64(at(v).bits));
    uint64_t sums[8];
    _mm512_storeu_si512(sums, _mm512_add_epi64(even, odd));
    return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
  }
};

// For each turn of 8 groups of three rows the bit at which a byte is to begin, so that the group's bits lie
// `shift` up.
struct Fields {
  long long turns[3] = {};
  constexpr explicit Fields(int shift) {
    for (int g = 0; g < 24; ++g)
      turns[g / 8] |= static_cast<long long>(static_cast<uint64_t>((3 * g - shift) & 63) << (8 * (g % 8)));
  }
};
constexpr Fields kLowFields(0), kHighFields(3);

// Byte 8 c + g goes to 8 g + c.
struct ByteTranspose {
  alignas(64) uint8_t from[64] = {};
  constexpr ByteTranspose() {
    for (size_t k = 0; k < 64; ++k) from[k] = static_cast<uint8_t>(k % 8 * 8 + k / 8);
  }
};
constexpr ByteTranspose kByteTranspose;

// Vectors of bytes for code_products: three rows a group, 64 tables of 64 bytes. A word is 21 groups and one
// of a row.
struct Bytes {
  static constexpr size_t kBytes = 64, kGroupRows = 3, kBlock = 8;
  static constexpr int kIndexShift = 2;
  static constexpr ProductTables<kGroupRows> kTables{};
  __m512i bytes;
  static Bytes zero() { return {_mm512_setzero_si512()}; }
  static Bytes load(const uint8_t* p) { return {_mm512_load_si512(p)}; }
  static Bytes table(size_t stored) { return {_mm512_load_si512(&kTables.sums[0][0] + 16 * stored)}; }
  static Bytes look_up(Bytes table, Bytes index) {
    return {_mm512_permutexvar_epi8(index.bytes, table.bytes)};
  }
  static Bytes add(Bytes a, Bytes b) {
    asm("vpaddb %1, %0, %0" : "+v"(a.bytes) : "v"(b.bytes));  // why: kernels_avx2.cc
    return a;
  }
  Bytes even() const { return {_mm512_and_si512(bytes, _mm512_set1_epi16(255))}; }
  Bytes odd() const { return {_mm512_srli_epi16(bytes, 8)}; }
  void add_to(uint16_t* p) const { _mm512_store_si512(p, _mm512_add_epi16(_mm512_load_si512(p), bytes)); }

  static constexpr size_t kWordGroups = 22;

  static __m512i words_of(const uint64_t* const* columns, size_t word) {
    uint64_t words[8];
    for (size_t c = 0; c < 8; ++c) words[c] = columns[c][word];
    return _mm512_loadu_si512(words);
  }
  // Eight groups from 8 * turn on of eight columns: byte 8 g + c is that of group g and column c. Groups
  // beyond the word's 22 come out as something; the last one has one row.
  static __m512i indices_of(__m512i high, __m512i low, size_t turn) {
    const __m512i low_bits = _mm512_set1_epi8(7);
    const __m512i last = _mm512_set1_epi64(0x3f3f093f3f3f3f3f);
    const __m512i chosen = _mm512_ternarylogic_epi64(
        low_bits, _mm512_multishift_epi64_epi8(_mm512_set1_epi64(kLowFields.turns[turn]), low),
        _mm512_multishift_epi64_epi8(_mm512_set1_epi64(kHighFields.turns[turn]), high),
        0xca);  // bits 0-2 and 3-5
    const __m512i used = _mm512_and_si512(chosen, turn < 2 ? _mm512_set1_epi8(63) : last);
    return _mm512_permutexvar_epi8(_mm512_load_si512(kByteTranspose.from), used);
  }
  // 8 x 8 elements of 64 bits.
  static void transpose(__m512i* r) {
    __m512i t[8];
    for (size_t k = 0; k < 8; k += 2) {
      t[k] = _mm512_unpacklo_epi64(r[k], r[k + 1]);
      t[k + 1] = _mm512_unpackhi_epi64(r[k], r[k + 1]);
    }
    for (size_t c = 0; c < 2; ++c) {  // t[2 k + c]: elements c, 2 + c, 4 + c, 6 + c of rows 2 k and 2 k + 1
      const __m512i a = _mm512_shuffle_i64x2(t[c], t[2 + c], 0x88),
                    b = _mm512_shuffle_i64x2(t[c], t[2 + c], 0xdd);
      const __m512i d = _mm512_shuffle_i64x2(t[4 + c], t[6 + c], 0x88),
                    e = _mm512_shuffle_i64x2(t[4 + c], t[6 + c], 0xdd);
      r[c] = _mm512_shuffle_i64x2(a, d, 0x88);
      r[4 + c] = _mm512_shuffle_i64x2(a, d, 0xdd);
      r[2 + c] = _mm512_shuffle_i64x2(b, e, 0x88);
      r[6 + c] = _mm512_shuffle_i64x2(b, e, 0xdd);
    }
  }

  template <typename Indices>
  static void index_rows(const CodeBlock& block, size_t first, size_t count, Indices& indices) {
    for (size_t column = 0; column < count; column += kBytes)
      for (size_t w = 0; w < kWordAlign; ++w) {
        __m512i high[8], low[8];
        for (size_t k = 0; k < 8; ++k) {
          high[k] = words_of(block.high + column + 8 * k, first + w);
          low[k] = words_of(block.low + column + 8 * k, first + w);
        }
        for (size_t turn = 0; turn < 3; ++turn) {
          __m512i rows[8];
          for (size_t k = 0; k < 8; ++k) rows[k] = indices_of(high[k], low[k], turn);
          transpose(rows);
          for (size_t g = 8 * turn; g < kWordGroups && g < 8 * turn + 8; ++g)
            _mm512_store_si512(&indices.rows[0][kWordGroups * w + g][column], rows[g % 8]);
        }
      }
  }
  template <typename Indices>
  static void index_columns(const CodeBlock& block, size_t first, size_t count, Indices& indices) {
    for (size_t column = 0; column < count; column += 8)
      for (size_t w = 0; w < kWordAlign; ++w) {
        const __m512i high = words_of(block.high + column, first + w),
                      low = words_of(block.low + column, first + w);
        for (size_t turn = 0; turn < 3; ++turn)  // six bits shifted by two stay in their byte
          _mm512_mask_storeu_epi64(indices.columns[column / kBlock][kWordGroups * w + 8 * turn],
                                   turn < 2 ? 0xff : 0x3f,
                                   _mm512_slli_epi16(indices_of(high, low, turn), kIndexShift));
      }
  }
};

constexpr Kernels with_products(Kernels kernels) {
  kernels.code_products = &CodeProducts<Bytes>::run;
  return kernels;
}

}  // namespace

const Kernels kAvx512Kernels = with_products(make_kernels<Lanes>("avx512"));

}  // namespace trireme::stats
