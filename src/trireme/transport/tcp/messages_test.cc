// Outbox, readers and inbox of one pair of ranks, joined by memory instead of sockets.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>

#include "trireme/base/rng.h"
#include "trireme/transport/tcp/outbox.h"
#include "trireme/transport/tcp/reader.h"

namespace trireme::transport::tcp {
namespace {

constexpr int kSender = 3;

MessageId id(int item) {
  return {1, 2, static_cast<uint16_t>(item), 0};
}

// Moves bytes as a network would: any number of them at a time, connections in any order.
class Wire {
 public:
  Wire(int connections, uint64_t seed)
      : inbox(kSender, received),
        outbox(connections, sent),
        rng_(seed, 0),
        travelling_(static_cast<size_t>(connections)) {
    for (int c = 0; c < connections; ++c) readers_.emplace_back(inbox, kSender);
  }

  size_t below(size_t bound) { return rng_.next_u64() % bound; }
  Reader& reader(size_t c) { return readers_[c]; }

  bool write_some(int connection) {
    size_t count = 0, room = 1 + below(kMost);
    auto& to = travelling_[static_cast<size_t>(connection)];
    for (const iovec& part : outbox.gather(connection)) {
      const size_t n = std::min(part.iov_len, room - count);
      const auto* bytes = static_cast<const std::byte*>(part.iov_base);
      to.insert(to.end(), bytes, bytes + n);
      count += n;
    }
    if (count > 0) outbox.wrote(connection, count);
    return count > 0;
  }

  bool read_some(int connection) {
    auto& from = travelling_[static_cast<size_t>(connection)];
    if (from.empty()) return false;
    size_t count = 0, room = std::min(from.size(), 1 + below(kMost));
    Reader& reader = readers_[static_cast<size_t>(connection)];
    for (const iovec& place : reader.places()) {
      const size_t n = std::min(place.iov_len, room - count);
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(count), n,
                  static_cast<std::byte*>(place.iov_base));
      count += n;
    }
    from.erase(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
    const Status status = reader.took(count);
    EXPECT_TRUE(status.ok()) << status.failure().message;
    return true;
  }

  void step() {
    const int c = static_cast<int>(below(readers_.size()));
    below(2) == 0 ? write_some(c) : read_some(c);
  }
  void finish() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int c = 0; c < static_cast<int>(readers_.size()); ++c) {
        moved = write_some(c) || moved;
        moved = read_some(c) || moved;
      }
    }
  }

  std::vector<Delivery> received, sent;
  Inbox inbox;
  Outbox outbox;

 private:
  static constexpr size_t kMost = 300'000;
  PhiloxStream rng_;
  std::deque<Reader> readers_;
  std::vector<std::deque<std::byte>> travelling_;
};

std::vector<std::byte> content(size_t size, uint64_t seed) {
  PhiloxStream rng(seed, size);
  std::vector<std::byte> bytes(size);
  for (auto& b : bytes) b = static_cast<std::byte>(rng.next_u32());
  return bytes;
}

class Messages : public ::testing::TestWithParam<int> {};

