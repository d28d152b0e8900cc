#include "trireme/train/data_parallel/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/comm/rank_threads_for_tests.h"

namespace trireme::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> on_ranks(int size, const std::function<void(comm::Group&)>& body) {
  return comm::errors_of_ranks(size, ErrorCode::usage, body);
}

// What agree threw on every rank, "" for nothing.
std::vector<std::string> agreeing(int size, const std::function<void(int rank, RunFacts&)>& change) {
  const auto store = transport::make_memory_store();
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      RunFacts facts{"1", "steps = 5\nlr = 1", ~uint64_t{0}};
      change(rank, facts);
      try {
        agree(*store, rank, size, facts, Seconds{20});
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::usage) << e.what();
        errors[static_cast<size_t>(rank)] = e.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

TEST(Agreement, EqualFactsPass) {
  for (const int size : {1, 2, 4}) EXPECT_THAT(agreeing(size, [](int, RunFacts&) {}), testing::Each(""));
}

TEST(Agreement, EveryRankNamesTheOneThatDiffers) {
  const auto differ = [](const std::function<void(RunFacts&)>& change) {
    return agreeing(3, [&](int rank, RunFacts& facts) {
      if (rank == 2) change(facts);
    });
  };
  EXPECT_THAT(differ([](RunFacts& f) { f.version = "2"; }),
              testing::Each(AllOf(HasSubstr("rank 2"), HasSubstr("version"))));
  EXPECT_THAT(differ([](RunFacts& f) { f.config = "steps = 5\nlr = 2"; }),
              testing::Each(AllOf(HasSubstr("rank 2"), HasSubstr("config"),
                                  HasSubstr("'lr = 2' there, 'lr = 1' on rank 0"))));
  EXPECT_THAT(differ([](RunFacts& f) { f.config = "steps = 5"; }),
              testing::Each(HasSubstr("'nothing' there")));
  EXPECT_THAT(differ([](RunFacts& f) { f.graph_fingerprint = 8; }),
              testing::Each(AllOf(HasSubstr("rank 2"), HasSubstr("model.graph"))));
  EXPECT_THAT(differ([](RunFacts& f) { f.samples = 8; }),
              testing::Each(AllOf(HasSubstr("rank 2 has 8 training"), HasSubstr("same data files"))));
}

// Rank 2 comes when rank 0 has judged: it is told all the same.
TEST(Agreement, LateRanksHearTheVerdict) {
  const auto store = transport::make_memory_store();
  std::vector<std::thread> ranks;
  std::array<std::string, 3> errors;
  for (const int rank : {0, 1, 2}) {
    ranks.emplace_back([&, rank] {
      if (rank == 2) (void)store->get("verdict", Seconds{20});
      try {
        agree(*store, rank, 3, {.config = rank == 1 ? "lr = 2" : "lr = 1"}, Seconds{20});
      } catch (const Error& e) {
        errors[static_cast<size_t>(rank)] = e.what();
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_THAT(errors, testing::Each(HasSubstr("rank 1 has another config")));
  EXPECT_TRUE(store->get("heard/2", Seconds{0}).ok()) << "rank 0 went before";
}

TEST(Agreement, ARankThatDoesNotComeIsNamed) {
  const auto store = transport::make_memory_store();
  try {
    agree(*store, 0, 2, {}, Seconds{0.01});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::timeout);
    EXPECT_THAT(e.what(), HasSubstr("rank 1 did not join within 10.0 ms"));
  }
}

TEST(Agreement, GathersByRankAndBroadcastsTextOfAnyLength) {
  const auto errors = on_ranks(3, [](comm::Group& group) {
    EXPECT_THAT(gather(group, group.rank() + 0.25), ElementsAre(0.25, 1.25, 2.25));
    EXPECT_THAT(gather(group, static_cast<uint64_t>(group.rank()) << 60),
                ElementsAre(0, 1ULL << 60, 2ULL << 60));
    EXPECT_EQ(broadcast_text(group, group.rank() == 1 ? "abc" : "something else", 1), "abc");
    EXPECT_EQ(broadcast_text(group, group.rank() == 2 ? "" : "x", 2), "");
  });
  EXPECT_THAT(errors, testing::Each(""));
}

TEST(Agreement, WorkThatOutlastsTheTimeoutDoesNotLoseThePeers) {
  // Rank 0's work ends when rank 1 has run its own and the ranks have exchanged several messages since.
  std::atomic<int> ran{0};
  const Seconds timeout{0.02};
  auto transports = transport::make_loopback(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto queue = comm::make_cpu_queue();
      comm::Engine engine(*transports[static_cast<size_t>(rank)], *queue, {.timeout = Seconds{20}});
      comm::Group group(engine);
      const auto bytes = [&] { return transports[static_cast<size_t>(rank)]->traffic().bytes_sent; };
      run_together(group, timeout, [&] {
        ++ran;
        if (rank == 1) return;
        const auto start = bytes();
        const Deadline deadline = Deadline::after(steady_clock(), 10);
        while (bytes() < start + 40 && steady_clock().now() < deadline.at) std::this_thread::yield();
        EXPECT_GE(bytes(), start + 40) << "five messages of eight bytes while the work went on";
      });
      EXPECT_EQ(ran, 2);
    });
  }
  for (auto& t : threads) t.join();
}

TEST(Agreement, WorkThatFailsThrowsOnItsOwnRank) {
  EXPECT_THAT(on_ranks(2,
                       [](comm::Group& group) {
                         run_together(group, Seconds{20}, [&] {
                           if (group.rank() == 1) fail(ErrorCode::usage, "no room");
                         });
                       }),
              ElementsAre("", "no room"));
}

}  // namespace
}  // namespace trireme::train
