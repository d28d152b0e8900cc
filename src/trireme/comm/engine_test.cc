#include "trireme/comm/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>
#include <numeric>
#include <thread>

#include "trireme/comm/rank_threads_for_tests.h"

namespace trireme::comm {
namespace {

std::string message_of(const std::function<void()>& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// Buckets are started in another order on every rank, over and over.
TEST(Engine, RunsManyOperationsInAnyOrder) {
  constexpr int kBuckets = 12, kSteps = 20;
  for (const auto& codec : {codec::make_none(), codec::built_in_codecs().make("bf16")}) {
    run_ranks(3, {.loopback = {.shuffle_seed = 5}, .queue_seed = 6}, [&](Group& group, Engine&) {
      std::vector<std::vector<float>> data;
      std::vector<std::unique_ptr<Operation>> operations;
      for (int b = 0; b < kBuckets; ++b) data.emplace_back(static_cast<size_t>(b * 37 + 1));
      for (int b = 0; b < kBuckets; ++b) {
        const auto strategy = b % 2 == 0 ? Strategy::ring : Strategy::two_phase;
        operations.push_back(
            group.prepare_all_reduce(cat("bucket ", b), view_of(data[static_cast<size_t>(b)]),
                                     {.strategy = strategy, .codec = codec, .parts = 1 + b % 3}));
      }
      PhiloxStream rng(9, static_cast<uint64_t>(group.rank()));
      std::vector<size_t> order(kBuckets);
      std::iota(order.begin(), order.end(), size_t{0});
      for (uint32_t step = 65530; step < 65530 + kSteps; ++step) {  // across the wrap of step numbers
        for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[rng.next_u32() % (i + 1)]);
        for (const size_t b : order) {
          std::fill(data[b].begin(), data[b].end(), static_cast<float>(group.rank() + 1));
          operations[b]->start(step, static_cast<int>(b));
        }
        for (size_t b = 0; b < kBuckets; ++b) {
          operations[b]->wait();
          EXPECT_TRUE(operations[b]->done());
          EXPECT_EQ(data[b], std::vector<float>(data[b].size(), 6));
        }
      }
    });
  }
}

// Its first progress() returns for several wakes at once, as any transport may.
class SlowToWake final : public transport::Transport {
 public:
  std::string_view name() const override { return "slow"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void send(int, transport::MessageId, std::span<const std::byte>, transport::Completion) override {}
  void receive(int, transport::MessageId, std::span<std::byte>, transport::Completion) override {}
  void progress(Deadline) override {
    if (++sleeps > 1) return;  // what would wake the second one has passed already
    asleep.set_value();
    std::unique_lock lock(mutex_);
    woken_.wait(lock, [&] { return wakes_ >= 2; });
  }
  void wake() override {
    std::lock_guard lock(mutex_);
    ++wakes_;
    woken_.notify_all();
  }
  void cancel(const Failure&) override {}
  transport::Traffic traffic() const override { return {}; }
  std::promise<void> asleep;
  int sleeps = 0;  // read once the engine's thread has ended

 private:
  std::mutex mutex_;
  std::condition_variable woken_;
  int wakes_ = 0;
};

TEST(Engine, EndsWhenFailureAndDestructionArriveTogether) {
  SlowToWake transport;
  const auto queue = make_cpu_queue();
  {
    Engine engine(transport, *queue, {});
    transport.asleep.get_future().wait();
    engine.cancel({ErrorCode::peer_lost, "rank 1 is gone"});
  }
  EXPECT_EQ(transport.sleeps, 1) << "it slept again, with nobody left to wake it";
}

constexpr RankWorld kFailing{.end_together = false};

TEST(Engine, NamesWhatATimeoutWaitedFor) {
  RankWorld world = kFailing;
  world.engine.timeout = Seconds{0.05};
  std::promise<void> over;
  run_ranks(2, world, [&](Group& group, Engine&) {
    if (group.rank() == 0) return over.get_future().wait();  // takes no part
    std::vector<float> data(4);
    const auto op = group.prepare_all_reduce("bucket 3", view_of(data), {});
    op->start(0, 0);
    const std::string text = message_of([&] { op->wait(); }, ErrorCode::timeout);
    EXPECT_CONTAINS(text, "rank 1: bucket 3: ");
    EXPECT_CONTAINS(text, " rank 0 has waited ");
    EXPECT_CONTAINS(text, "transport.timeout = 50.0 ms");
    // The engine has ended: later operations say the same at once.
    EXPECT_EQ(message_of([&] { group.all_reduce(view_of(data)); }, ErrorCode::timeout), text);
    over.set_value();
  });
}

TEST(Engine, NamesALostPeer) {
  run_ranks(3, kFailing, [](Group& group, Engine&) {
    if (group.rank() == 2) return;  // leaves at once
    std::vector<float> data(100);
    const std::string text = message_of([&] { group.all_reduce(view_of(data)); }, ErrorCode::peer_lost);
    EXPECT_CONTAINS(text, cat("rank ", group.rank(), ": all-reduce: "));
    EXPECT_CONTAINS(text, "rank 2 is gone");
  });
}

TEST(Engine, CancelEndsWaitingOperations) {
  run_ranks(2, kFailing, [](Group& group, Engine& engine) {
    if (group.rank() == 0) {
      std::vector<std::byte> one(1);  // returns when rank 1 has given up
      message_of([&] { group.receive(1, one); }, ErrorCode::peer_lost);
      return;
    }
    std::vector<float> data(4);
    const auto op = group.prepare_all_reduce("bucket 0", view_of(data), {});
    op->start(0, 0);
    std::thread other([&] { engine.cancel({ErrorCode::cancelled, "stopped by a signal"}); });
    EXPECT_EQ(message_of([&] { op->wait(); }, ErrorCode::cancelled), "stopped by a signal");
    other.join();
    EXPECT_EQ(message_of([&] { group.barrier(); }, ErrorCode::cancelled), "stopped by a signal");
  });
}

TEST(Engine, ClosingEndsOperationsThatOutliveIt) {
  auto transports = transport::make_loopback(2);
  const auto queue = make_cpu_queue();
  std::vector<float> data(4);
  std::unique_ptr<Operation> running, dropped, idle;
  {
    Engine engine(*transports[0], *queue, {});
    Group group(engine);
    running = group.prepare_all_reduce("running", view_of(data), {});
    idle = group.prepare_all_reduce("idle", view_of(data), {});
    running->start(0, 0);
  }
  message_of([&] { running->wait(); }, ErrorCode::cancelled);
  idle->wait();  // never started
}

TEST(Engine, DroppingARunningOperationEndsTheEngine) {
  auto transports = transport::make_loopback(2);
  const auto queue = make_cpu_queue();
  std::vector<float> data(4);
  Engine engine(*transports[0], *queue, {});
  Group group(engine);
  group.prepare_all_reduce("bucket 7", view_of(data), {})->start(0, 0);
  EXPECT_CONTAINS(message_of([&] { group.barrier(); }, ErrorCode::cancelled),
                  "bucket 7 was dropped while it ran");
}

class BrokenCodec : public codec::Codec {
 public:
  std::string_view name() const override { return "broken"; }
  codec::Traits traits() const override { return {}; }
  size_t wire_bound(size_t elements) const override { return elements; }
  size_t encode(std::span<const float> in, std::span<std::byte>, const codec::Call&,
                codec::State) const override {
    return in.size();
  }
  void decode(std::span<const std::byte>, std::span<float>) const override {
    fail(ErrorCode::input, "bad payload");
  }
  void decode_add(std::span<const std::byte>, std::span<float>) const override {
    fail(ErrorCode::input, "bad payload");
  }
};

// A loss that somebody else has noticed.
TEST(Engine, NamesWhatWaitedForALostRank) {
  run_ranks(2, kFailing, [](Group& group, Engine& engine) {
    if (group.rank() == 1) {  // stays until rank 0 has given up
      message_of([&] { group.barrier(); }, ErrorCode::peer_lost);
      return;
    }
    std::vector<std::byte> data(8);
    std::thread other([&] { engine.lost(1, {ErrorCode::peer_lost, "rank 1 is silent"}); });
    const std::string text = message_of([&] { group.receive(1, data); }, ErrorCode::peer_lost);
    other.join();
    EXPECT_CONTAINS(text, "rank 0: ");
    EXPECT_CONTAINS(text, "rank 1 is silent");
    EXPECT_EQ(message_of([&] { group.barrier(); }, ErrorCode::peer_lost), text);
  });
}

TEST(Engine, NamesATaskThatFailed) {
  run_ranks(2, kFailing, [](Group& group, Engine&) {
    std::vector<float> data(100);
    try {
      group.all_reduce(view_of(data), {.codec = std::make_shared<BrokenCodec>()});
      ADD_FAILURE();
    } catch (const Error& e) {  // whoever decodes first fails, the other loses it
      const std::string text = e.what();
      if (e.code() == ErrorCode::input) {
        EXPECT_CONTAINS(text, cat("rank ", group.rank(), ": all-reduce: merge: bad payload"));
      } else {
        EXPECT_EQ(e.code(), ErrorCode::peer_lost);
        EXPECT_CONTAINS(text, "bad payload");
      }
    }
  });
}

TEST(Engine, NamesBothSizesWhenRanksDisagree) {
  run_ranks(2, kFailing, [](Group& group, Engine&) {
    std::vector<float> data(group.rank() == 0 ? 64 : 32);
    try {
      group.all_reduce(view_of(data));
      ADD_FAILURE();
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_CONTAINS(text, "bytes where");
      EXPECT_CONTAINS(text, "64");
      EXPECT_CONTAINS(text, "128");
    }
  });
}

TEST(Engine, CountsCodecTimeAndTracesPrimitives) {
  run_ranks(2, {}, [](Group& group, Engine& engine) {
    std::vector<float> data(1 << 16);
    group.all_reduce(view_of(data), {.codec = codec::built_in_codecs().make("bf16")});
    EXPECT_GT(engine.take_times().codec_s, 0);
    EXPECT_EQ(engine.take_times().codec_s, 0);
    // 2(n-1)/n of the tensor, two bytes an element, and a header for each of two payloads.
    EXPECT_EQ(engine.transport().traffic().bytes_sent, (1 << 17) + 16);
    EXPECT_EQ(engine.transport().traffic().bytes_received, (1 << 17) + 16);
  });
  Tracer tracer(steady_clock());
  run_ranks(2, {.engine = {.tracer = &tracer}}, [](Group& group, Engine&) {
    std::vector<float> data(16);
    group.all_reduce(view_of(data), {.codec = codec::built_in_codecs().make("bf16")});
  });
  const std::string json = tracer.to_json();
  for (const char* part :
       {"all-reduce encode", "all-reduce merge", "all-reduce decode", "send to 1", "receive from 0"}) {
    EXPECT_CONTAINS(json, part);
  }
}

TEST(ComputeQueue, RunsLowerNumbersFirst) {
  std::vector<int> order;
  std::promise<void> gate;
  {
    const auto queue = make_cpu_queue();
    queue->submit(0, [&] { gate.get_future().wait(); });
    for (const int priority : {3, 1, 2, 1})
      queue->submit(priority, [&, priority] { order.push_back(priority); });
    gate.set_value();
  }
  EXPECT_EQ(order, (std::vector{1, 1, 2, 3}));
}

}  // namespace
}  // namespace trireme::comm
