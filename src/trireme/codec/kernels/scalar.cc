// The reference: one element at a time, in the order in which the arithmetic is described.
#include <algorithm>
#include <cstring>

#include "trireme/codec/kernels/kernels.h"

namespace trireme::codec::kernels {
namespace {

uint32_t largest(const float* x, size_t n) {
  uint32_t most = 0;
  for (size_t i = 0; i < n; ++i) most = std::max(most, bits_of(x[i]) & kMagnitude);
  return most;
}

float joined(float* lanes) {
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

float magnitude_sum(const float* x, size_t n) {
  float lanes[kLanes] = {};
  for (size_t i = 0; i < n; ++i) lanes[i % kLanes] += magnitude(x[i]);
  return joined(lanes);
}

float square_sum(const float* x, size_t n, float scale) {
  float lanes[kLanes] = {};
  for (size_t i = 0; i < n; ++i) {
    const float v = x[i] * scale;
    lanes[i % kLanes] += v * v;
  }
  return joined(lanes);
}

void range(const float* x, size_t n, float* low, float* high) {
  *low = *high = x[0];
  for (size_t i = 1; i < n; ++i) {
    *low = std::min(*low, x[i]);
    *high = std::max(*high, x[i]);
  }
}

void sum(const float* a, float* b, size_t n) {
  for (size_t i = 0; i < n; ++i) b[i] += a[i];
}

uint32_t sum_and_largest(const float* a, float* b, size_t n) {
  sum(a, b, n);
  return largest(b, n);
}

float sum_and_magnitudes(const float* a, float* b, size_t n) {
  sum(a, b, n);
  return magnitude_sum(b, n);
}

void velocity(const float* g, float* u, float* v, size_t n, float momentum, bool nesterov) {
  for (size_t i = 0; i < n; ++i) {
    u[i] = momentum * u[i] + g[i];
    v[i] += nesterov ? momentum * u[i] + g[i] : u[i];
  }
}

size_t select(const float* x, size_t n, uint32_t least, uint32_t first, uint32_t* out) {
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    if ((bits_of(x[i]) & kMagnitude) >= least) out[count++] = first + static_cast<uint32_t>(i);
  }
  return count;
}

// Codes of any width up to 16 bits, across byte borders where need be.
void put_code(uint8_t* codes, size_t index, uint32_t bits, uint32_t code) {
  const size_t at = index * bits;
  for (uint32_t k = 0; k < bits; ++k) {
    if (code >> k & 1) codes[(at + k) / 8] |= static_cast<uint8_t>(1u << (at + k) % 8);
  }
}
uint32_t get_code(const uint8_t* codes, size_t index, uint32_t bits) {
  const size_t at = index * bits;
  uint32_t code = 0;
  for (uint32_t k = 0; k < bits; ++k)
    code |= static_cast<uint32_t>(codes[(at + k) / 8] >> (at + k) % 8 & 1) << k;
  return code;
}

void quantise_all(const Quantiser& q, const float* x, size_t n, float a, float b, uint64_t first,
                  uint8_t* codes) {
  std::memset(codes, 0, code_bytes(q.bits, n));
  for (size_t i = 0; i < n; ++i) {
    const float u = q.needs_random ? uniform(q.random, first + i) : 0;
    put_code(codes, i, q.bits, quantise(q, x[i], a, b, u));
  }
}

void quantise_with_feedback(const Quantiser& q, float* x, size_t n, float a, float b, float s, float gap,
                            uint64_t first, uint8_t* codes) {
  quantise_all(q, x, n, a, b, first, codes);
  for (size_t i = 0; i < n; ++i) {
    const float u = q.subtractive ? uniform(q.random, first + i) : 0;
    x[i] -= dequantise(q, get_code(codes, i, q.bits), s, gap, u);
  }
}

void dequantise_all(const Quantiser& q, const uint8_t* codes, size_t n, float s, float gap, uint64_t first,
                    float* out, Into into) {
  for (size_t i = 0; i < n; ++i) {
    const float u = q.subtractive ? uniform(q.random, first + i) : 0;
    const float value = dequantise(q, get_code(codes, i, q.bits), s, gap, u);
    out[i] = into == Into::set ? value : out[i] + value;
  }
}

}  // namespace

const Kernels kScalar{"scalar",      largest, magnitude_sum,   square_sum,
                      range,         sum,     sum_and_largest, sum_and_magnitudes,
                      velocity,      select,  quantise_all,    quantise_with_feedback,
                      dequantise_all};

}  // namespace trireme::codec::kernels
