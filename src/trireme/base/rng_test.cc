#include "trireme/base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

namespace trireme {
namespace {

// The known answers that Random123 ships for philox4x32-10.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32_10({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, StreamReadsBlocksInOrder) {
  PhiloxStream stream(0x1122334455667788, 5);
  for (uint32_t block = 0; block < 3; ++block) {
    const auto words = philox4x32_10({block, 0, 5, 0}, {0x55667788, 0x11223344});
    for (const uint32_t word : words) EXPECT_EQ(stream.next_u32(), word);
  }
}

TEST(Philox, StreamsOfDifferentSeedsAndNumbersDiffer) {
  std::set<uint64_t> first;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (uint64_t number = 0; number < 10; ++number) first.insert(PhiloxStream(seed, number).next_u64());
  }
  EXPECT_EQ(first.size(), 100u);
}

TEST(Philox, DoublesAreUniformOnTheUnitInterval) {
  PhiloxStream stream(3, 0);
  constexpr int n = 20'000;
  double sum = 0, square = 0;
  for (int i = 0; i < n; ++i) {
    const double x = stream.next_double();
    ASSERT_TRUE(x >= 0 && x < 1);
    sum += x;
    square += x * x;
  }
  // Five standard errors of the mean of x and of x^2.
  EXPECT_NEAR(sum / n, 0.5, 5 * std::sqrt(1. / 12 / n));
  EXPECT_NEAR(square / n, 1. / 3, 5 * std::sqrt(4. / 45 / n));
  EXPECT_LT(uniform_float(0xffffffff), 1.0f);
  EXPECT_EQ(uniform_float(0), 0.0f);
}

TEST(Mix, DependsOnEveryArgument) {
  const std::set<uint64_t> all{mix(1, 2, 3), mix(0, 2, 3), mix(1, 0, 3),
                               mix(1, 2, 0), mix(2, 1, 3), mix(1, 3, 2)};
  EXPECT_EQ(all.size(), 6u);
  EXPECT_EQ(mix(1, 2), mix(1, 2, 0));
}

TEST(Permutation, IsABijectionOfEverySize) {
  for (uint64_t size = 1; size <= 300; ++size) {
    for (uint64_t key : {0, 1, 77}) {
      const Permutation permutation(size, key);
      std::vector<bool> seen(size, false);
      for (uint64_t i = 0; i < size; ++i) {
        const uint64_t to = permutation(i);
        ASSERT_LT(to, size);
        ASSERT_FALSE(seen[to]) << "size " << size << " key " << key;
        seen[to] = true;
      }
    }
  }
}

TEST(Permutation, IsABijectionOfALargeOddSize) {
  constexpr uint64_t size = 100'003;
  const Permutation permutation(size, 9);
  std::vector<uint64_t> image(size);
  for (uint64_t i = 0; i < size; ++i) image[i] = permutation(i);
  std::sort(image.begin(), image.end());
  for (uint64_t i = 0; i < size; ++i) ASSERT_EQ(image[i], i);
}

TEST(HashText, TellsTextsApart) {
  std::set<uint64_t> hashes;
  for (const char* text : {"", "a", "b", "ab", "ba", "aa", "aaa"}) hashes.insert(hash_text(text));
  EXPECT_EQ(hashes.size(), 7U);
  EXPECT_EQ(hash_text("job"), hash_text(std::string("job")));
}

TEST(Permutation, KeysGiveUnrelatedOrders) {
  constexpr uint64_t size = 4096;
  const Permutation a(size, 1), b(size, 2);
  int equal = 0, fixed = 0;
  for (uint64_t i = 0; i < size; ++i) {
    equal += a(i) == b(i);
    fixed += a(i) == i;
  }
  // Both counts are Poisson with mean 1 for random permutations; 12 has a chance below 1e-9.
  EXPECT_LT(equal, 12);
  EXPECT_LT(fixed, 12);
}

}  // namespace
}  // namespace trireme
