#include "loss_guard.h"

#include <gtest/gtest.h>

#include <future>

namespace trireme::app {
namespace {

// A rendezvous of one rank whose loss the test decides.
class FakeRendezvous : public transport::Rendezvous {
 public:
  void set(const std::string&, const std::string&) override {}
  Result<std::string> get(const std::string&, Seconds) override { return Failure{}; }
  int64_t add(const std::string&, int64_t) override { return 0; }
  Watch watch(std::function<void(const transport::Loss&)> on_loss) override {
    listener = std::move(on_loss);
    return std::shared_ptr<void>(nullptr, [this](void*) { listener = nullptr; });
  }
  std::optional<transport::Loss> loss() const override { return {}; }
  void leave(const std::string&) override {}
  int port() const override { return 0; }
  std::function<void(const transport::Loss&)> listener;
};

const transport::Loss kLoss{1, {ErrorCode::peer_lost, "rank 1 is gone"}};

TEST(LossGuard, EndsAProcessThatDoesNotEndItself) {
  FakeRendezvous rendezvous;
  std::promise<std::string> ended;
  LossGuard guard(rendezvous, Seconds{0.01}, [&](const Failure& why) { ended.set_value(why.message); });
  rendezvous.listener(kLoss);
  EXPECT_EQ(ended.get_future().get(), "rank 1 is gone");
}

TEST(LossGuard, LeavesAProcessAloneThatEnds) {
  FakeRendezvous rendezvous;
  bool ended = false;
  {
    LossGuard guard(rendezvous, Seconds{1000}, [&](const Failure&) { ended = true; });
    rendezvous.listener(kLoss);
  }
  {
    LossGuard guard(rendezvous, Seconds{0}, [&](const Failure&) { ended = true; });
  }
  EXPECT_FALSE(ended);
  EXPECT_EQ(rendezvous.listener, nullptr);
}

}  // namespace
}  // namespace trireme::app
