#pragma once
// Codecs that turn each element into a code of fixed width, by one or two numbers per block of elements:
// casts, whole numbers, signs, dithers, thresholds. A Scheme says how; BlockCodec does the rest, block by
// block, so that the second pass over a block finds it in the cache.
#include "trireme/codec/codec.h"
#include "trireme/codec/kernels/kernels.h"
#include "trireme/codec/wire.h"

namespace trireme::codec {

// One block's numbers: on the wire, and for the encoder's arithmetic (kernels::quantise).
struct BlockNumbers {
  float wire[2] = {0, 0};
  float a = 0, b = 0;
};

struct Scheme {
  std::string name;
  WireId id = WireId::bf16;
  Traits traits;
  kernels::Quantiser quantiser{};
  size_t block = 0;  // elements that share numbers, a multiple of kernels::kTile; 0: the whole payload
  int numbers = 0;   // floats on the wire per block: 0, 1, 2
  float fixed = 0;   // the number where none travels
  // HiPress's layouts (reference: its published kernels): TBQ without any header; TernGrad with u8 bits, u8
  // elements missing in the last byte, f32 low, f32 high.
  enum class Layout : uint8_t { ours, hipress_tbq, hipress_terngrad } layout = Layout::ours;
  float parameter = 0;  // of `measure`
  // What is measured first, in the same pass that adds the residual: the largest magnitude (NaN when there is
  // one) or the mean of magnitudes.
  enum class First : uint8_t { nothing, largest, mean } first = First::nothing;
  // Null: no numbers follow from the elements. Numbers that are not finite mean that the elements are not.
  BlockNumbers (*measure)(const kernels::Kernels&, const Scheme&, const float* x, size_t n,
                          float first) = nullptr;
  uint16_t tag = 0;
};

CodecPtr make_block_codec(Scheme scheme, const kernels::Kernels& kernels);

// Euclidean norm over sqrt(divisor); the `largest` magnitude gives a scale at which squares neither overflow
// nor vanish.
float norm(const kernels::Kernels& k, const float* x, size_t n, float largest, double divisor);

// An option `block` as a size; Error(usage) naming codec and value.
size_t checked_block(const std::string& codec, int64_t block);
// Bits per element that a block's numbers cost.
double number_bits(const Scheme& scheme);

// Throws Error(diverged) naming the first element of x that is NaN or infinite; `first` is x[0]'s index.
[[noreturn]] void refuse_not_finite(std::string_view codec, const float* x, size_t n, size_t first);

}  // namespace trireme::codec
