#pragma once
// What a stranger, or a broken peer, can feed the code that reads from connections. One call is one input; it
// must neither crash nor touch memory that is not its own, and every receive must complete exactly once. Used
// by fuzz_test.cc (corpus and seeded mutations) and by tests/fuzz/transport_fuzz.cc (libFuzzer).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/transport/tcp/handshake.h"
#include "trireme/transport/tcp/places.h"
#include "trireme/transport/tcp/reader.h"

namespace trireme::transport::tcp {

// Takes an input apart.
class FuzzInput {
 public:
  explicit FuzzInput(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  uint8_t byte() { return empty() ? uint8_t{0} : take(1)[0]; }
  uint16_t word() { return static_cast<uint16_t>(byte() | byte() << 8); }
  std::span<const uint8_t> take(size_t count) {
    const auto out = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(out.size());
    return out;
  }

 private:
  std::span<const uint8_t> bytes_;
};

// Fills a reader's places as readv would.
inline Status feed(Reader& reader, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    size_t count = 0;
    for (const iovec& place : reader.places()) {
      const size_t n = std::min(place.iov_len, bytes.size() - count);
      std::copy_n(bytes.data() + count, n, static_cast<uint8_t*>(place.iov_base));
      count += n;
    }
    bytes = bytes.subspan(count);
    if (Status status = reader.took(count); !status) return status;
  }
  return ok_status();
}

// Instructions: a chunk of bytes on one of up to four connections, or a receive that is posted.
inline void fuzz_frames(FuzzInput in) {
  constexpr int kSender = 1;
  constexpr uint64_t kLongest = 1 << 16;
  std::vector<Delivery> deliveries;
  std::deque<std::vector<std::byte>> memory;
  std::vector<int> completions;
  Inbox inbox(kSender, deliveries);
  std::deque<Reader> readers;
  for (int c = in.byte() % 4; c >= 0; --c) readers.emplace_back(inbox, kSender, kLongest);
  while (!in.empty()) {
    const uint8_t what = in.byte();
    const uint16_t size = in.word();
    if (what % 4 == 3) {
      memory.emplace_back(size);
      completions.push_back(0);
      inbox.post({0, 0, 0, static_cast<uint16_t>(what / 4)}, memory.back(),
                 [&completions, i = completions.size() - 1](const Status&) { ++completions[i]; });
    } else if (!feed(readers[what / 4 % readers.size()], in.take(size))) {
      break;
    }
  }
  inbox.end({ErrorCode::peer_lost, "the input is over"});
  for (Delivery& d : deliveries) d.done(std::move(d.status));
  TRIREME_CHECK(!inbox.outstanding(), "a receive is still outstanding");
  TRIREME_CHECK(std::all_of(completions.begin(), completions.end(), [](int n) { return n == 1; }),
                "not exactly once");
}

inline void fuzz_handshake(FuzzInput in) {
  const auto role = in.byte() % 2 == 0 ? Handshake::Role::caller : Handshake::Role::acceptor;
  Handshake handshake(role, {Purpose::data, 1, 2, 0, 1, true}, {"a secret nobody guesses", "world"});
  for (;;) {
    handshake.take_reply();
    const auto bytes = in.take(handshake.wanted());
    if (bytes.size() < handshake.wanted() || !handshake.take(std::as_bytes(bytes))) return;
    TRIREME_CHECK(!handshake.proved(), "a proof was guessed");
  }
}

inline void fuzz_places(FuzzInput in) {
  const auto bytes = in.take(4096);
  if (const auto places = parse_places(std::string(bytes.begin(), bytes.end()))) {
    TRIREME_CHECK(parse_places(to_text(*places)) == places, "places do not keep their text");
    for (int index = 0; index < 3; ++index) candidates(*places, "host", {}, index);
  }
}

inline void fuzz_one(std::span<const uint8_t> bytes) {
  FuzzInput in(bytes);
  switch (in.byte() % 4) {
    case 0:
      return fuzz_handshake(in);
    case 1:
      return fuzz_places(in);
    default:
      return fuzz_frames(in);
  }
}

}  // namespace trireme::transport::tcp
