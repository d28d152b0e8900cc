#pragma once
// What every Transport must do. A test file instantiates the suite for each way to make one:
//   INSTANTIATE_TEST_SUITE_P(Loopback, TransportConformance, ::testing::Values(…));
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <numeric>
#include <thread>

#include "trireme/base/rng.h"
#include "trireme/transport/transport.h"

namespace trireme::transport {

struct TestWorld {
  std::function<std::unique_ptr<Transport>(int rank)> make;  // called on the rank's thread
  const Clock* clock = &steady_clock();
  std::shared_ptr<void> owner;  // keeps what `make` uses
};

struct TestMaker {
  std::string name;
  std::function<TestWorld(int size)> world;
};

inline void PrintTo(const TestMaker& maker, std::ostream* out) {
  *out << maker.name;
}

class TransportConformance : public ::testing::TestWithParam<TestMaker> {
 protected:
  // One rank of a test, with the waits that the tests share.
  class Rank {
   public:
    Rank(std::unique_ptr<Transport>& transport, const Clock& clock) : transport_(transport), clock_(clock) {}
    Transport* operator->() const { return transport_.get(); }
    void close() { transport_.reset(); }
    const Clock& clock() const { return clock_; }

    using Outcome = std::shared_ptr<std::optional<Status>>;
    Outcome send(int peer, MessageId id, std::span<const std::byte> data) {
      return posted([&](Completion done) { transport_->send(peer, id, data, std::move(done)); });
    }
    Outcome receive(int peer, MessageId id, std::span<std::byte> into) {
      return posted([&](Completion done) { transport_->receive(peer, id, into, std::move(done)); });
    }
    // Progresses until all outcomes are there; a minute is an eternity.
    void wait(const std::vector<Outcome>& outcomes) {
      const Deadline deadline = Deadline::after(clock_, 60);
      for (const auto& outcome : outcomes) {
        while (!*outcome && clock_.now() < deadline.at) transport_->progress(deadline);
        ASSERT_TRUE(outcome->has_value()) << "no completion";
      }
    }
    void succeed(const std::vector<Outcome>& outcomes) {
      wait(outcomes);
      for (const auto& outcome : outcomes) {
        EXPECT_TRUE(*outcome && (*outcome)->ok())
            << (*outcome && !(*outcome)->ok() ? (*outcome)->failure().message : "");
      }
    }
    Failure failure(const Outcome& outcome) {
      wait({outcome});
      EXPECT_TRUE(*outcome && !(*outcome)->ok());
      return *outcome && !(*outcome)->ok() ? (*outcome)->failure() : Failure{};
    }

   private:
    template <typename Post>
    Outcome posted(Post post) {
      auto outcome = std::make_shared<std::optional<Status>>();
      post([outcome](Status status) {
        EXPECT_FALSE(outcome->has_value()) << "completed twice";
        outcome->emplace(std::move(status));
      });
      return outcome;
    }
    std::unique_ptr<Transport>& transport_;
    const Clock& clock_;
  };

  void run(int size, const std::function<void(Rank)>& body) {
    const TestWorld world = GetParam().world(size);
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r) {
      threads.emplace_back([&, r] {
        try {
          auto transport = world.make(r);
          EXPECT_EQ(transport->rank(), r);
          EXPECT_EQ(transport->size(), size);
          body(Rank(transport, *world.clock));
        } catch (const std::exception& e) {
          ADD_FAILURE() << "rank " << r << ": " << e.what();
        }
      });
    }
    for (auto& t : threads) t.join();
  }

  static std::vector<std::byte> pattern(size_t size, uint64_t seed) {
    PhiloxStream rng(seed, size);
    std::vector<std::byte> bytes(size);
    for (auto& b : bytes) b = static_cast<std::byte>(rng.next_u32());
    return bytes;
  }
  static MessageId id(int item, int part = 0) {
    return {1, 70000, static_cast<uint16_t>(item), static_cast<uint16_t>(part)};
  }
};

TEST_P(TransportConformance, MatchesByIdNotByOrder) {
  run(2, [](Rank rank) {
    constexpr int kMessages = 64;
    std::vector<std::vector<std::byte>> data(kMessages);
    std::vector<Rank::Outcome> outcomes;
    for (int i = 0; i < kMessages; ++i) {
      const int k = rank->rank() == 0 ? i : (i * 37 + 5) % kMessages;  // 37 and 64 have no common divisor
      auto& d = data[static_cast<size_t>(k)];
      if (rank->rank() == 0)
        d = pattern(static_cast<size_t>(100 + k), uint64_t(k));
      else
        d.resize(static_cast<size_t>(100 + k));
      outcomes.push_back(rank->rank() == 0 ? rank.send(1, id(k % 8, k / 8), d)
                                           : rank.receive(0, id(k % 8, k / 8), d));
    }
    rank.succeed(outcomes);
    for (int k = 0; k < kMessages; ++k)
      EXPECT_EQ(data[static_cast<size_t>(k)], pattern(static_cast<size_t>(100 + k), uint64_t(k)));
  });
}

