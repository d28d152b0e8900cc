#include "trireme/transport/tcp/places.h"

#include <gtest/gtest.h>

namespace trireme::transport::tcp {
namespace {

constexpr uint32_t ip(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return a << 24 | b << 16 | c << 8 | d;
}

const Interface kLo{"lo", true, true, {{kLoopback, 0xff000000}}};
const Interface kEth{"eth0", true, false, {{ip(10, 0, 0, 2), 0xffffff00}}};
const Places kPeer{"host", 0, {{ip(172, 17, 0, 1), 9}, {ip(10, 0, 0, 7), 9}, {kLoopback, 9}}};

TEST(Places, KeepTheirText) {
  for (const Places& places : {kPeer, Places{"h", 2, {{1, 2}, {3, 4}}}, Places{"h", 0, {}}}) {
    EXPECT_EQ(parse_places(to_text(places)), places);
  }
  for (const char* text : {"", "h", "h x", "h 0 10.0.0.1", "h 0 10.0.0:1", "h 0 10.0.0.1:99999",
                           "h 0 10.0.0.1:1x", "h 2 10.0.0.1:1", "h -1 10.0.0.1:1"}) {
    EXPECT_EQ(parse_places(text), std::nullopt) << text;
  }
}

TEST(Places, OfTheSameHostAreTriedOnTheLoopbackFirst) {
  EXPECT_EQ(candidates(kPeer, "host", {kLo, kEth}, 0).front(), (Address{kLoopback, 9}));
}

TEST(Places, OfAnotherHostAreTriedOnACommonNetworkFirst) {
  const auto found = candidates(kPeer, "elsewhere", {kLo, kEth}, 0);
  EXPECT_EQ(found, (std::vector<Address>{{ip(10, 0, 0, 7), 9}, {ip(172, 17, 0, 1), 9}}));
}

TEST(Places, OfNamedInterfacesTakeTurns) {
  const Places named{"host", 2, {{ip(10, 0, 0, 7), 1}, {ip(10, 0, 1, 7), 2}}};
  for (int index = 0; index < 4; ++index) {
    EXPECT_EQ(candidates(named, "host", {kLo, kEth}, index),
              (std::vector<Address>{named.addresses[static_cast<size_t>(index % 2)]}));
  }
}

}  // namespace
}  // namespace trireme::transport::tcp
