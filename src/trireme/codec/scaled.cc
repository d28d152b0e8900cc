// Codecs with one scale per block: fp8, int8, int4 (the block's largest magnitude becomes the format's) and
// onebit (sign and mean magnitude; 1-bit SGD, Seide et al. 2014; scaled sign, Karimireddy et al. 2019).
#include <cmath>

#include "trireme/codec/block_codec.h"
#include "trireme/codec/built_in.h"

namespace trireme::codec {
namespace {

using kernels::Kernels;

void list_block(OptionList& o, int64_t& block) {
  o.add("block", block, "elements that share a scale, a multiple of 128; 0: the whole payload").at_least(0);
}

// The largest magnitude becomes `parameter`. Blocks so small that the factor overflows become zeros.
BlockNumbers measure_largest(const Kernels&, const Scheme& s, const float*, size_t, float most) {
  const float factor = s.parameter / most;
  if (most == 0 || std::isinf(factor)) return {};
  return {{most / s.parameter, 0}, factor, 0};
}

struct Fp8Options {
  std::string format = "e4m3";
  int64_t block = 128;
  void list(OptionList& o) {
    o.add("format", format, "exponent and mantissa bits").one_of({"e4m3", "e5m2"});
    list_block(o, block);
  }
};

CodecPtr make_fp8(const Fp8Options& o, const Kernels& k) {
  const bool e4m3 = o.format == "e4m3";
  Scheme s{.name = "fp8", .id = WireId::fp8, .block = checked_block("fp8", o.block), .numbers = 1};
  s.traits = {.contractive = true, .bits_per_element = 8 + number_bits(s)};
  s.quantiser = {.coder = e4m3 ? kernels::kE4m3 : kernels::kE5m2, .bits = 8};
  s.parameter = e4m3 ? 448.0f : 57344.0f;
  s.first = Scheme::First::largest;
  s.measure = measure_largest;
  s.tag = options_tag(e4m3, o.block);
  return make_block_codec(s, k);
}

struct IntegerOptions {
  std::string rounding = "nearest";
  int64_t block = 128;
  void list(OptionList& o) {
    o.add("rounding", rounding, "to the grid; stochastic is unbiased").one_of({"nearest", "stochastic"});
    list_block(o, block);
  }
};

CodecPtr make_integer(const std::string& name, WireId id, uint32_t bits, const IntegerOptions& o,
                      const Kernels& k) {
  const bool stochastic = o.rounding == "stochastic";
  Scheme s{.name = name, .id = id, .block = checked_block(name, o.block), .numbers = 1};
  s.traits = {.unbiased = stochastic, .contractive = true, .bits_per_element = bits + number_bits(s)};
  // A random rounding to the grid errs by at most half a step a unit of variance, the largest element by
  // none: contractive while the block has fewer than 4 levels^2 elements.
  s.parameter = static_cast<float>((1 << (bits - 1)) - 1);
  if (stochastic && (o.block == 0 || static_cast<float>(o.block) >= 4 * s.parameter * s.parameter))
    s.traits.contractive = false;
  s.quantiser = {.coder = stochastic ? kernels::kStochastic : kernels::kNearest,
                 .bits = bits,
                 .levels = s.parameter,
                 .needs_random = stochastic};
  s.first = Scheme::First::largest;
  s.measure = measure_largest;
  s.tag = options_tag(o.block);
  return make_block_codec(s, k);
}

BlockNumbers measure_mean(const Kernels&, const Scheme&, const float*, size_t, float mean) {
  return {{mean, 0}, 0, 0};
}

struct OnebitOptions {
  int64_t block = 256;
  void list(OptionList& o) { list_block(o, block); }
};

CodecPtr make_onebit(const OnebitOptions& o, const Kernels& k) {
  Scheme s{.name = "onebit", .id = WireId::onebit, .block = checked_block("onebit", o.block), .numbers = 1};
  s.traits = {.contractive = true, .bits_per_element = 1 + number_bits(s)};
  s.quantiser = {.coder = kernels::kSign, .bits = 1};
  s.first = Scheme::First::mean;
  s.measure = measure_mean;
  s.tag = options_tag(o.block);
  return make_block_codec(s, k);
}

}  // namespace

std::vector<CodecKind> scaled_kinds(const Kernels& k) {
  return {kind_of<Fp8Options>("fp8", "8-bit floats with a scale per block",
                              [&k](const Fp8Options& o) { return make_fp8(o, k); }),
          kind_of<IntegerOptions>(
              "int8", "8-bit whole numbers with a scale per block",
              [&k](const IntegerOptions& o) { return make_integer("int8", WireId::int8, 8, o, k); }),
          kind_of<IntegerOptions>(
              "int4", "4-bit whole numbers with a scale per block",
              [&k](const IntegerOptions& o) { return make_integer("int4", WireId::int4, 4, o, k); }),
          kind_of<OnebitOptions>("onebit", "sign, and mean magnitude per block",
                                 [&k](const OnebitOptions& o) { return make_onebit(o, k); })};
}

}  // namespace trireme::codec
