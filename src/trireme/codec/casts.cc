// bfloat16 (the upper half of a float32) and IEEE half precision, rounded to nearest even. NaN stays NaN and
// infinity infinity; fp16 makes infinity of what lies beyond 65504, as torch's cast does.
#include "trireme/codec/block_codec.h"
#include "trireme/codec/built_in.h"

namespace trireme::codec {
namespace {

struct NoOptions {
  void list(OptionList&) {}
};

CodecKind cast_kind(const std::string& name, const char* help, WireId id, kernels::Coder coder,
                    const kernels::Kernels& k) {
  return kind_of<NoOptions>(name, help, [=, &k](const NoOptions&) {
    Scheme s{.name = name, .id = id};
    s.traits = {.contractive = coder == kernels::kBf16,  // fp16 makes infinity of large values
                .near_exact = true,
                .bits_per_element = 16};
    s.quantiser = {.coder = coder, .bits = 16};
    return make_block_codec(s, k);
  });
}

}  // namespace

std::vector<CodecKind> cast_kinds(const kernels::Kernels& k) {
  return {cast_kind("bf16", "16-bit floats with float32's range", WireId::bf16, kernels::kBf16, k),
          cast_kind("fp16", "16-bit floats with 11 bits of precision, up to 65504", WireId::fp16,
                    kernels::kFp16, k)};
}

}  // namespace trireme::codec
