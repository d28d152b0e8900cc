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

// How a value becomes a code: floor(clip(x - centre, +-limit) / step + dither + half_levels) within 0 to top,
// where the dither is word0 - 1/2 or, triangular, word0 + word1 - 1, the words being taken as fractions of
// 2^32.
struct CodeRule {
  double centre = 0, limit = 0, step = 0, half_levels = 0;
  unsigned top = 0;
  bool triangular = false;
};

// Columns of a block of code_products.
inline constexpr size_t kCodeBlock = 192;

// Up to kCodeBlock columns of 2-bit codes, 2 high + low, as planes. The arrays have kCodeBlock pointers
// whatever `columns` says: the rest repeat one of the columns.
struct CodeBlock {
  const uint64_t* const* high;
  const uint64_t* const* low;
  size_t columns;
};

inline constexpr size_t kMostCodeWords = size_t{1} << 22;  // 9 * 64 * 2^22 < 2^32

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
  // Codes of `count` values, a multiple of 8, by a rule with top < 256. False, and no codes to be used, where
  // a value is NaN or infinite.
  bool (*codes)(const CodeRule& rule, const double* x, const uint32_t* word0, const uint32_t* word1,
                size_t count, uint8_t* out);
  // out[j * kCodeBlock + i] += sum over 64 * words rows of code_i code_j, i of `rows` and j of `columns`.
  // When both are one block (the same arrays), only i <= j are sure to be written. Places beyond the blocks'
  // columns may be written too. words <= kMostCodeWords. Null where triangular_count is the faster way.
  void (*code_products)(const CodeBlock& rows, const CodeBlock& columns, size_t words, uint32_t* out);
};

// The fastest this processor runs, chosen once.
const Kernels& kernels();
// All that this processor runs, slowest first: for tests and benches.
std::vector<const Kernels*> runnable_kernels();

extern const Kernels kPortableKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;  // AVX-512 F, BW, VBMI and VPOPCNTDQ
// code_products on AMX's integer tiles, which a process must ask the kernel for.
void amx_code_products(const CodeBlock& rows, const CodeBlock& columns, size_t words, uint32_t* out);

}  // namespace trireme::stats
