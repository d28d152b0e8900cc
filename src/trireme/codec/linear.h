#pragma once
// Codecs whose payloads are sums of linear images in float32, exchanged in rounds that may depend on each
// other. As wire bytes (one rank by itself): header, u32 rows, u32 columns, u64 shared seed, u64 step, and
// the floats of all rounds.
#include "trireme/codec/codec.h"
#include "trireme/codec/wire.h"

namespace trireme::codec {

class LinearCodec : public Codec {
 public:
  size_t wire_bound(size_t elements) const override;
  size_t encode(std::span<const float> in, std::span<std::byte> wire, const Call& call,
                State state) const override;
  void decode(std::span<const std::byte> wire, std::span<float> out) const override;
  void decode_add(std::span<const std::byte> wire, std::span<float> out) const override;
};

// The numbers that `rounds` make of `data` on one rank: those of each round, in order.
std::vector<std::vector<float>> run_alone(Rounds& rounds, std::span<const float> data, const Call& call);
// Those numbers as wire bytes; `shape` is that of the one tensor.
std::vector<std::byte> pack(std::string_view codec, const Shape& shape,
                            const std::vector<std::vector<float>>& numbers, const Call& call);
// `inner` with a residual per tensor: what this rank's own numbers would decode to is taken off its input.
std::unique_ptr<Rounds> rounds_with_feedback(std::unique_ptr<Rounds> inner, const Shapes& shapes);

}  // namespace trireme::codec