TEST_P(TransportConformance, EqualIdsMatchInOrder) {
  run(2, [](Rank rank) {
    std::vector<std::array<std::byte, 1>> data(50);
    std::vector<Rank::Outcome> outcomes;
    for (size_t i = 0; i < data.size(); ++i) {
      if (rank->rank() == 0) data[i] = {std::byte(i)};
      outcomes.push_back(rank->rank() == 0 ? rank.send(1, id(3), data[i]) : rank.receive(0, id(3), data[i]));
    }
    rank.succeed(outcomes);
    for (size_t i = 0; i < data.size(); ++i) EXPECT_EQ(data[i][0], std::byte(i));
  });
}

// Both directions at once, so that neither side can rely on the other to receive first.
TEST_P(TransportConformance, CarriesAnySize) {
  run(2, [](Rank rank) {
    const int peer = 1 - rank->rank();
    int item = 0;
    int64_t total = 0;
    for (const size_t size : {size_t{0}, size_t{1}, size_t{3}, size_t{4095}, size_t{65537}, size_t{1} << 20,
                              (size_t{8} << 20) + 1}) {
      const auto out = pattern(size, uint64_t(rank->rank()));
      std::vector<std::byte> in(size, std::byte{0xee});
      rank.succeed({rank.send(peer, id(item), out), rank.receive(peer, id(item), in)});
      EXPECT_TRUE(in == pattern(size, uint64_t(peer))) << size << " bytes";
      total += static_cast<int64_t>(size);
      ++item;
    }
    EXPECT_EQ(rank->traffic().bytes_sent, total);
    EXPECT_EQ(rank->traffic().bytes_received, total);
  });
}

TEST_P(TransportConformance, CarriesManyMessagesAmongAll) {
  run(4, [](Rank rank) {
    constexpr int kEach = 400;
    std::vector<std::vector<uint32_t>> out(4, std::vector<uint32_t>(kEach)), in = out;
    std::vector<Rank::Outcome> outcomes;
    for (int i = 0; i < kEach; ++i) {
      for (int peer = 0; peer < 4; ++peer) {
        if (peer == rank->rank()) continue;
        auto& mine = out[size_t(peer)][size_t(i)];
        mine = uint32_t(rank->rank() * 100000 + i);
        outcomes.push_back(rank.send(peer, id(i), std::as_bytes(std::span(&mine, 1))));
        outcomes.push_back(
            rank.receive(peer, id(kEach - 1 - i),
                         std::as_writable_bytes(std::span(&in[size_t(peer)][size_t(kEach - 1 - i)], 1))));
      }
    }
    rank.succeed(outcomes);
    for (int peer = 0; peer < 4; ++peer) {
      for (int i = 0; i < kEach && peer != rank->rank(); ++i)
        EXPECT_EQ(in[size_t(peer)][size_t(i)], uint32_t(peer * 100000 + i));
    }
  });
}

TEST_P(TransportConformance, WakesFromAnotherThread) {
  run(2, [](Rank rank) {
    for (int i = 0; i < 20; ++i) {
      std::thread other([&] { rank->wake(); });
      rank->progress({Clock::Nanoseconds::max()});  // returns, or the test hangs
      other.join();
    }
    rank.succeed({rank.send(1 - rank->rank(), id(0), {}), rank.receive(1 - rank->rank(), id(0), {})});
  });
}

TEST_P(TransportConformance, ReturnsAtTheDeadline) {
  run(2, [](Rank rank) {
    std::byte byte{};
    if (rank->rank() == 1) {  // sends only when rank 0 has seen its deadline pass
      rank.succeed({rank.receive(0, id(1), {})});
      rank.succeed({rank.send(0, id(9), std::span(&byte, 1))});
      return;
    }
    const auto outcome = rank.receive(1, id(9), std::span(&byte, 1));
    const Deadline deadline = Deadline::after(rank.clock(), 0.02);
    while (rank.clock().now() < deadline.at) rank->progress(deadline);
    EXPECT_FALSE(outcome->has_value());
    rank.succeed({rank.send(1, id(1), {}), outcome});
  });
}

