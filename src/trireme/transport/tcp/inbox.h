#pragma once
// Messages of one peer on their way in: which receive each belongs to, and where its bytes go. No sockets
// here.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "trireme/transport/in_memory.h"
#include "trireme/transport/tcp/frames.h"
#include "trireme/transport/transport.h"

namespace trireme::transport::tcp {

// A completion to run in progress(), and the payload it accounts for.
struct Delivery {
  Completion done;
  Status status;
  int64_t sent = 0, received = 0;
};

class Inbox {
 public:
  // Completions are added to `deliveries`, which outlives the inbox.
  Inbox(int peer, std::vector<Delivery>& deliveries) : peer_(peer), deliveries_(deliveries) {}

  void post(MessageId id, std::span<std::byte> into, Completion done);
  // A message or an announcement came: it belongs to the first receive of its tag, posted or to come. Failure
  // when it cannot be true.
  Status begin(const Frame& frame);
  // A piece came, perhaps before its announcement on another connection.
  Status begin_piece(const Frame& frame);
  // Where byte `offset` of a message goes, and those after it; null when nobody wants them. Asked anew before
  // each read: a message that was not expected moves to its receive's memory when that is posted.
  std::byte* place(uint32_t number, uint64_t offset);
  // `count` bytes from `offset` on have been put there.
  void arrived(uint32_t number, uint64_t offset, uint64_t count);
  // Nothing more comes: receives that wait for it fail with `why`, now and later. What is here whole can
  // still be received.
  void end(const Failure& why);
  // Nobody wants anything any more.
  void abandon(const Failure& why);
  // Whether a receive has not completed.
  bool outstanding() const { return receives_ > 0; }

 private:
  struct Incoming {
    MessageId id;
    uint64_t total = 0, received = 0;
    uint64_t filled = 0;  // all bytes received so far lie below
    std::optional<Expected> expected;
    std::unique_ptr<std::byte[]> own;  // without a receive
    bool begun = false, unwanted = false;
  };
  using Messages = std::unordered_map<uint32_t, Incoming>;

  Result<Messages::iterator> open(const Frame& frame);
  void join(Messages::iterator message, Expected expected);
  void settle(Messages::iterator message);  // ends it when it is complete
  void deliver(Completion done, Status status, uint64_t received = 0);

  int peer_;
  std::vector<Delivery>& deliveries_;
  std::optional<Failure> ended_;
  Messages messages_;
  int64_t receives_ = 0;  // posted and not completed
  TagQueue<Expected> posted_;
  TagQueue<uint32_t> unexpected_;  // numbers of begun messages without a receive
};

}  // namespace trireme::transport::tcp
