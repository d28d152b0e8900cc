#pragma once
// Wire bytes: little-endian numbers at any address, a small header that names codec, version, options and
// length, and a reader that refuses what does not fit.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme::codec {

static_assert(std::endian::native == std::endian::little, "wire bytes are copied as they lie in memory");

template <typename T>
T load(const std::byte* from) {
  T value;  // wire bytes may lie at any address
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <typename T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// Numbers on the wire: never renumbered.
enum class WireId : uint8_t {
  bf16 = 1,
  fp16 = 2,
  fp8 = 3,
  int8 = 4,
  int4 = 5,
  onebit = 6,
  dither = 7,
  tbq = 8,
  terngrad = 9,
  qsgd = 10,
  topk = 11,
  dgc = 12,
  graddrop = 13,
  randk = 14,
  adacomp = 15,
  powersgd = 16,
  acpsgd = 17,
  lossless = 18,
};

// Eight bytes: u8 version, u8 codec, u16 tag (a digest of the options that both ends must share), u32
// elements.
struct Header {
  static constexpr uint8_t kVersion = 1;
  static constexpr size_t kBytes = 8;
  static constexpr size_t kMaxElements = UINT32_MAX;
  WireId id = WireId::bf16;
  uint16_t tag = 0;
  size_t elements = 0;
};

inline void write(const Header& h, std::byte* to) {
  store(to, Header::kVersion);
  store(to + 1, static_cast<uint8_t>(h.id));
  store(to + 2, h.tag);
  store(to + 4, static_cast<uint32_t>(h.elements));
}

// Reads in order; Error(input) naming the codec when the bytes end too early.
class WireReader {
 public:
  WireReader(std::string_view codec, std::span<const std::byte> bytes) : codec_(codec), rest_(bytes) {}

  std::span<const std::byte> take(size_t bytes) {
    if (bytes > rest_.size()) refuse("a payload that ends too early");
    const auto taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
  }
  template <typename T>
  T number() {
    return load<T>(take(sizeof(T)).data());
  }
  // The header must be that of `expected`.
  void header(const Header& expected) {
    if (rest_.size() < Header::kBytes) refuse("a payload that ends too early");
    const auto version = number<uint8_t>(), id = number<uint8_t>();
    const auto tag = number<uint16_t>();
    const auto elements = number<uint32_t>();
    if (version != Header::kVersion)
      refuse("wire version ", int{version}, "; this program reads ", int{Header::kVersion});
    if (id != static_cast<uint8_t>(expected.id)) refuse("a payload of another codec (number ", int{id}, ")");
    if (tag != expected.tag) refuse("a payload made with other options");
    if (elements != expected.elements)
      refuse("a payload of ", elements, " elements where ", expected.elements, " belong");
  }
  size_t left() const { return rest_.size(); }
  void end() const {
    if (!rest_.empty()) refuse(rest_.size(), " bytes too many");
  }
  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorCode::input, "codec ", codec_, ": ", parts...);
  }

 private:
  std::string_view codec_;
  std::span<const std::byte> rest_;
};

// The caller's buffer is ours to size, so a small one is a bug.
inline void check_room(std::string_view codec, std::span<std::byte> wire, size_t needed) {
  TRIREME_CHECK(wire.size() >= needed, codec, ": ", wire.size(), " bytes of room for a payload of ", needed);
}
inline void check_length(std::string_view codec, size_t elements) {
  if (elements > Header::kMaxElements)
    fail(ErrorCode::usage, "codec ", codec, ": ", elements, " elements in one payload, at most ",
         Header::kMaxElements);
}

// FNV-1a over the numbers, folded to 16 bits: equal options give equal tags.
template <typename... Numbers>
uint16_t options_tag(const Numbers&... numbers) {
  uint32_t hash = 2166136261u;
  const auto add = [&](const auto& number) {
    unsigned char bytes[sizeof number];
    std::memcpy(bytes, &number, sizeof number);
    for (const unsigned char b : bytes) hash = (hash ^ b) * 16777619u;
  };
  (add(numbers), ...);
  return static_cast<uint16_t>(hash ^ hash >> 16);
}

}  // namespace trireme::codec
