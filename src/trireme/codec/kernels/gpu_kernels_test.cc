// The GPU's source, run on the CPU phase by phase: the same bytes as the codecs make.
#include "trireme/codec/kernels/gpu_kernels.h"

#include <gtest/gtest.h>

#include <cstring>

#include "trireme/codec/test_data.h"
#include "trireme/codec/wire.h"

namespace trireme::codec::kernels {
namespace {

struct Case {
  std::string codec;
  OptionTable options;
  Measure measure;
  float parameter;
  uint32_t block, bits;
  Coder coder;
  float levels;
  bool random;
};

std::vector<Case> cases() {
  const OptionTable stochastic{{"rounding", std::string("stochastic")}};
  return {{"bf16", {}, kNoNumbers, 0, 4096, 16, kBf16, 0, false},
          {"fp16", {}, kNoNumbers, 0, 4096, 16, kFp16, 0, false},
          {"fp8", {}, kLargestOver, 448, 128, 8, kE4m3, 0, false},
          {"int8", {}, kLargestOver, 127, 128, 8, kNearest, 127, false},
          {"int8", stochastic, kLargestOver, 127, 128, 8, kStochastic, 127, true},
          {"int4", {}, kLargestOver, 7, 128, 4, kNearest, 7, false},
          {"int4", stochastic, kLargestOver, 7, 128, 4, kStochastic, 7, true},
          {"onebit", {}, kMeanMagnitude, 0, 256, 1, kSign, 0, false},
          {"dither", {}, kLargest, 0, 256, 1, kDither, 1, true},
          {"tbq", {}, kRootMeanSquare, 1, 512, 2, kThreshold, 0, false},
          {"terngrad", {}, kLargest, 0, 512, 2, kTernary, 0, true},
          {"qsgd", {}, kNorm, 0, 512, 4, kMagnitudes, 7, true}};
}

// The payload that the GPU's kernels make: header from the codec's own, then numbers and codes.
std::vector<std::byte> gpu_payload(const GpuScheme& scheme, const std::vector<float>& in,
                                   std::vector<float>& x, std::span<const std::byte> header) {
  const uint64_t n = in.size(), blocks = (n + scheme.block - 1) / scheme.block, tiles = (n + 127) / 128;
  std::vector<float> wire(blocks), ab(2 * blocks);
  std::vector<uint8_t> codes((n * scheme.quantiser.bits + 7) / 8);
  for (uint64_t b = 0; b < blocks; ++b)
    trireme_measure(scheme, in.data(), x.data(), n, wire.data(), ab.data(), b);
  for (uint64_t t = 0; t < tiles; ++t)
    trireme_encode(scheme, x.data(), n, wire.data(), ab.data(), codes.data(), t);
  std::vector<std::byte> payload(header.begin(), header.end());
  const auto append = [&](const void* from, size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(from);
    payload.insert(payload.end(), begin, begin + bytes);
  };
  if (scheme.measure != kNoNumbers) append(wire.data(), wire.size() * sizeof(float));
  append(codes.data(), codes.size());
  // And back: what the kernel decodes is what the codec decodes.
  std::vector<float> out(n, 1.0f);
  for (uint64_t t = 0; t < tiles; ++t) trireme_decode(scheme, codes.data(), n, wire.data(), out.data(), 1, t);
  x.insert(x.end(), out.begin(), out.end());
  return payload;
}

TEST(GpuKernels, MakeTheCodecsBytesAndResiduals) {
  const CodecSet set = built_in_codecs();
  for (const Case& c : cases()) {
    const CodecPtr codec = set.make(c.codec, c.options);
    for (const size_t n : {1u, 31u, 128u, 129u, 1000u, 5000u}) {
      for (const bool feedback : {false, true}) {
        const auto in = student3(n, n);
        auto residual = gaussian(n, 3, 0.2), x = feedback ? residual : in;
        const Call call = call_of(n);
        std::vector<std::byte> expected(codec->wire_bound(n));
        if (feedback) {
          codec->encode_with_feedback(in, residual, expected, call, {});
        } else {
          codec->encode(in, expected, call);
        }
        GpuScheme scheme{};
        scheme.quantiser = {.coder = c.coder,
                            .bits = c.bits,
                            .levels = c.levels,
                            .two_over_levels = 2 / c.levels,
                            .truncation = 1,
                            .needs_random = c.random};
        scheme.quantiser.random = {
            {static_cast<uint32_t>(call.seed), static_cast<uint32_t>(call.seed >> 32)}, {}, 0, 1, 1};
        scheme.measure = c.measure;
        scheme.parameter = c.parameter;
        scheme.block = c.block;
        scheme.feedback = feedback ? 1 : 0;
        const auto got = gpu_payload(scheme, in, x, std::span(expected).first(Header::kBytes));
        ASSERT_EQ(got, expected) << c.codec << " " << n << (feedback ? " with feedback" : "");
        std::vector<float> sum(n, 1.0f);
        codec->decode_add(expected, sum);
        ASSERT_EQ(std::memcmp(sum.data(), x.data() + n, n * sizeof(float)), 0) << c.codec << " " << n;
        if (feedback) {
          ASSERT_EQ(std::memcmp(residual.data(), x.data(), n * sizeof(float)), 0) << c.codec << " " << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::codec::kernels
