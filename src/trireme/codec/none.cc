#include <cstring>

#include "trireme/codec/codec.h"
#include "trireme/codec/payload.h"

namespace trireme::codec {
namespace {

class None : public Codec {
 public:
  std::string_view name() const override { return "none"; }
  Traits traits() const override {
    return {.payload = Payload::summable, .unbiased = true, .contractive = true, .bits_per_element = 32};
  }
  size_t wire_bound(size_t elements) const override { return elements * sizeof(float); }

  size_t encode(std::span<const float> in, std::span<std::byte> wire, uint64_t) const override {
    check_room(name(), wire, in.size_bytes());
    if (!in.empty()) std::memcpy(wire.data(), in.data(), in.size_bytes());
    return in.size_bytes();
  }

  void decode(std::span<const std::byte> wire, std::span<float> out) const override {
    check_payload(name(), wire, out.size_bytes(), out.size());
    if (!out.empty()) std::memcpy(out.data(), wire.data(), wire.size());
  }

  void decode_add(std::span<const std::byte> wire, std::span<float> out) const override {
    check_payload(name(), wire, out.size_bytes(), out.size());
    for (size_t i = 0; i < out.size(); ++i) {
      float value;  // wire bytes may lie at any address
      std::memcpy(&value, wire.data() + i * sizeof value, sizeof value);
      out[i] += value;
    }
  }
};

}  // namespace

CodecPtr make_none() {
  return std::make_shared<None>();
}

}  // namespace trireme::codec
