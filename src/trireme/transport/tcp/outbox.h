#pragma once
// Messages to one peer on their way out, over its connections. Small ones travel whole on connection 0; with
// several connections large ones are announced there and travel in pieces, each on the connection that has
// room first. No sockets here: the owner gathers what to write (sendmsg) and tells how much was written.
#include <sys/uio.h>

#include <deque>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/transport/tcp/inbox.h"

namespace trireme::transport::tcp {

class Outbox {
 public:
  // Completions are added to `deliveries`, which outlives the outbox.
  Outbox(int connections, std::vector<Delivery>& deliveries)
      : lanes_(static_cast<size_t>(connections)), deliveries_(deliveries) {}

  // Completes when its last byte is written.
  void post(uint64_t tag, std::span<const std::byte> data, Completion done);
  // What to write next on that connection, in order; empty when there is nothing. Valid until the outbox is
  // used again.
  const std::vector<iovec>& gather(int connection);
  void wrote(int connection, size_t count);
  // Whether a message has not completed.
  bool outstanding() const { return !messages_.empty(); }
  // All messages fail with `why`. A frame that has been begun is still gathered to its end: its memory stays
  // in use until its connection is closed.
  void abandon(const Failure& why);
  // The last frame of every connection; no message is outstanding.
  void say_farewell(std::string reason);

 private:
  // Pieces are as long as what one connection takes from a common queue at a time.
  static constexpr size_t kPiece = size_t{256} << 10, kGathered = size_t{512} << 10, kFrames = 32;

  struct Message {
    uint32_t number = 0;
    uint64_t tag = 0;
    std::span<const std::byte> data;
    Completion done;
    size_t taken = 0;  // bytes that are in frames
    int open = 1;      // frames not yet written; the first is the message itself or its announcement
  };
  using Place = std::list<Message>::iterator;
  struct Piece {  // of a lane: a frame
    Header header;
    std::span<const std::byte> payload;
    std::optional<Place> message;
    size_t written = 0;
    size_t size() const { return kHeaderBytes + payload.size(); }
  };
  struct Lane {  // a connection's frames that are being written
    std::deque<Piece> pieces;
    size_t bytes = 0;
  };

  bool in_pieces(const Message& message) const { return lanes_.size() > 1 && message.data.size() > kPiece; }
  void fill(int connection);
  void begin(Place message);
  void take_piece(Lane& lane);
  void add(Lane& lane, const Frame& frame, std::span<const std::byte> payload, std::optional<Place> message);
  void finished(const Piece& piece);

  std::vector<Lane> lanes_;
  std::vector<Delivery>& deliveries_;
  std::list<Message> messages_;    // not completed
  std::deque<Place> unannounced_;  // in order of posting
  std::deque<Place> large_;        // announced; the first gives the next piece
  std::optional<std::string> reason_;
  uint32_t next_number_ = 0;
  std::vector<iovec> gathered_;
};

}  // namespace trireme::transport::tcp
