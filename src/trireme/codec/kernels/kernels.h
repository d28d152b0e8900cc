#pragma once
// What the codecs compute with: one table of functions per instruction set, all giving the same bytes. The
// plain table (scalar.cc) is the reference that stays; the others are tested against it. All work on at most
// kChunk elements, which stay in the first-level cache between the passes over them.
#include <cstddef>
#include <cstdint>
#include <span>

#include "trireme/codec/kernels/element.h"

namespace trireme::codec::kernels {

constexpr size_t kChunk = 4096;
// Sums run in this many lanes (element i in lane i % kLanes), joined by halves: the same bits on every
// instruction set.
constexpr size_t kLanes = 32;

enum class Into : uint8_t { set, add, subtract };  // out = v, out += v, out -= v

struct Kernels {
  const char* name;
  // The bits of the largest |x|, as an unsigned number: above kInfinity when there is a NaN. 0 for n = 0.
  uint32_t (*largest)(const float* x, size_t n);
  float (*magnitude_sum)(const float* x, size_t n);                  // sum of |x|
  float (*square_sum)(const float* x, size_t n, float scale);        // sum of (scale x)^2
  void (*range)(const float* x, size_t n, float* low, float* high);  // n >= 1, no NaN
  void (*sum)(const float* a, float* b, size_t n);                   // b += a
  // Element i of the chunk is element `first` + i of the payload; first % kTile == 0. Codes of q.bits bits
  // lie little end first without gaps; the last byte's rest is 0.
  void (*quantise)(const Quantiser& q, const float* x, size_t n, float a, float b, uint64_t first,
                   uint8_t* codes);
  void (*dequantise)(const Quantiser& q, const uint8_t* codes, size_t n, float s, float gap, uint64_t first,
                     float* out, Into into);
};

extern const Kernels kScalar;

inline size_t code_bytes(uint32_t bits, size_t n) {
  return (n * bits + 7) / 8;
}

}  // namespace trireme::codec::kernels
