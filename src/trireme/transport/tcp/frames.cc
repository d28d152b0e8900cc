#include "trireme/transport/tcp/frames.h"

#include "trireme/transport/tcp/bytes.h"

namespace trireme::transport::tcp {
namespace {

// Each field's place; bytes 1 to 3 are 0.
constexpr size_t kNumber = 4, kTag = 8, kTotal = 16, kOffset = 24, kLength = 32, kSenderBits = 52;

const char* fault(const Frame& f, std::span<const std::byte, kHeaderBytes> header, int sender,
                  uint64_t longest) {
  for (size_t i = 1; i < kNumber; ++i) {
    if (header[i] != std::byte{0}) return "reserved bytes are used";
  }
  if (f.total > longest) return "the message is longer than any can be";
  if (f.offset > f.total || f.length > f.total - f.offset) return "the piece lies outside its message";
  const bool whole = f.offset == 0 && f.length == f.total;
  const bool tagged = f.kind == FrameKind::message || f.kind == FrameKind::announce;
  if (tagged ? f.tag >> kSenderBits != static_cast<uint64_t>(sender) : f.tag != 0) return "a wrong sender";
  switch (f.kind) {
    case FrameKind::message:
      return whole ? nullptr : "a message in pieces without announcement";
    case FrameKind::announce:
      return f.offset == 0 && f.length == 0 ? nullptr : "an announcement with payload";
    case FrameKind::piece:
      return f.length > 0 ? nullptr : "an empty piece";
    case FrameKind::farewell:
      return whole && f.total <= kLongestFarewell ? nullptr : "a farewell of impossible length";
  }
  return "an unknown kind of frame";
}

}  // namespace

Header to_header(const Frame& frame) {
  Header header{};
  header[0] = static_cast<std::byte>(frame.kind);
  put_number(header.data() + kNumber, frame.number);
  put_number(header.data() + kTag, frame.tag);
  put_number(header.data() + kTotal, frame.total);
  put_number(header.data() + kOffset, frame.offset);
  put_number(header.data() + kLength, frame.length);
  return header;
}

Result<Frame> to_frame(std::span<const std::byte, kHeaderBytes> header, int sender, uint64_t longest) {
  const std::byte* at = header.data();
  const Frame frame{static_cast<FrameKind>(at[0]),      get_number<uint32_t>(at + kNumber),
                    get_number<uint64_t>(at + kTag),    get_number<uint64_t>(at + kTotal),
                    get_number<uint64_t>(at + kOffset), get_number<uint64_t>(at + kLength)};
  if (const char* what = fault(frame, header, sender, longest)) {
    return Failure{ErrorCode::internal, cat("what rank ", sender, " sends is not understood: ", what)};
  }
  return frame;
}

}  // namespace trireme::transport::tcp
