// Codecs that round at random: dither (uniformly dithered one-bit quantisation and its multi-bit grid; Chen,
// Wang, Ng, Wang, IEEE Trans. Inf. Theory 2023), terngrad (Wen et al., NeurIPS'17, and the min-max grid that
// HiPress calls by that name), qsgd (Alistarh et al., NeurIPS'17).
#include <algorithm>
#include <cmath>

#include "trireme/codec/block_codec.h"
#include "trireme/codec/built_in.h"

namespace trireme::codec {
namespace {

using kernels::Kernels;

constexpr const char* kBlockHelp = "elements that share a range, a multiple of 128; 0: the whole payload";

// --- dither

struct DitherOptions {
  std::string range = "max";
  double factor = 1;
  double gamma = 1;
  int64_t bits = 1;
  int64_t block = 256;
  bool subtractive = false, stratified = true, shrink = false;
  double truncation = 1;
  void list(OptionList& o) {
    o.add("range", range, "half-width of the dither, from the block's elements, or option gamma")
        .one_of({"max", "rms", "mean", "fixed"});
    o.add("factor", factor, "range rms, mean: times this").above(0);
    o.add("gamma", gamma, "range fixed: the half-width").above(0);
    o.add("bits", bits, "of a code: 2^bits levels over the range").at_least(1).at_most(8);
    o.add("block", block, kBlockHelp).at_least(0);
    o.add("subtractive", subtractive, "the receiver draws the same dither and takes it off: less noise");
    o.add("stratified", stratified,
          "workers draw from different parts of the range: less noise in their mean");
    o.add("shrink", shrink, "range max: send 1/(1 + omega) of the range, which makes it contractive");
    o.add("truncation", truncation, "values beyond this share of the range are clipped first")
        .above(0)
        .at_most(1);
  }
};

BlockNumbers with_range(const Scheme& s, float range) {
  const float inverse = s.quantiser.levels / (2 * range);
  if (range == 0 || std::isinf(inverse)) return {};
  return {{range, 0}, range, inverse};
}

BlockNumbers dither_max(const Kernels&, const Scheme& s, const float*, size_t, float most) {
  return with_range(s, most);
}
BlockNumbers dither_rms(const Kernels& k, const Scheme& s, const float* x, size_t n, float most) {
  if (!std::isfinite(most)) return {{most, 0}, 0, 0};
  return with_range(s, s.parameter * norm(k, x, n, most, static_cast<double>(n)));
}
BlockNumbers dither_mean(const Kernels&, const Scheme& s, const float*, size_t, float mean) {
  return with_range(s, s.parameter * mean);
}
BlockNumbers dither_fixed(const Kernels&, const Scheme& s, const float*, size_t, float most) {
  return std::isfinite(most) ? with_range(s, s.parameter) : BlockNumbers{{most, 0}, 0, 0};
}
// omega = n max^2 / |x|^2 - 1, so the value sent is |x|^2 / (n max).
BlockNumbers dither_shrunk(const Kernels& k, const Scheme& s, const float* x, size_t n, float most) {
  BlockNumbers numbers = with_range(s, most);
  if (numbers.a == 0 || !std::isfinite(most)) return numbers;
  const double share = norm(k, x, n, most, static_cast<double>(n)) / static_cast<double>(most);
  numbers.wire[0] = static_cast<float>(share * share * static_cast<double>(most));
  return numbers;
}

CodecPtr make_dither(const DitherOptions& o, const Kernels& k) {
  if (o.shrink && (o.range != "max" || o.bits != 1 || o.subtractive))
    fail(ErrorCode::usage, "dither.shrink needs range = \"max\", bits = 1 and subtractive = false");
  const bool max = o.range == "max" && o.truncation == 1;
  Scheme s{.name = "dither", .id = WireId::dither, .block = checked_block("dither", o.block), .numbers = 1};
  s.parameter = static_cast<float>(o.range == "fixed" ? o.gamma : o.factor);
  s.first = o.range == "mean" ? Scheme::First::mean : Scheme::First::largest;
  s.measure = o.shrink            ? dither_shrunk
              : o.range == "max"  ? dither_max
              : o.range == "rms"  ? dither_rms
              : o.range == "mean" ? dither_mean
                                  : dither_fixed;
  // Range "mean": see docs/reference/codecs.md for the proof.
  const bool contractive =
      o.shrink || (o.range == "mean" && o.bits == 1 && o.factor <= 1 && o.truncation == 1);
  s.traits = {.unbiased = max && !o.shrink,
              .contractive = contractive,
              .bits_per_element = static_cast<double>(o.bits) + number_bits(s)};
  const float levels = static_cast<float>((1 << o.bits) - 1);
  s.quantiser = {.coder = kernels::kDither,
                 .bits = static_cast<uint32_t>(o.bits),
                 .levels = levels,
                 .two_over_levels = 2.0f / levels,
                 .subtractive = o.subtractive,
                 .truncation = static_cast<float>(o.truncation),
                 .needs_random = true};
  s.quantiser.random.strata = o.stratified ? 0 : 1;
  s.tag = options_tag(o.block, o.bits, o.subtractive);
  return make_block_codec(s, k);
}

// --- terngrad

struct TernGradOptions {
  std::string scheme = "ternary", layout = "trireme", scale = "max";
  double clip = 0;
  int64_t bits = 2, block = 512;
  void list(OptionList& o) {
    o.add("scheme", scheme, "ternary: {-1, 0, 1} x scale; minmax: 2^bits levels from lowest to highest")
        .one_of({"ternary", "minmax"});
    o.add("scale", scale, "ternary: the block's largest magnitude, or their mean (biased, contractive)")
        .one_of({"max", "mean"});
    o.add("clip", clip, "ternary, scale max: clip at this many root mean squares first; 0: no clipping")
        .at_least(0);
    o.add("bits", bits, "minmax: 1, 2, 4 or 8").at_least(1).at_most(8);
    o.add("block", block, kBlockHelp).at_least(0);
    o.add("layout", layout, "hipress: minmax over the whole payload, with HiPress's header")
        .one_of({"trireme", "hipress"});
  }
};

BlockNumbers ternary_max(const Kernels& k, const Scheme& s, const float* x, size_t n, float most) {
  if (s.parameter > 0 && std::isfinite(most))
    most = std::min(most, s.parameter * norm(k, x, n, most, static_cast<double>(n)));
  return {{most, 0}, most, 0};
}
BlockNumbers ternary_mean(const Kernels&, const Scheme&, const float*, size_t, float mean) {
  return {{mean, 0}, mean, 0};
}
BlockNumbers min_max(const Kernels& k, const Scheme& s, const float* x, size_t n, float most) {
  if (!std::isfinite(most)) return {{most, 0}, 0, 0};
  float low = x[0], high = x[0];
  for (size_t i = 0; i < n; i += kernels::kChunk) {
    float l, h;
    k.range(x + i, std::min(kernels::kChunk, n - i), &l, &h);
    low = std::min(low, l);
    high = std::max(high, h);
  }
  low += 0.0f, high += 0.0f;  // one zero, not two
  if (!std::isfinite(high - low)) return {{INFINITY, 0}, 0, 0};
  const float inverse = s.quantiser.levels / (high - low);
  return {{low, high}, low, std::isfinite(inverse) ? inverse : 0};
}

CodecPtr make_min_max(const TernGradOptions& o, const Kernels& k) {
  const bool hipress = o.layout == "hipress";
  if (o.bits != 1 && o.bits != 2 && o.bits != 4 && o.bits != 8)
    fail(ErrorCode::usage, "terngrad.bits = ", o.bits, ": must be 1, 2, 4 or 8");
  Scheme s{.name = "terngrad", .id = WireId::terngrad, .numbers = 2};
  s.block = hipress ? 0 : checked_block("terngrad", o.block);
  s.traits = {.unbiased = true, .bits_per_element = static_cast<double>(o.bits) + number_bits(s)};
  s.quantiser = {.coder = kernels::kMinMax,
                 .bits = static_cast<uint32_t>(o.bits),
                 .levels = static_cast<float>((1 << o.bits) - 1),
                 .needs_random = true};
  s.quantiser.random.strata = 1;
  s.layout = hipress ? Scheme::Layout::hipress_terngrad : Scheme::Layout::ours;
  s.first = Scheme::First::largest;
  s.measure = min_max;
  s.tag = options_tag(o.block, o.bits, 2);
  return make_block_codec(s, k);
}

CodecPtr make_terngrad(const TernGradOptions& o, const Kernels& k) {
  if (o.scheme == "minmax") return make_min_max(o, k);
  if (o.layout == "hipress")
    fail(ErrorCode::usage, "terngrad.layout = \"hipress\" belongs to scheme = \"minmax\"");
  if (o.bits != 2)
    fail(ErrorCode::usage, "terngrad.bits belongs to scheme = \"minmax\"; ternary codes have 2");
  if (o.scale == "mean" && o.clip > 0) fail(ErrorCode::usage, "terngrad.clip belongs to scale = \"max\"");
  Scheme s{
      .name = "terngrad", .id = WireId::terngrad, .block = checked_block("terngrad", o.block), .numbers = 1};
  s.traits = {.unbiased = o.clip == 0 && o.scale == "max",
              .contractive = o.scale == "mean",
              .bits_per_element = 2 + number_bits(s)};
  s.quantiser = {.coder = kernels::kTernary, .bits = 2, .needs_random = true};
  s.quantiser.random.strata = 1;
  s.parameter = static_cast<float>(o.clip);
  s.first = o.scale == "mean" ? Scheme::First::mean : Scheme::First::largest;
  s.measure = o.scale == "mean" ? ternary_mean : ternary_max;
  s.tag = options_tag(o.block, o.bits, 1);
  return make_block_codec(s, k);
}

// --- qsgd

struct QsgdOptions {
  int64_t bits = 4, block = 512;
  std::string norm = "l2";
  void list(OptionList& o) {
    o.add("bits", bits, "of a code: sign and 2^(bits-1) - 1 steps to the norm").at_least(2).at_most(8);
    o.add("norm", norm, "what the grid reaches").one_of({"l2", "max"});
    o.add("block", block, kBlockHelp).at_least(0);
  }
};

BlockNumbers qsgd_numbers(const Scheme& s, float reach) {
  const float factor = s.quantiser.levels / reach;
  if (reach == 0 || std::isinf(factor)) return {};
  return {{reach, 0}, factor, 0};
}
BlockNumbers qsgd_l2(const Kernels& k, const Scheme& s, const float* x, size_t n, float most) {
  return qsgd_numbers(s, std::isfinite(most) ? norm(k, x, n, most, 1) : most);
}
BlockNumbers qsgd_max(const Kernels&, const Scheme& s, const float*, size_t, float most) {
  return qsgd_numbers(s, most);
}

CodecPtr make_qsgd(const QsgdOptions& o, const Kernels& k) {
  Scheme s{.name = "qsgd", .id = WireId::qsgd, .block = checked_block("qsgd", o.block), .numbers = 1};
  s.traits = {.unbiased = true, .bits_per_element = static_cast<double>(o.bits) + number_bits(s)};
  s.quantiser = {.coder = kernels::kMagnitudes,
                 .bits = static_cast<uint32_t>(o.bits),
                 .levels = static_cast<float>((1 << (o.bits - 1)) - 1),
                 .needs_random = true};
  s.quantiser.random.strata = 1;
  s.first = Scheme::First::largest;
  s.measure = o.norm == "l2" ? qsgd_l2 : qsgd_max;
  s.tag = options_tag(o.block, o.bits);
  return make_block_codec(s, k);
}

}  // namespace

std::vector<CodecKind> random_kinds(const Kernels& k) {
  auto dither =
      kind_of<DitherOptions>("dither", "one bit of x + uniform noise, and the noise's range per block",
                             [&k](const DitherOptions& o) { return make_dither(o, k); });
  dither.contractive = {{"range", std::string("mean")}};
  dither.contractive_note = "range = \"mean\" (the default range, max, would let the residual explode)";
  auto terngrad = kind_of<TernGradOptions>("terngrad", "-1, 0 or 1 times a scale per block, at random",
                                           [&k](const TernGradOptions& o) { return make_terngrad(o, k); });
  terngrad.contractive = {{"scale", std::string("mean")}};
  terngrad.contractive_note = "scale = \"mean\" (the default scale, max, would let the residual explode)";
  auto qsgd = kind_of<QsgdOptions>("qsgd", "sign and a few bits of magnitude, relative to the block's norm",
                                   [&k](const QsgdOptions& o) { return make_qsgd(o, k); });
  return {dither, terngrad, qsgd};
}

}  // namespace trireme::codec
