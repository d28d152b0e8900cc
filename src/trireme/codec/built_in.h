#pragma once
// The makers behind built_in_codecs(), by the kernels that the codecs shall use.
#include "trireme/codec/codec.h"
#include "trireme/codec/kernels/kernels.h"

namespace trireme::codec {

// A codec kind from an options struct with list(OptionList&) and a function that makes the codec of it.
template <typename Options>
CodecKind kind_of(std::string name, std::string help, std::function<CodecPtr(const Options&)> make) {
  CodecKind kind;
  kind.name = std::move(name);
  kind.help = std::move(help);
  kind.open = [make](OptionList& o) -> std::function<CodecPtr()> {
    auto options = std::make_shared<Options>();
    options->list(o);
    return [make, options] { return make(*options); };
  };
  return kind;
}

CodecKind none_kind();
std::vector<CodecKind> cast_kinds(const kernels::Kernels& k);       // bf16, fp16
std::vector<CodecKind> scaled_kinds(const kernels::Kernels& k);     // fp8, int8, int4, onebit
std::vector<CodecKind> random_kinds(const kernels::Kernels& k);     // dither, terngrad, qsgd
std::vector<CodecKind> threshold_kinds(const kernels::Kernels& k);  // tbq
std::vector<CodecKind> sparse_kinds(const kernels::Kernels& k);     // topk, graddrop, dgc, adacomp
std::vector<CodecKind> linear_kinds();                              // randk, powersgd, acpsgd
CodecSet codecs_with(const kernels::Kernels& k);

}  // namespace trireme::codec
