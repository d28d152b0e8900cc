// Threshold-based quantisation (Strom, Interspeech'15; HiPress's TBQ): an element sends one threshold up, one
// down, or nothing. What is not sent belongs into a residual: wear error feedback.
#include <cmath>

#include "trireme/codec/block_codec.h"
#include "trireme/codec/built_in.h"

namespace trireme::codec {
namespace {

using kernels::Kernels;

struct TbqOptions {
  double threshold = 0, factor = 1;
  int64_t block = 512;
  std::string layout = "trireme";
  void list(OptionList& o) {
    o.add("threshold", threshold, "the step, the same everywhere and on all ranks; 0: by factor").at_least(0);
    o.add("factor", factor, "threshold 0: the step is this many root mean squares of the block")
        .above(0)
        .at_most(1);
    o.add("block", block, "threshold 0: elements that share a step, a multiple of 128; 0: the whole payload")
        .at_least(0);
    o.add("layout", layout, "hipress: bare codes, as HiPress's kernels write them; needs a threshold")
        .one_of({"trireme", "hipress"});
  }
};

BlockNumbers measure_rms(const Kernels& k, const Scheme& s, const float* x, size_t n, float most) {
  if (!std::isfinite(most)) return {{most, 0}, 0, 0};
  const float step = s.parameter * norm(k, x, n, most, static_cast<double>(n));
  return {{step, 0}, step, 0};
}
BlockNumbers check_only(const Kernels&, const Scheme& s, const float*, size_t, float most) {
  return {{std::isfinite(most) ? s.fixed : most, 0}, s.fixed, 0};
}

CodecPtr make_tbq(const TbqOptions& o, const Kernels& k) {
  const bool hipress = o.layout == "hipress", fixed = o.threshold > 0;
  if (hipress && !fixed) fail(ErrorCode::usage, "tbq.layout = \"hipress\" needs tbq.threshold");
  Scheme s{.name = "tbq", .id = WireId::tbq};
  s.block = fixed ? kernels::kChunk : checked_block("tbq", o.block);
  s.numbers = fixed ? 0 : 1;
  s.fixed = static_cast<float>(o.threshold);
  s.parameter = static_cast<float>(o.factor);
  s.first = Scheme::First::largest;
  s.measure = fixed ? check_only : measure_rms;
  s.layout = hipress ? Scheme::Layout::hipress_tbq : Scheme::Layout::ours;
  // By root mean square some element always reaches the step. A fixed one may be out of reach, but what it
  // sends never adds to the error.
  s.traits = {.contractive = true, .bits_per_element = 2 + (fixed ? 0 : number_bits(s))};
  s.quantiser = {.coder = kernels::kThreshold, .bits = 2};
  s.tag = fixed ? options_tag(s.fixed) : options_tag(o.block);
  return make_block_codec(s, k);
}

}  // namespace

std::vector<CodecKind> threshold_kinds(const Kernels& k) {
  return {kind_of<TbqOptions>("tbq", "one threshold up, down or nothing",
                              [&k](const TbqOptions& o) { return make_tbq(o, k); })};
}

}  // namespace trireme::codec
