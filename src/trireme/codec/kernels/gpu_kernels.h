#pragma once
// The block codecs' kernels for a GPU, written once: NVRTC compiles this text for CUDA, and a small host shim
// compiles it for the tests, where phases run lane after lane. Raw pointers, no torch. Written and checked
// against the reference on the CPU; it has never run on a GPU.
//
// A phase is what all 32 lanes of a warp do between two barriers. kLanes == 32, so a warp sums in the
// reference's order.
#include "trireme/codec/kernels/element.h"

#if defined(__CUDACC_RTC__)
#define TRIREME_GPU_KERNEL extern "C" __global__ void
#define TRIREME_SHARED __shared__
#define TRIREME_PHASE(lane) \
  __syncthreads();          \
  for (uint32_t lane = threadIdx.x, once = 1; once; once = 0)
#define TRIREME_BLOCK_INDEX ((uint64_t)blockIdx.x)
#define TRIREME_BLOCK_PARAMETER
#define TRIREME_SQRT(x) sqrt(x)
#else
#include <cmath>
#define TRIREME_SQRT(x) std::sqrt(x)
#define TRIREME_GPU_KERNEL inline void
#define TRIREME_SHARED
#define TRIREME_PHASE(lane) for (uint32_t lane = 0; lane < 32; ++lane)
#define TRIREME_BLOCK_INDEX trireme_block
#define TRIREME_BLOCK_PARAMETER , uint64_t trireme_block
#endif

