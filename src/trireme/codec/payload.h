#pragma once
// Bounds checks shared by the codecs with a fixed rate.
#include <cstddef>
#include <span>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme::codec {

// The caller's buffer is ours to size, so a small one is a bug.
inline void check_room(std::string_view codec, std::span<std::byte> wire, size_t needed) {
  TRIREME_CHECK(wire.size() >= needed, codec, ": ", wire.size(), " bytes of room for a payload of ", needed);
}

// The payload came from outside.
inline void check_payload(std::string_view codec, std::span<const std::byte> wire, size_t expected,
                          size_t elements) {
  if (wire.size() != expected) {
    fail(ErrorCode::input, "codec ", codec, ": a payload of ", wire.size(), " bytes cannot hold ", elements,
         " elements (", expected, " bytes)");
  }
}

}  // namespace trireme::codec