TEST_P(TransportConformance, NamesBothSizesOfAMismatch) {
  struct Case {
    size_t sent, expected;
    bool late;  // the message is there before its receive
  };
  for (const Case& c : {Case{100, 60, false}, Case{100, 60, true}, Case{60, 100, false}, Case{60, 100, true},
                        Case{3'000'000, 2'000'000, false}, Case{2'000'000, 3'000'000, false}}) {
    run(2, [&](Rank rank) {
      if (rank->rank() == 0) {
        const auto data = pattern(c.sent, 1);
        rank.wait({rank.send(1, id(5), data), rank.send(1, id(6), {})});
        rank.succeed({rank.receive(1, id(7), {})});
        return;
      }
      std::vector<std::byte> into(c.expected);
      if (c.late) rank.succeed({rank.receive(0, id(6), {})});
      const Failure f = rank.failure(rank.receive(0, id(5), into));
      EXPECT_EQ(f.code, ErrorCode::internal);
      for (const auto& part : {cat(c.sent), cat(c.expected), std::string("rank 0")}) {
        EXPECT_NE(f.message.find(part), std::string::npos) << f.message;
      }
      if (!c.late) rank.succeed({rank.receive(0, id(6), {})});
      rank.succeed({rank.send(0, id(7), {})});
    });
  }
}

TEST_P(TransportConformance, CancelEndsEverything) {
  run(2, [](Rank rank) {
    std::byte one{};
    if (rank->rank() == 0) {
      std::vector<std::byte> large(4 << 20);
      const auto receiving = rank.receive(1, id(1), large), sending = rank.send(1, id(2), large);
      rank.succeed({rank.receive(1, id(3), {})});
      const Failure why{ErrorCode::timeout, "enough"};
      rank->cancel(why);
      ASSERT_TRUE(receiving->has_value() && sending->has_value());
      EXPECT_EQ(rank.failure(receiving).message, "enough");
      EXPECT_EQ(rank.failure(receiving).code, ErrorCode::timeout);
      EXPECT_TRUE((*sending)->ok() ||
                  rank.failure(sending).message == "enough");  // buffered sends have completed
      EXPECT_EQ(rank.failure(rank.receive(1, id(4), std::span(&one, 1))).message, "enough");
      EXPECT_EQ(rank.failure(rank.send(1, id(4), std::span(&one, 1))).message, "enough");
    } else {
      const auto outcome = rank.receive(0, id(8), std::span(&one, 1));
      rank.succeed({rank.send(0, id(3), {})});
      const Failure f = rank.failure(outcome);
      EXPECT_EQ(f.code, ErrorCode::peer_lost);
      EXPECT_NE(f.message.find("rank 0 is gone"), std::string::npos) << f.message;
      EXPECT_NE(f.message.find("enough"), std::string::npos) << f.message;
    }
  });
}

TEST_P(TransportConformance, APeerThatEndsFailsWhatWaitsForIt) {
  run(3, [](Rank rank) {
    std::byte one{};
    if (rank->rank() == 2) return;
    const Failure f = rank.failure(rank.receive(2, id(1), std::span(&one, 1)));
    EXPECT_EQ(f.code, ErrorCode::peer_lost);
    EXPECT_NE(f.message.find("rank 2"), std::string::npos) << f.message;
    EXPECT_EQ(rank.failure(rank.receive(2, id(2), std::span(&one, 1))).code, ErrorCode::peer_lost);
    std::vector<std::byte> large(4 << 20);
    EXPECT_EQ(rank.failure(rank.send(2, id(3), large)).code, ErrorCode::peer_lost);
    // The others go on.
    const int peer = 1 - rank->rank();
    rank.succeed({rank.send(peer, id(4), std::span(&one, 1)), rank.receive(peer, id(4), std::span(&one, 1))});
  });
}

TEST_P(TransportConformance, LastMessagesArriveAfterTheirSenderHasEnded) {
  run(2, [](Rank rank) {
    std::vector<std::vector<std::byte>> data(200, std::vector<std::byte>(1000));
    std::vector<Rank::Outcome> outcomes;
    for (size_t i = 0; i < data.size(); ++i) {
      outcomes.push_back(rank->rank() == 0 ? rank.send(1, id(int(i)), data[i])
                                           : rank.receive(0, id(int(i)), data[i]));
    }
    rank.succeed(outcomes);
  });
}

TEST_P(TransportConformance, RefusesNumbersOutOfRange) {
  run(2, [](Rank rank) {
    const int peer = 1 - rank->rank();
    EXPECT_THROW(rank->send(peer, {.channel = 1, .item = kItems}, {}, [](const Status&) {}), Error);
    EXPECT_THROW(rank->receive(peer, {.channel = 1, .part = kParts}, {}, [](const Status&) {}), Error);
    EXPECT_THROW(rank->send(peer, {.channel = kChannels + 1}, {}, [](const Status&) {}), Error);
    rank.succeed({rank.send(peer, id(0), {}), rank.receive(peer, id(0), {})});
  });
}

}  // namespace trireme::transport
