// Compiled with -mavx2 -mpopcnt. AVX2 has no popcount of its own: carry-save adders (Harley and Seal; Mula, Kurz and
// Lemire, "Faster population counts using AVX2 instructions", 2018) leave one table look-up per eight vectors.
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
    const __m256i table = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2,
                                           3, 2, 3, 3, 4);
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

}  // namespace

const Kernels kAvx2Kernels = make_kernels<Lanes>("avx2");

}  // namespace trireme::stats
