#pragma once
// Philox4x32-10: a counter-based generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC'11). A value is a function of (key, counter) alone, so any split over threads, ranks or restarts gives
// the same numbers.
#include <array>
#include <cstdint>
#include <string_view>

namespace trireme {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key);

// 64 well-mixed bits of a tuple: seeds for streams (seed, epoch), (seed, step, rank), …
uint64_t mix(uint64_t seed, uint64_t a, uint64_t b = 0);
// A text as 64 well-mixed bits: to compare texts between ranks, not against forgery.
uint64_t hash_text(std::string_view text);

// In [0, 1): the top 24 bits of a word.
inline float uniform_float(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1.0p-24f;
}

// A sequential reader of one stream of Philox words.
class PhiloxStream {
 public:
  PhiloxStream(uint64_t seed, uint64_t stream);
  uint32_t next_u32();
  uint64_t next_u64();
  double next_double();  // [0, 1), 53 bits

 private:
  PhiloxKey key_;
  PhiloxCounter counter_;
  PhiloxCounter block_{};
  unsigned used_ = 4;
};

// A bijection of {0 … size-1} that is computed, not stored: a keyed Feistel network with cycle walking, so
// that any position of any epoch is known at once. size >= 1.
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t key);
  uint64_t operator()(uint64_t index) const;
  uint64_t size() const { return size_; }

 private:
  uint64_t size_;
  PhiloxKey key_;
  unsigned half_bits_;
};

}  // namespace trireme
