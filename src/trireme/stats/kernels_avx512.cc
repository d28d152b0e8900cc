// Compiled with -mavx512f -mavx512vpopcntdq.
#include <immintrin.h>

#include "trireme/stats/kernels_inl.h"

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

}  // namespace

const Kernels kAvx512Kernels = make_kernels<Lanes>("avx512-vpopcntdq");

}  // namespace trireme::stats
