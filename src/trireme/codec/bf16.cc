// bfloat16: the upper half of a float32, rounded to nearest even.
#include <bit>
#include <cstring>

#include "trireme/codec/codec.h"
#include "trireme/codec/payload.h"

namespace trireme::codec {
namespace {

// Without branches, so that the loop becomes vector code.
inline uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40;  // rounding could carry a NaN's mantissa into infinity
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded);
}

inline float from_bf16(uint16_t half) {
  return std::bit_cast<float>(uint32_t{half} << 16);
}

inline uint16_t load(std::span<const std::byte> wire, size_t i) {
  uint16_t half;  // wire bytes may lie at any address
  std::memcpy(&half, wire.data() + i * sizeof half, sizeof half);
  return half;
}

class Bf16 : public Codec {
 public:
  std::string_view name() const override { return "bf16"; }
  Traits traits() const override {
    return {.payload = Payload::two_phase, .contractive = true, .bits_per_element = 16};
  }
  size_t wire_bound(size_t elements) const override { return elements * sizeof(uint16_t); }

  size_t encode(std::span<const float> in, std::span<std::byte> wire, uint64_t) const override {
    check_room(name(), wire, wire_bound(in.size()));
    for (size_t i = 0; i < in.size(); ++i) {
      const uint16_t half = to_bf16(in[i]);
      std::memcpy(wire.data() + i * sizeof half, &half, sizeof half);
    }
    return wire_bound(in.size());
  }

  void decode(std::span<const std::byte> wire, std::span<float> out) const override {
    check_payload(name(), wire, wire_bound(out.size()), out.size());
    for (size_t i = 0; i < out.size(); ++i) out[i] = from_bf16(load(wire, i));
  }

  void decode_add(std::span<const std::byte> wire, std::span<float> out) const override {
    check_payload(name(), wire, wire_bound(out.size()), out.size());
    for (size_t i = 0; i < out.size(); ++i) out[i] += from_bf16(load(wire, i));
  }
};

}  // namespace

CodecPtr make_bf16() {
  return std::make_shared<Bf16>();
}

}  // namespace trireme::codec
