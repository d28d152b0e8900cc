#pragma once
// What travels on a connection between two ranks: frames, each a header of fixed size and a payload.
//   message   a whole message
//   announce  a message that follows in pieces, on any connection of the pair; on connection 0
//   piece     a part of an announced message
//   farewell  the last frame of a connection: the sender has ended. Its payload says why, empty when all is
//   well
// Messages and announcements are sent on connection 0 in the order of posting, which is the order in which
// equal ids match. Headers are little-endian.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "trireme/base/result.h"

namespace trireme::transport::tcp {

enum class FrameKind : uint8_t { message = 1, announce = 2, piece = 3, farewell = 4 };

struct Frame {
  FrameKind kind = FrameKind::message;
  uint32_t number = 0;  // of the message among those of its sender to this receiver
  uint64_t tag = 0;     // to_tag(sender, id) of messages and announcements, else 0
  uint64_t total = 0;   // bytes of the whole message
  uint64_t offset = 0;  // of this payload within it
  uint64_t length = 0;  // bytes of payload that follow the header
  bool operator==(const Frame&) const = default;
};

inline constexpr size_t kHeaderBytes = 40;
inline constexpr uint64_t kLongestMessage = uint64_t{1} << 40, kLongestFarewell = 255;
using Header = std::array<std::byte, kHeaderBytes>;

Header to_header(const Frame& frame);
// Failure when these bytes are no header that `sender` can have written, or its message is longer than
// `longest`: afterwards payload and headers cannot be told apart.
Result<Frame> to_frame(std::span<const std::byte, kHeaderBytes> header, int sender,
                       uint64_t longest = kLongestMessage);

}  // namespace trireme::transport::tcp
