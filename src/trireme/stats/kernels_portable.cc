// The slow reference, and the only version on processors other than x86-64.
#include <bit>

#include "trireme/stats/kernels_inl.h"

namespace trireme::stats {
namespace {

struct Word {
  static constexpr size_t kWords = 1;
  uint64_t bits;
  static Word load(const uint64_t* p) { return {*p}; }
  static Word fill(uint64_t value) { return {value}; }
  void store(uint64_t* p) const { *p = bits; }
  static Word multiply(Word a, Word b) { return {(a.bits & 0xffffffff) * (b.bits & 0xffffffff)}; }
  Word high() const { return {bits >> 32}; }
  Word operator^(Word o) const { return {bits ^ o.bits}; }
  Word operator&(Word o) const { return {bits & o.bits}; }
  Word operator|(Word o) const { return {bits | o.bits}; }

  template <typename At>
  static uint64_t count(size_t vectors, At at) {
    uint64_t total = 0;
    for (size_t v = 0; v < vectors; ++v) total += static_cast<uint64_t>(std::popcount(at(v).bits));
    return total;
  }
};

}  // namespace

const Kernels kPortableKernels = make_kernels<Word>("portable");

}  // namespace trireme::stats
