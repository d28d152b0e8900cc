#include "trireme/transport/conformance_for_tests.h"

namespace trireme::transport {
namespace {

TestMaker loopback(std::string name, LoopbackOptions options) {
  return {std::move(name), [options](int size) {
            auto ranks =
                std::make_shared<std::vector<std::unique_ptr<Transport>>>(make_loopback(size, options));
            return TestWorld{.make = [ranks](int r) { return std::move((*ranks)[static_cast<size_t>(r)]); }};
          }};
}

INSTANTIATE_TEST_SUITE_P(Loopback, TransportConformance,
                         ::testing::Values(loopback("plain", {}), loopback("shuffled", {.shuffle_seed = 5}),
                                           loopback("delayed", {.shuffle_seed = 6, .delay = Seconds{2e-4}})),
                         [](const auto& info) { return info.param.name; });

TEST(Loopback, ASendWaitsForItsReceive) {
  auto ranks = make_loopback(2);
  bool sent = false;
  const std::byte data{};
  ranks[0]->send(1, {}, std::span(&data, 1), [&](const Status&) { sent = true; });
  ranks[0]->progress({Clock::Nanoseconds{0}});
  EXPECT_FALSE(sent);
  std::byte into{};
  ranks[1]->receive(0, {}, std::span(&into, 1), [](const Status&) {});
  ranks[0]->progress({Clock::Nanoseconds{0}});
  EXPECT_TRUE(sent);
}

TEST(MessageId, TagsAreDistinct) {
  EXPECT_NE(to_tag(1, {}), to_tag(2, {}));
  EXPECT_NE(to_tag(1, {.channel = 1}), to_tag(1, {.step = 1}));
  EXPECT_NE(to_tag(1, {.item = 1}), to_tag(1, {.part = 1}));
  EXPECT_EQ(to_tag(1, {.step = 65536 + 7}), to_tag(1, {.step = 7}));
  EXPECT_NE(to_tag(1, {.channel = 1, .step = 65535, .item = kItems - 1, .part = kParts - 1}),
            to_tag(1, {.channel = 2, .step = 0, .item = 0, .part = 0}));
}

}  // namespace
}  // namespace trireme::transport
