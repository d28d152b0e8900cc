#include "trireme/transport/tcp/outbox.h"

#include <algorithm>
#include <utility>

#include "trireme/transport/tcp/frames.h"

namespace trireme::transport::tcp {

void Outbox::post(uint64_t tag, std::span<const std::byte> data, Completion done) {
  messages_.push_back({next_number_++, tag, data, std::move(done)});
  unannounced_.push_back(std::prev(messages_.end()));
}

void Outbox::add(Lane& lane, const Frame& frame, std::span<const std::byte> payload,
                 std::optional<Place> message) {
  lane.pieces.push_back({to_header(frame), payload, message});
  lane.bytes += lane.pieces.back().size();
}

void Outbox::begin(Place m) {
  Frame frame{FrameKind::message, m->number, m->tag, m->data.size(), 0, m->data.size()};
  if (in_pieces(*m)) {
    frame.kind = FrameKind::announce;
    frame.length = 0;
    large_.push_back(m);
  } else {
    m->taken = m->data.size();
  }
  add(lanes_[0], frame, m->data.first(frame.length), m);
}

void Outbox::take_piece(Lane& lane) {
  const Place m = large_.front();
  const size_t offset = m->taken, length = std::min(kPiece, m->data.size() - offset);
  m->taken += length;
  ++m->open;
  if (m->taken == m->data.size()) large_.pop_front();
  add(lane, {FrameKind::piece, m->number, 0, m->data.size(), offset, length}, m->data.subspan(offset, length),
      m);
}

void Outbox::fill(int connection) {
  Lane& lane = lanes_[static_cast<size_t>(connection)];
  while (lane.bytes < kGathered && lane.pieces.size() < kFrames) {
    if (connection == 0 && !unannounced_.empty()) {
      begin(unannounced_.front());
      unannounced_.pop_front();
    } else if (!large_.empty()) {
      take_piece(lane);
    } else {
      return;
    }
  }
}

const std::vector<iovec>& Outbox::gather(int connection) {
  if (!reason_) fill(connection);
  gathered_.clear();
  const auto add_rest = [&](std::span<const std::byte> bytes, size_t written) {
    if (written >= bytes.size()) return;
    gathered_.push_back({const_cast<std::byte*>(bytes.data()) + written, bytes.size() - written});
  };
  for (const Piece& p : lanes_[static_cast<size_t>(connection)].pieces) {
    add_rest(p.header, p.written);
    add_rest(p.payload, std::max(p.written, kHeaderBytes) - kHeaderBytes);
  }
  return gathered_;
}

void Outbox::wrote(int connection, size_t count) {
  Lane& lane = lanes_[static_cast<size_t>(connection)];
  lane.bytes -= count;
  while (count > 0) {
    Piece& p = lane.pieces.front();
    const size_t part = std::min(count, p.size() - p.written);
    p.written += part;
    count -= part;
    if (p.written < p.size()) return;
    finished(p);
    lane.pieces.pop_front();
  }
}

void Outbox::finished(const Piece& piece) {
  if (!piece.message) return;
  const Place m = *piece.message;
  if (--m->open > 0 || m->taken < m->data.size()) return;
  deliveries_.push_back({std::move(m->done), ok_status(), static_cast<int64_t>(m->data.size())});
  messages_.erase(m);
}

void Outbox::abandon(const Failure& why) {
  for (Lane& lane : lanes_) {
    std::erase_if(lane.pieces, [](const Piece& p) { return p.written == 0; });
    lane.bytes = 0;
    for (Piece& p : lane.pieces) {
      p.message.reset();
      lane.bytes += p.size() - p.written;
    }
  }
  unannounced_.clear();
  large_.clear();
  for (Message& m : messages_) deliveries_.push_back({std::move(m.done), why});
  messages_.clear();
}

void Outbox::say_farewell(std::string reason) {
  TRIREME_CHECK(messages_.empty(), "a farewell before the last message");
  reason.resize(std::min<size_t>(reason.size(), kLongestFarewell));
  reason_ = std::move(reason);
  const auto text = std::as_bytes(std::span(*reason_));
  for (Lane& lane : lanes_)
    add(lane, {FrameKind::farewell, 0, 0, text.size(), 0, text.size()}, text, std::nullopt);
}

}  // namespace trireme::transport::tcp
