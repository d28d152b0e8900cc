#include "trireme/stats/kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "trireme/base/rng.h"

namespace trireme::stats {
namespace {

std::vector<uint64_t> random_words(size_t count, uint64_t stream) {
  PhiloxStream source(11, stream);
  std::vector<uint64_t> words(count);
  for (auto& word : words) word = source.next_u64();
  return words;
}

TEST(Kernels, EveryVersionCountsAsTheDefinitionAtEveryLength) {
  // One word more than used, read from the second on: kernels may not need alignment.
  for (const Kernels* k : runnable_kernels())
    for (size_t words : {0, 8, 16, 24, 32, 40, 64, 104, 256, 520}) {
      const auto s = random_words(words + 1, 1), m = random_words(words + 1, 2),
                 s2 = random_words(words + 1, 3), m2 = random_words(words + 1, 4);
      uint64_t differ = 0, both = 0, masked = 0, differ_and = 0, differ_or = 0;
      for (size_t w = 1; w <= words; ++w) {
        const uint64_t t = s[w] ^ s2[w];
        differ += std::popcount(t);
        both += std::popcount(m[w] & m2[w]);
        masked += std::popcount(m[w] & m2[w] & t);
        differ_and += std::popcount(t ^ (m[w] & m2[w]));
        differ_or += std::popcount(t ^ (m[w] | m2[w]));
      }
      SCOPED_TRACE(std::string(k->name) + " " + std::to_string(words));
      EXPECT_EQ(k->xor_count(&s[1], &s2[1], words), differ);
      EXPECT_EQ(k->and_count(&m[1], &m2[1], words), both);
      const MaskedCount mc = k->masked_count(&s[1], &m[1], &s2[1], &m2[1], words);
      EXPECT_EQ(mc.both, both);
      EXPECT_EQ(mc.differ, masked);
      const TriangularCount tc = k->triangular_count(&s[1], &m[1], &s2[1], &m2[1], words);
      EXPECT_EQ(tc.differ, differ);
      EXPECT_EQ(tc.differ_and, differ_and);
      EXPECT_EQ(tc.differ_or, differ_or);
    }
}

TEST(Kernels, AllOnesDoNotOverflowTheCarrySaveCounters) {
  const std::vector<uint64_t> ones(4096, ~uint64_t{0}), zeros(4096, 0);
  for (const Kernels* k : runnable_kernels())
    EXPECT_EQ(k->xor_count(ones.data(), zeros.data(), 4096), 4096u * 64) << k->name;
}

// Columns of random 2-bit codes with their pointers as code_products takes them.
struct Codes {
  std::vector<std::vector<uint64_t>> high, low;
  std::vector<const uint64_t*> high_at, low_at;
  Codes(size_t columns, size_t words, uint64_t stream) {
    for (size_t c = 0; c < columns; ++c) {
      // The first column is all ones: the largest sums there are.
      high.push_back(c > 0 ? random_words(words, stream + 2 * c)
                           : std::vector<uint64_t>(words, ~uint64_t{0}));
      low.push_back(c > 0 ? random_words(words, stream + 2 * c + 1)
                          : std::vector<uint64_t>(words, ~uint64_t{0}));
    }
    for (size_t c = 0; c < kCodeBlock; ++c) {
      high_at.push_back(high[std::min(c, columns - 1)].data());
      low_at.push_back(low[std::min(c, columns - 1)].data());
    }
  }
  CodeBlock block() const { return {high_at.data(), low_at.data(), high.size()}; }
  uint64_t product(size_t i, const Codes& other, size_t j) const {
    uint64_t sum = 0;
    for (size_t w = 0; w < high[i].size(); ++w)
      sum += 4 * std::popcount(high[i][w] & other.high[j][w]) +
             2 * std::popcount(high[i][w] & other.low[j][w]) +
             2 * std::popcount(low[i][w] & other.high[j][w]) + std::popcount(low[i][w] & other.low[j][w]);
    return sum;
  }
};

TEST(Kernels, CodeProductsAreThoseOfTheDefinitionAtEveryWidth) {
  const std::vector<std::pair<size_t, size_t>> shapes{{1, 1},   {5, 33}, {32, 64},
                                                      {65, 31}, {97, 8}, {192, 192}};
  for (const Kernels* k : runnable_kernels()) {
    if (k->code_products == nullptr) continue;
    for (size_t words : {8, 16, 24, 72})
      for (const auto& [rows, columns] : shapes) {
        const Codes a(rows, words, 100), b(columns, words, 1000);
        std::vector<uint32_t> out(kCodeBlock * kCodeBlock, 7);
        k->code_products(a.block(), b.block(), words, out.data());
        for (size_t i = 0; i < rows; ++i)
          for (size_t j = 0; j < columns; ++j)
            ASSERT_EQ(out[j * kCodeBlock + i], 7 + a.product(i, b, j))
                << k->name << " " << words << ": " << i << ", " << j;
        std::fill(out.begin(), out.end(), 0);
        k->code_products(a.block(), a.block(), words, out.data());
        for (size_t i = 0; i < rows; ++i)
          for (size_t j = i; j < rows; ++j)
            ASSERT_EQ(out[j * kCodeBlock + i], a.product(i, a, j))
                << k->name << " " << words << ", same: " << i << ", " << j;
      }
  }
}

TEST(Kernels, CodesAreTheSameOnAllAndRefuseWhatIsNotFinite) {
  const auto words = random_words(64, 5), more = random_words(64, 6);
  std::vector<uint32_t> w0, w1;
  std::vector<double> x;
  for (size_t i = 0; i < 64; ++i) {
    w0.push_back(static_cast<uint32_t>(words[i]));
    w1.push_back(static_cast<uint32_t>(more[i]));
    x.push_back((static_cast<double>(words[i] >> 32) * 0x1p-32 - 0.5) * 5);
  }
  w0[0] = 0, w0[1] = 0xffffffff, w0[2] = 0x80000000, w0[3] = 0x7fffffff;
  x[4] = 2.5, x[5] = -2.5, x[6] = 0, x[7] = -0.0;
  for (const bool triangular : {false, true})
    for (const unsigned bits : {1, 2, 8}) {
      const double half = 1u << (bits - 1);
      const CodeRule rule{0.1, 2, 2 / half, half, (1u << bits) - 1, triangular};
      std::vector<uint8_t> expected(64);
      ASSERT_TRUE(kPortableKernels.codes(rule, x.data(), w0.data(), w1.data(), 64, expected.data()));
      for (const Kernels* k : runnable_kernels())
        for (size_t count : {8, 24, 64}) {
          std::vector<uint8_t> got(64, 99);
          EXPECT_TRUE(k->codes(rule, x.data(), w0.data(), w1.data(), count, got.data()));
          EXPECT_TRUE(
              std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(count), expected.begin()))
              << k->name;
          std::vector<double> broken = x;
          for (double bad : std::initializer_list<double>{std::nan(""), INFINITY, -INFINITY}) {
            broken[count - 1] = bad;
            EXPECT_FALSE(k->codes(rule, broken.data(), w0.data(), w1.data(), count, got.data())) << k->name;
          }
        }
    }
}

TEST(Kernels, DitherWordsArePhilox) {
  constexpr uint64_t seed = 0x123456789abcdef0;
  const uint64_t first_row = 0xfffffffc;  // crosses 32 bits
  for (const Kernels* k : runnable_kernels()) {
    std::vector<uint32_t> w0(64), w1(64);
    k->dither_words(seed, 7, 5, first_row, 64, w0.data(), w1.data());
    for (uint64_t i = 0; i < 64; ++i) {
      const uint64_t row = first_row + i;
      const auto expected =
          philox4x32_10({5, static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32), 7},
                        {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
      EXPECT_EQ(w0[i], expected[0]) << k->name << " row " << i;
      EXPECT_EQ(w1[i], expected[1]) << k->name << " row " << i;
    }
  }
}

}  // namespace
}  // namespace trireme::stats
