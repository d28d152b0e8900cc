#pragma once
// What the codecs compute with: one table of functions per instruction set, all giving the same bytes. The
// plain table (scalar.cc) is the reference that stays; the others are tested against it. All work on at most
// kChunk elements, which stay in the first-level cache between the passes over them.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/codec/kernels/element.h"

namespace trireme::codec::kernels {

constexpr size_t kChunk = 4096;
// Sums run in this many lanes (element i in lane i % kLanes), joined by halves: the same bits on every
// instruction set.
constexpr size_t kLanes = 32;

enum class Into : uint8_t { set, add };  // out = v, out += v

struct Kernels {
  const char* name;
  // The bits of the largest |x|, as an unsigned number: above kInfinity when there is a NaN. 0 for n = 0.
  uint32_t (*largest)(const float* x, size_t n);
  float (*magnitude_sum)(const float* x, size_t n);                  // sum of |x|
  float (*square_sum)(const float* x, size_t n, float scale);        // sum of (scale x)^2
  void (*range)(const float* x, size_t n, float* low, float* high);  // n >= 1, no NaN
  void (*sum)(const float* a, float* b, size_t n);                   // b += a
  uint32_t (*sum_and_largest)(const float* a, float* b, size_t n);   // b += a, then largest(b)
  float (*sum_and_magnitudes)(const float* a, float* b, size_t n);   // b += a, then magnitude_sum(b)
  // u = momentum u + g; v += u, or momentum u + g with `nesterov` (deep gradient compression).
  void (*velocity)(const float* g, float* u, float* v, size_t n, float momentum, bool nesterov);
  // Writes `first` + i for every i whose magnitude's bits are at least `least` (NaN and infinity always are);
  // `out` has room for n + 16. Returns how many.
  size_t (*select)(const float* x, size_t n, uint32_t least, uint32_t first, uint32_t* out);
  // Element i of the chunk is element `first` + i of the payload; first % kTile == 0. Codes of q.bits bits
  // lie little end first without gaps; the last byte's rest is 0.
  void (*quantise)(const Quantiser& q, const float* x, size_t n, float a, float b, uint64_t first,
                   uint8_t* codes);
  // As quantise, then x -= what the codes mean to dequantise.
  void (*quantise_with_feedback)(const Quantiser& q, float* x, size_t n, float a, float b, float s, float gap,
                                 uint64_t first, uint8_t* codes);
  void (*dequantise)(const Quantiser& q, const uint8_t* codes, size_t n, float s, float gap, uint64_t first,
                     float* out, Into into);
};

extern const Kernels kScalar;
const Kernels& fastest();                     // of this processor
std::vector<const Kernels*> all_supported();  // every vector table that this processor can run (tests)

inline size_t code_bytes(uint32_t bits, size_t n) {
  return (n * bits + 7) / 8;
}

}  // namespace trireme::codec::kernels