namespace trireme::codec::kernels {

// How a block's numbers follow from its elements.
enum Measure {
  kNoNumbers,
  kMeanMagnitude,
  kLargestOver,  // largest magnitude / parameter
  kLargest,
  kRootMeanSquare,  // times parameter
  kNorm
};

struct GpuScheme {
  Quantiser quantiser;
  Measure measure;
  float parameter;
  uint32_t block;     // elements that share numbers, a multiple of kTile up to 4096
  uint32_t feedback;  // 1: x is the residual, to which `in` is added first
};

// One warp per block: residual += in, and the block's numbers: wire[block], ab[2 block], ab[2 block + 1]. An
// element that is not finite makes the number so.
TRIREME_GPU_KERNEL trireme_measure(GpuScheme scheme, const float* in, float* x, uint64_t n, float* wire,
                                   float* ab TRIREME_BLOCK_PARAMETER) {
  TRIREME_SHARED float sums[32];
  TRIREME_SHARED uint32_t most[32];
  const uint64_t block = TRIREME_BLOCK_INDEX, begin = block * scheme.block;
  const uint64_t end = begin + scheme.block < n ? begin + scheme.block : n;
  TRIREME_PHASE(lane) {
    float sum = 0;
    uint32_t largest = 0;
    for (uint64_t i = begin + lane; i < end; i += 32) {
      if (scheme.feedback != 0) x[i] = x[i] + in[i];
      const float size = magnitude(x[i]);
      sum = sum + size;
      largest = bits_of(size) > largest ? bits_of(size) : largest;
    }
    sums[lane] = sum;
    most[lane] = largest;
  }
  for (uint32_t half = 16; half > 0; half /= 2) {
    TRIREME_PHASE(lane) {
      if (lane < half) {
        sums[lane] = sums[lane] + sums[lane + half];
        most[lane] = most[lane] > most[lane + half] ? most[lane] : most[lane + half];
      }
    }
  }
  // Squares at a scale at which they neither overflow nor vanish, as norm() on the CPU.
  int32_t exponent = (int32_t)(most[0] >> 23) - 127;
  exponent = exponent < -126 ? -126 : exponent > 126 ? 126 : exponent;
  if (scheme.measure == kRootMeanSquare || scheme.measure == kNorm) {
    const float scale = float_of((uint32_t)(127 - exponent) << 23);
    TRIREME_PHASE(lane) {
      float sum = 0;
      for (uint64_t i = begin + lane; i < end; i += 32) {
        const float v = x[i] * scale;
        sum = sum + v * v;
      }
      sums[lane] = sum;
    }
    for (uint32_t half = 16; half > 0; half /= 2) {
      TRIREME_PHASE(lane) {
        if (lane < half) sums[lane] = sums[lane] + sums[lane + half];
      }
    }
  }
  TRIREME_PHASE(lane) {
    if (lane == 0) {
      const float largest = float_of(most[0]), factor = scheme.parameter / largest;
      const bool vanishes = most[0] == 0 || bits_of(factor) == kInfinity;
      const double divisor = scheme.measure == kNorm ? 1.0 : (double)(end - begin);
      const double length =
          TRIREME_SQRT((double)sums[0] / divisor) * (double)float_of((uint32_t)(127 + exponent) << 23);
      float number = 0, a = 0;
      if (scheme.measure == kMeanMagnitude) number = sums[0] / (float)(end - begin);
      if (scheme.measure == kLargestOver && !vanishes) number = largest / scheme.parameter, a = factor;
      if (scheme.measure == kLargest) number = a = largest;
      if (scheme.measure == kRootMeanSquare && most[0] != 0) number = a = scheme.parameter * (float)length;
      if (scheme.measure == kNorm && most[0] != 0) {
        const float reach = (float)length, steps = scheme.quantiser.levels / reach;
        if (bits_of(steps) != kInfinity) number = reach, a = steps;
      }
      wire[block] = number;
      ab[2 * block] = a;
      ab[2 * block + 1] = 0;
    }
  }
}

// The step of a norm's grid.
TRIREME_ELEMENT float gap_of(const Quantiser& q, float number) {
  return q.coder == kMagnitudes ? number / q.levels : 0;
}

// One warp per tile of 128 elements; each lane writes whole bytes: codes of its 4 elements, or of 8 (one bit
// each).
TRIREME_GPU_KERNEL trireme_encode(GpuScheme scheme, float* x, uint64_t n, const float* wire, const float* ab,
                                  uint8_t* codes TRIREME_BLOCK_PARAMETER) {
  const uint64_t tile = TRIREME_BLOCK_INDEX;
  const Quantiser q = scheme.quantiser;
  const uint32_t together = q.bits == 1 ? 8 : 4;  // elements that fill whole bytes
  TRIREME_PHASE(lane) {
    for (uint32_t k = lane * together; k < 128; k += 32 * together) {
      const uint64_t first = tile * 128 + k;
      uint64_t packed = 0;
      uint32_t used = 0;
      for (uint32_t j = 0; j < together && first + j < n; ++j) {
        const uint64_t i = first + j, block = i / scheme.block;
        const float u = q.needs_random ? uniform(q.random, i) : 0;
        const uint32_t code = quantise(q, x[i], ab[2 * block], ab[2 * block + 1], u);
        if (scheme.feedback != 0) x[i] = x[i] - dequantise(q, code, wire[block], gap_of(q, wire[block]), u);
        packed |= (uint64_t)code << (q.bits * j);
        used += q.bits;
      }
      for (uint32_t b = 0; b < (used + 7) / 8; ++b)
        codes[first * q.bits / 8 + b] = (uint8_t)(packed >> (8 * b));
    }
  }
}

// One warp per tile: out += decoded, or out = decoded.
TRIREME_GPU_KERNEL trireme_decode(GpuScheme scheme, const uint8_t* codes, uint64_t n, const float* wire,
                                  float* out, uint32_t add TRIREME_BLOCK_PARAMETER) {
  const uint64_t tile = TRIREME_BLOCK_INDEX;
  const Quantiser q = scheme.quantiser;
  TRIREME_PHASE(lane) {
    for (uint32_t k = lane; k < 128; k += 32) {
      const uint64_t i = tile * 128 + k;
      if (i >= n) continue;
      const uint64_t bit = i * q.bits;
      uint32_t code = codes[bit / 8];
      if (q.bits == 16) code |= (uint32_t)codes[bit / 8 + 1] << 8;
      code = code >> (bit % 8) & ((1u << q.bits) - 1);
      const float u = q.subtractive ? uniform(q.random, i) : 0;
      const float number = wire[i / scheme.block];
      const float value = dequantise(q, code, number, gap_of(q, number), u);
      out[i] = add != 0 ? out[i] + value : value;
    }
  }
}

}  // namespace trireme::codec::kernels
