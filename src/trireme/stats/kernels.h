#pragma once
// The inner loops, in one version per instruction set. All versions return the same integers.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::stats {

// Columns are padded with zero words to this multiple, so no kernel has a tail.
inline constexpr size_t kWordAlign = 8;

// Over two columns with sign planes s, s' and a second plane m, m' each.
struct MaskedCount {
  uint64_t both = 0;    // popcount(m & m')
  uint64_t differ = 0;  // popcount(m & m' & (s ^ s'))
};

// For 2-bit codes with values +-1 (m = 0) and +-3 (m = 1), t = s ^ s':
//   (product + 9) / 2 = 5 [not t] + 3 [t ^ (m & m')] + 1 [t ^ (m | m')]
// which is three counts where the four products of bit planes would need four.
struct TriangularCount {
  uint64_t differ = 0;      // popcount(t)
  uint64_t differ_and = 0;  // popcount(t ^ (m & m'))
  uint64_t differ_or = 0;   // popcount(t ^ (m | m'))
};

// Columns of a strip of the table kernel.
inline constexpr size_t kStrip = 32;

// `words` is a multiple of kWordAlign; pointers need no alignment.
struct Kernels {
  const char* name;
  uint64_t (*xor_count)(const uint64_t* a, const uint64_t* b, size_t words);
  uint64_t (*and_count)(const uint64_t* a, const uint64_t* b, size_t words);
  MaskedCount (*masked_count)(const uint64_t* s, const uint64_t* m, const uint64_t* s2, const uint64_t* m2,
                              size_t words);
  TriangularCount (*triangular_count)(const uint64_t* s, const uint64_t* m, const uint64_t* s2,
                                      const uint64_t* m2, size_t words);
  // Philox4x32-10 for `count` consecutive rows of one column: out0[i], out1[i] are words 0 and 1 of the
  // counter {column, low(row), high(row), stream}. count is a multiple of 8.
  void (*dither_words)(uint64_t seed, uint32_t stream, uint32_t column, uint64_t first_row, size_t count,
                       uint32_t* out0, uint32_t* out1);
  // For 2-bit codes given by their planes (high, low), values A = 4 high + 2 low - 3: out[i * kStrip + c] =
  // sum over all 64 * words rows of A of column i times A of strip column c. Null where triangular_count is
  // the faster way.
  void (*strip_products)(const uint64_t* const* high, const uint64_t* const* low, size_t columns,
                         const uint64_t* const* strip_high, const uint64_t* const* strip_low, size_t words,
                         int64_t* out);
};

// The fastest this processor runs, chosen once.
const Kernels& kernels();
// All that this processor runs, slowest first: for tests and benches.
std::vector<const Kernels*> runnable_kernels();

extern const Kernels kPortableKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;  // AVX-512 F and VPOPCNTDQ

}  // namespace trireme::stats
