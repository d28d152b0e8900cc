#include "trireme/transport/tcp/reader.h"

#include <algorithm>
#include <cstring>

namespace trireme::transport::tcp {

std::byte* Reader::target() {
  const uint64_t offset = frame_.offset + frame_.length - left_;
  if (frame_.kind == FrameKind::farewell) return reinterpret_cast<std::byte*>(text_.data()) + offset;
  return inbox_.place(frame_.number, offset);
}

std::vector<iovec>& Reader::places() {
  places_.clear();
  direct_ = 0;
  if (left_ > 0) {
    if (std::byte* at = target()) {
      direct_ = left_;
      places_.push_back({at, direct_});
    }
  }
  places_.push_back({staging_.data() + staged_, staging_.size() - staged_});
  return places_;
}

Status Reader::took(size_t count) {
  const size_t direct = std::min(count, direct_);
  if (direct > 0) advance(direct);
  staged_ += count - direct;
  return staged_ > 0 ? parse() : ok_status();
}

void Reader::advance(uint64_t count) {
  const uint64_t offset = frame_.offset + frame_.length - left_;
  left_ -= count;
  if (frame_.kind == FrameKind::farewell) {
    if (left_ == 0) farewell_ = text_;
  } else {
    inbox_.arrived(frame_.number, offset, count);
  }
}

// What is staged: the rest of a payload, whole frames, and the beginning of a header, which stays.
Status Reader::parse() {
  size_t at = 0;
  while (at < staged_) {
    if (left_ > 0) {
      const auto count = std::min<uint64_t>(left_, staged_ - at);
      if (std::byte* to = target()) std::memcpy(to, staging_.data() + at, count);
      advance(count);
      at += count;
    } else if (staged_ - at >= kHeaderBytes) {
      auto frame = to_frame(std::span<const std::byte, kHeaderBytes>(staging_.data() + at, kHeaderBytes),
                            sender_, longest_);
      if (!frame) return frame.failure();
      if (Status status = begin(frame.value()); !status) return status;
      at += kHeaderBytes;
    } else {
      break;
    }
  }
  std::memmove(staging_.data(), staging_.data() + at, staged_ - at);
  staged_ -= at;
  return ok_status();
}

Status Reader::begin(const Frame& frame) {
  if (farewell_) return Failure{ErrorCode::internal, cat("rank ", sender_, " speaks after its farewell")};
  frame_ = frame;
  left_ = frame.length;
  switch (frame.kind) {
    case FrameKind::message:
    case FrameKind::announce:
      return inbox_.begin(frame);
    case FrameKind::piece:
      return inbox_.begin_piece(frame);
    case FrameKind::farewell:
      text_.assign(frame.length, '\0');
      if (left_ == 0) farewell_ = text_;
      return ok_status();
  }
  return ok_status();
}

}  // namespace trireme::transport::tcp
