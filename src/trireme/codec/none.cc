#include <cstring>

#include "trireme/codec/built_in.h"
#include "trireme/codec/wire.h"

namespace trireme::codec {
namespace {

class None : public Codec {
 public:
  std::string_view name() const override { return "none"; }
  Traits traits() const override {
    return {.payload = Payload::summable, .unbiased = true, .contractive = true, .near_exact = true};
  }
  size_t wire_bound(size_t elements) const override { return elements * sizeof(float); }

  size_t encode(std::span<const float> in, std::span<std::byte> wire, const Call&, State) const override {
    check_room(name(), wire, in.size_bytes());
    if (!in.empty()) std::memcpy(wire.data(), in.data(), in.size_bytes());
    return in.size_bytes();
  }
  void decode(std::span<const std::byte> wire, std::span<float> out) const override {
    check(wire, out);
    if (!out.empty()) std::memcpy(out.data(), wire.data(), wire.size());
  }
  void decode_add(std::span<const std::byte> wire, std::span<float> out) const override {
    check(wire, out);
    for (size_t i = 0; i < out.size(); ++i) out[i] += load<float>(wire.data() + i * sizeof(float));
  }

 private:
  // Bare numbers, so that they add up on the wire.
  void check(std::span<const std::byte> wire, std::span<float> out) const {
    if (wire.size() != out.size_bytes()) {
      fail(ErrorCode::input, "codec none: a payload of ", wire.size(), " bytes where ", out.size_bytes(),
           " belong (", out.size(), " elements)");
    }
  }
};

struct NoOptions {
  void list(OptionList&) {}
};

}  // namespace

CodecPtr make_none() {
  return std::make_shared<None>();
}

CodecKind none_kind() {
  return kind_of<NoOptions>("none", "float32 as it is", [](const NoOptions&) { return make_none(); });
}

}  // namespace trireme::codec
