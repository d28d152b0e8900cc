#include "trireme/base/rng.h"

#include <bit>

namespace trireme {

PhiloxCounter philox4x32_10(PhiloxCounter c, PhiloxKey k) {
  constexpr uint32_t m0 = 0xD2511F53, m1 = 0xCD9E8D57, w0 = 0x9E3779B9, w1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{m0} * c[0];
    const uint64_t p1 = uint64_t{m1} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k = {k[0] + w0, k[1] + w1};
  }
  return c;
}

namespace {
PhiloxKey key_of(uint64_t seed) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
}
}  // namespace

uint64_t mix(uint64_t seed, uint64_t a, uint64_t b) {
  const auto r = philox4x32_10({static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32),
                                static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32)},
                               key_of(seed));
  return r[0] | uint64_t{r[1]} << 32;
}

uint64_t hash_text(std::string_view text) {
  uint64_t hash = text.size();
  for (const char c : text) hash = mix(hash, static_cast<unsigned char>(c));
  return hash;
}

PhiloxStream::PhiloxStream(uint64_t seed, uint64_t stream)
    : key_(key_of(seed)),
      counter_{0, 0, static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)} {}

uint32_t PhiloxStream::next_u32() {
  if (used_ == 4) {
    block_ = philox4x32_10(counter_, key_);
    if (++counter_[0] == 0) ++counter_[1];
    used_ = 0;
  }
  return block_[used_++];
}

uint64_t PhiloxStream::next_u64() {
  const uint64_t low = next_u32();
  return low | uint64_t{next_u32()} << 32;
}

double PhiloxStream::next_double() {
  return static_cast<double>(next_u64() >> 11) * 0x1.0p-53;
}

Permutation::Permutation(uint64_t size, uint64_t key) : size_(size), key_(key_of(key)) {
  const unsigned bits = size <= 1 ? 1 : std::bit_width(size - 1);
  half_bits_ = (bits + 1) / 2;
}

uint64_t Permutation::operator()(uint64_t index) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = index >> half_bits_, right = index & mask;
    for (uint32_t round = 0; round < 6; ++round) {
      const auto f = philox4x32_10(
          {static_cast<uint32_t>(right), static_cast<uint32_t>(right >> 32), round, 0x7065726d /* "perm" */},
          key_);
      const uint64_t next = left ^ ((f[0] | uint64_t{f[1]} << 32) & mask);
      left = right;
      right = next;
    }
    index = left << half_bits_ | right;
  } while (index >= size_);  // cycle walking: the domain is less than 4 x size, so few turns
  return index;
}

}  // namespace trireme
