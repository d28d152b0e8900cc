#pragma once
// One connection's bytes on their way in: headers are parsed, payloads go straight to where the inbox wants
// them. No sockets here: the owner asks for places, fills them (readv), and tells how much came.
#include <sys/uio.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "trireme/transport/tcp/inbox.h"

namespace trireme::transport::tcp {

class Reader {
 public:
  // `inbox` outlives it and belongs to `sender`.
  Reader(Inbox& inbox, int sender, uint64_t longest = kLongestMessage)
      : inbox_(inbox), sender_(sender), longest_(longest), staging_(kStaging) {}

  // The memory that the next bytes fill, in order; valid until the inbox or the reader is used again.
  std::vector<iovec>& places();
  // `count` bytes have been put there. After a failure the connection is of no use.
  Status took(size_t count);
  // The reason in the sender's last frame; nothing before it has come whole.
  const std::optional<std::string>& farewell() const { return farewell_; }
  // Bytes that the current payload still lacks; 0 between frames.
  uint64_t missing() const { return left_; }

 private:
  // Room for headers and small payloads beside a large one; what lands here is copied once more.
  static constexpr size_t kStaging = size_t{64} << 10;

  std::byte* target();
  void advance(uint64_t count);  // that much of the current payload is in place
  Status parse();
  Status begin(const Frame& frame);

  Inbox& inbox_;
  int sender_;
  uint64_t longest_;
  std::vector<std::byte> staging_;
  size_t staged_ = 0;  // bytes of an unfinished header in it
  Frame frame_;        // whose payload is being read
  uint64_t left_ = 0;  // bytes of it to come
  size_t direct_ = 0;  // length of the first of places_ when it is the payload's own memory
  std::vector<iovec> places_;
  std::string text_;
  std::optional<std::string> farewell_;
};

}  // namespace trireme::transport::tcp