// Sizes around every border, receives before, during and after the transfer, some ids twice.
TEST_P(Messages, ArriveWholeWhateverTheOrder) {
  const std::vector<size_t> sizes = {0,     1,     39,     40,     41,     65535,
                                     65536, 65537, 262143, 262144, 262145, 1'000'003};
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Wire wire(GetParam(), seed);
    struct Pair {
      std::vector<std::byte> out, in;
      bool posted = false;
    };
    std::vector<Pair> pairs(24);
    for (size_t i = 0; i < pairs.size(); ++i) {
      pairs[i].out = content(sizes[(i / 2 * 7 + seed) % sizes.size()], seed * 100 + i);
      pairs[i].in.resize(pairs[i].out.size());
      wire.outbox.post(to_tag(kSender, id(static_cast<int>(i / 2))), pairs[i].out, [](const Status&) {});
    }
    size_t done = 0;
    const auto post = [&](size_t i) {
      pairs[i].posted = true;
      wire.inbox.post(id(static_cast<int>(i / 2)), pairs[i].in, [&](const Status& s) { done += s.ok(); });
    };
    for (int turn = 0; turn < 400; ++turn) {
      const size_t i = wire.below(pairs.size());
      // Equal ids are received in order.
      if (!pairs[i].posted && (i % 2 == 0 || pairs[i - 1].posted) && wire.below(8) == 0) post(i);
      wire.step();
    }
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (!pairs[i].posted) post(i);
    }
    wire.finish();
    for (Delivery& d : wire.received) d.done(d.status);
    EXPECT_EQ(done, pairs.size());
    EXPECT_EQ(wire.sent.size(), pairs.size());
    EXPECT_FALSE(wire.inbox.outstanding() || wire.outbox.outstanding());
    for (const Pair& p : pairs) EXPECT_TRUE(p.in == p.out) << p.out.size() << " bytes, seed " << seed;
  }
}

TEST_P(Messages, OfTheWrongSizeAreReadAndDropped) {
  Wire wire(GetParam(), 1);
  const auto large = content(700'000, 1), small = content(10, 2);
  std::vector<std::byte> wrong(699'999), right(10);
  wire.outbox.post(to_tag(kSender, id(1)), large, [](const Status&) {});
  wire.outbox.post(to_tag(kSender, id(2)), small, [](const Status&) {});
  std::map<int, std::string> told;
  wire.inbox.post(id(1), wrong, [&](const Status& s) { told[1] = s.ok() ? "" : s.failure().message; });
  wire.inbox.post(id(2), right, [&](const Status& s) { told[2] = s.ok() ? "" : s.failure().message; });
  wire.finish();
  for (Delivery& d : wire.received) d.done(d.status);
  EXPECT_NE(told.at(1).find("700000"), std::string::npos) << told.at(1);
  EXPECT_EQ(told.at(2), "");
  EXPECT_EQ(right, small);
}

// After an abandon the frames that were begun are completed, so that the farewell can be understood.
TEST_P(Messages, AFarewellFollowsWhatWasBegun) {
  Wire wire(GetParam(), 5);
  const auto large = content(2'000'000, 1);
  wire.outbox.post(to_tag(kSender, id(1)), large, [](const Status&) {});
  for (int i = 0; i < 6; ++i) wire.step();
  wire.outbox.abandon({ErrorCode::cancelled, "enough"});
  ASSERT_EQ(wire.sent.size(), 1u);
  EXPECT_FALSE(wire.sent[0].status.ok());
  wire.outbox.say_farewell("enough");
  wire.finish();
  for (int c = 0; c < GetParam(); ++c) EXPECT_EQ(wire.reader(static_cast<size_t>(c)).farewell(), "enough");
}

TEST_P(Messages, ThatHaveArrivedAreReceivedAfterTheEnd) {
  Wire wire(GetParam(), 9);
  const auto whole = content(300'000, 1), half = content(300'000, 2);
  wire.outbox.post(to_tag(kSender, id(1)), whole, [](const Status&) {});
  wire.finish();
  wire.outbox.post(to_tag(kSender, id(2)), half, [](const Status&) {});
  wire.write_some(0);
  wire.read_some(0);
  wire.inbox.end({ErrorCode::peer_lost, "gone"});
  std::vector<std::byte> in(300'000);
  std::vector<bool> outcomes;
  wire.inbox.post(id(1), in, [&](const Status& s) { outcomes.push_back(s.ok()); });
  wire.inbox.post(id(2), in, [&](const Status& s) { outcomes.push_back(s.ok()); });
  for (Delivery& d : wire.received) d.done(d.status);
  EXPECT_EQ(outcomes, (std::vector<bool>{true, false}));
  EXPECT_EQ(in, whole);
}

INSTANTIATE_TEST_SUITE_P(Connections, Messages, ::testing::Values(1, 2, 5));

}  // namespace
}  // namespace trireme::transport::tcp
