#pragma once
// Tests: inputs of the kinds that gradients take, and small helpers.
#include <cmath>
#include <string>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/codec/codec.h"

namespace trireme::codec {

inline double normal(PhiloxStream& rng) {
  const double u = 1 - rng.next_double(), v = rng.next_double();
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.14159265358979323846 * v);
}
inline std::vector<float> gaussian(size_t n, uint64_t seed, double scale = 1) {
  PhiloxStream rng(seed, 7);
  std::vector<float> x(n);
  for (auto& v : x) v = static_cast<float>(scale * normal(rng));
  return x;
}
inline std::vector<float> student3(size_t n, uint64_t seed) {
  PhiloxStream rng(seed, 8);
  std::vector<float> x(n);
  for (auto& v : x) {
    double squares = 0;
    for (int i = 0; i < 3; ++i) squares += std::pow(normal(rng), 2);
    v = static_cast<float>(normal(rng) / std::sqrt(squares / 3) / std::sqrt(3.0));  // variance 1
  }
  return x;
}
inline std::vector<float> laplace(size_t n, uint64_t seed) {
  PhiloxStream rng(seed, 9);
  std::vector<float> x(n);
  for (auto& v : x) {
    const double u = rng.next_double() - 0.5;
    v = static_cast<float>((u < 0 ? 1 : -1) * std::log(1 - 2 * std::fabs(u)) / std::sqrt(2.0));
  }
  return x;
}
// Mostly zeros, as the gradient of an embedding.
inline std::vector<float> few(size_t n, uint64_t seed, size_t every) {
  auto x = gaussian(n, seed);
  for (size_t i = 0; i < n; ++i) x[i] = i % every == every / 2 ? x[i] : 0;
  return x;
}
// Numbers of every size from 2^-40 to 2^40.
inline std::vector<float> wide(size_t n, uint64_t seed) {
  PhiloxStream rng(seed, 10);
  std::vector<float> x(n);
  for (auto& v : x)
    v = std::ldexp(static_cast<float>(rng.next_double() * 2 - 1), static_cast<int>(rng.next_u32() % 81) - 40);
  return x;
}

inline double square(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += double{v} * v;
  return sum;
}
inline double distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

inline Call call_of(uint64_t seed, uint64_t step = 1) {
  Call c;
  c.seed = mix(seed, 1);
  c.shared_seed = mix(seed, 2);
  c.step = step;
  return c;
}

inline std::vector<std::byte> encoded(const Codec& codec, std::span<const float> x, const Call& call,
                                      State state = {}) {
  std::vector<std::byte> wire(codec.wire_bound(x.size()));
  wire.resize(codec.encode(x, wire, call, state));
  return wire;
}
inline std::vector<float> decoded(const Codec& codec, std::span<const std::byte> wire, size_t n) {
  std::vector<float> out(n, 99.0f);
  codec.decode(wire, out);
  return out;
}
inline std::vector<float> round_trip(const Codec& codec, std::span<const float> x, uint64_t seed) {
  return decoded(codec, encoded(codec, x, call_of(seed)), x.size());
}

// State vectors of a codec, all zero.
struct StateVectors {
  StateVectors(const Codec& codec, size_t n) : memory(codec.state_names().size(), std::vector<float>(n)) {
    for (auto& m : memory) spans.emplace_back(m);
  }
  StateVectors(const StateVectors& other) : memory(other.memory) {
    for (auto& m : memory) spans.emplace_back(m);
  }
  std::vector<std::vector<float>> memory;
  std::vector<std::span<float>> spans;
};

// A codec with options that matter, for the suites.
struct Variant {
  std::string codec;
  OptionTable options;
  std::string label;
};
inline std::vector<Variant> variants() {
  const auto text = [](const char* s) { return std::string(s); };
  return {
      {"none", {}, "none"},
      {"bf16", {}, "bf16"},
      {"fp16", {}, "fp16"},
      {"fp8", {}, "fp8"},
      {"fp8", {{"format", text("e5m2")}, {"block", int64_t{0}}}, "fp8_e5m2_whole"},
      {"int8", {}, "int8"},
      {"int8", {{"rounding", text("stochastic")}, {"block", int64_t{256}}}, "int8_stochastic"},
      {"int4", {}, "int4"},
      {"int4", {{"rounding", text("stochastic")}}, "int4_stochastic"},
      {"onebit", {}, "onebit"},
      {"onebit", {{"block", int64_t{0}}}, "onebit_whole"},
      {"dither", {}, "dither"},
      {"dither", {{"range", text("mean")}}, "dither_mean"},
      {"dither", {{"range", text("rms")}, {"factor", 2.5}}, "dither_rms"},
      {"dither", {{"range", text("fixed")}, {"gamma", 3.0}, {"bits", int64_t{4}}}, "dither_fixed4"},
      {"dither", {{"subtractive", true}}, "dither_subtractive"},
      {"dither", {{"subtractive", true}, {"bits", int64_t{3}}, {"block", int64_t{0}}}, "dither_subtractive3"},
      {"dither", {{"shrink", true}}, "dither_shrink"},
      {"dither", {{"bits", int64_t{2}}, {"truncation", 0.8}}, "dither_truncated2"},
      {"tbq", {}, "tbq"},
      {"tbq", {{"threshold", 0.5}}, "tbq_fixed"},
      {"tbq", {{"threshold", 0.5}, {"layout", text("hipress")}}, "tbq_hipress"},
      {"terngrad", {}, "terngrad"},
      {"terngrad", {{"clip", 2.5}}, "terngrad_clip"},
      {"terngrad", {{"scale", text("mean")}}, "terngrad_mean"},
      {"terngrad", {{"scheme", text("minmax")}}, "terngrad_minmax"},
      {"terngrad",
       {{"scheme", text("minmax")}, {"bits", int64_t{8}}, {"layout", text("hipress")}},
       "terngrad_hipress"},
      {"qsgd", {}, "qsgd"},
      {"qsgd", {{"bits", int64_t{2}}, {"norm", text("max")}}, "qsgd_max2"},
      {"qsgd", {{"bits", int64_t{5}}, {"block", int64_t{0}}}, "qsgd5_whole"},
      {"topk", {}, "topk"},
      {"topk", {{"ratio", 0.3}}, "topk30"},
      {"graddrop", {}, "graddrop"},
      {"dgc", {}, "dgc"},
      {"dgc", {{"momentum", 0.9}, {"nesterov", true}, {"warmup", int64_t{4}}}, "dgc_momentum"},
      {"adacomp", {}, "adacomp"},
      {"randk", {}, "randk"},
      {"randk", {{"scaled", false}, {"ratio", 0.2}}, "randk_contractive"},
      {"powersgd", {}, "powersgd"},
      {"acpsgd", {{"rank", int64_t{2}}}, "acpsgd2"}};
}

}  // namespace trireme::codec
