#include <gtest/gtest.h>

#include "trireme/transport/transport.h"

namespace trireme::transport {
namespace {

// Notes when messages are posted; waiting moves the fake clock to the deadline.
class Recorder : public Transport {
 public:
  explicit Recorder(FakeClock& clock) : clock_(clock) {}
  struct Sent {
    double at;
    int item;
  };
  std::vector<Sent> sent;
  std::vector<Completion> dones;
  bool cancelled = false;

  std::string_view name() const override { return "recorder"; }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void send(int, MessageId id, std::span<const std::byte>, Completion done) override {
    sent.push_back({static_cast<double>(clock_.now().count()) * 1e-9, id.item});
    dones.push_back(std::move(done));
  }
  void receive(int, MessageId, std::span<std::byte>, Completion done) override {
    dones.push_back(std::move(done));
  }
  void progress(Deadline deadline) override {
    for (auto& done : std::exchange(dones, {})) done(ok_status());
    if (woken)
      woken = false;
    else if (deadline.at > clock_.now())
      clock_.advance(deadline.at - clock_.now());
  }
  void wake() override { woken = true; }
  void cancel(const Failure&) override { cancelled = true; }
  Traffic traffic() const override { return {}; }
  bool woken = false;

 private:
  FakeClock& clock_;
};

struct PacedTest : ::testing::Test {
  FakeClock clock;
  Recorder* below = nullptr;
  std::unique_ptr<Transport> make(Rate rate, Seconds latency) {
    auto recorder = std::make_unique<Recorder>(clock);
    below = recorder.get();
    return make_paced(std::move(recorder), rate, latency, clock);
  }
};

TEST_F(PacedTest, MessagesShareTheRateAndArriveALatencyLater) {
  const auto paced = make(Rate{1000}, Seconds{0.25});
  const std::vector<std::byte> data(500);
  int done = 0;
  for (int i = 0; i < 3; ++i)
    paced->send(1, {.item = uint16_t(i)}, data, [&](const Status& s) { done += s.ok(); });
  EXPECT_TRUE(below->sent.empty());
  while (done < 3) paced->progress({std::chrono::seconds(10)});
  ASSERT_EQ(below->sent.size(), 3u);
  EXPECT_NEAR(below->sent[0].at, 0.75, 1e-9);
  EXPECT_NEAR(below->sent[1].at, 1.25, 1e-9);
  EXPECT_NEAR(below->sent[2].at, 1.75, 1e-9);
  // An idle link saves nothing up.
  clock.advance(std::chrono::seconds(100));
  const double now = static_cast<double>(clock.now().count()) * 1e-9;
  paced->send(1, {}, data, [&](const Status&) { ++done; });
  while (done < 4) paced->progress({std::chrono::seconds(1000)});
  EXPECT_NEAR(below->sent[3].at, now + 0.75, 1e-9);
}

TEST_F(PacedTest, ReturnsForWakesDeliveriesAndDeadlinesOnly) {
  const auto paced = make(Rate{1000}, {});
  const std::vector<std::byte> data(5000);
  paced->send(1, {}, data, [](const Status&) {});
  paced->progress({std::chrono::seconds(2)});  // the message leaves at 5 s
  EXPECT_EQ(clock.now(), std::chrono::seconds(2));
  paced->wake();
  paced->progress({std::chrono::seconds(100)});
  EXPECT_EQ(clock.now(), std::chrono::seconds(2));
  bool received = false;
  paced->receive(1, {}, {}, [&](const Status&) { received = true; });
  paced->progress({std::chrono::seconds(100)});
  EXPECT_TRUE(received);
}

TEST_F(PacedTest, CancelEndsWhatIsHeldBack) {
  const auto paced = make(Rate{1}, {});
  const std::vector<std::byte> data(5000);
  std::string why;
  paced->send(1, {}, data, [&](const Status& s) { why = s.failure().message; });
  paced->cancel({ErrorCode::cancelled, "enough"});
  EXPECT_EQ(why, "enough");
  EXPECT_TRUE(below->cancelled);
}

// 1 MB at a byte in 11 days takes longer than can be counted in nanoseconds.
TEST_F(PacedTest, TheSlowestRateStillHoldsBack) {
  const auto paced = make(Rate{1e-6}, Seconds{3600});
  const std::vector<std::byte> data(1'000'000);
  for (int i = 0; i < 1000; ++i) paced->send(1, {}, data, [](const Status&) {});
  paced->progress({std::chrono::hours(24 * 12)});
  EXPECT_TRUE(below->sent.empty());
}

TEST_F(PacedTest, WithoutLimitNothingIsHeldBack) {
  const auto paced = make({}, {});
  const std::vector<std::byte> data(5000);
  bool done = false;
  paced->send(1, {}, data, [&](const Status&) { done = true; });
  paced->progress({std::chrono::seconds(1)});
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace trireme::transport
