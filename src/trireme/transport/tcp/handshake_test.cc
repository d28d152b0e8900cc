#include "trireme/transport/tcp/handshake.h"

#include <gtest/gtest.h>

#include <tuple>

namespace trireme::transport::tcp {
namespace {

Claim claim(uint32_t rank, bool has_secret = true) {
  return {Purpose::data, rank, 4, 1, 2, has_secret};
}

struct Outcome {
  std::string caller, acceptor;  // why the other was refused; "" where it was not
  bool proved = false;           // both
};

Outcome meet(Handshake caller, Handshake acceptor) {
  Outcome out;
  for (int turn = 0; turn < 4; ++turn) {
    for (auto [from, to, why] :
         {std::tuple{&caller, &acceptor, &out.acceptor}, {&acceptor, &caller, &out.caller}}) {
      const auto bytes = from->take_reply();
      if (bytes.empty()) continue;
      EXPECT_EQ(bytes.size(), to->wanted());
      if (Status s = to->take(bytes); !s) {
        *why = s.failure().message;
        return out;
      }
    }
  }
  out.proved = caller.proved() && acceptor.proved();
  if (out.proved) {
    EXPECT_EQ(caller.peer().rank, 0u);
    EXPECT_EQ(acceptor.peer(), claim(3, acceptor.peer().has_secret));
  }
  return out;
}

using Role = Handshake::Role;

TEST(Handshake, ProvesBothSides) {
  for (const bool has_secret : {true, false}) {
    const Outcome out = meet({Role::caller, claim(3, has_secret), {"secret", "world"}},
                             {Role::acceptor, claim(0, has_secret), {"secret", "world"}});
    EXPECT_TRUE(out.proved) << out.caller << out.acceptor;
  }
}

TEST(Handshake, RefusesWhoDoesNotKnowTheKey) {
  const Outcome secret =
      meet({Role::caller, claim(3), {"another", "world"}}, {Role::acceptor, claim(0), {"secret", "world"}});
  EXPECT_NE(secret.caller.find("transport.secret_file"), std::string::npos) << secret.caller;
  const Outcome world = meet({Role::caller, claim(3, false), {"old", "old"}},
                             {Role::acceptor, claim(0, false), {"new", "new"}});
  EXPECT_NE(world.caller.find("does not belong to this run"), std::string::npos) << world.caller;
  const Outcome other_run =
      meet({Role::caller, claim(3), {"secret", "old"}}, {Role::acceptor, claim(0), {"secret", "new"}});
  EXPECT_FALSE(other_run.caller.empty());
  const Outcome mixed = meet({Role::caller, claim(3, false), {"world", "world"}},
                             {Role::acceptor, claim(0), {"secret", "world"}});
  EXPECT_NE(mixed.acceptor.find("this side has a transport.secret_file"), std::string::npos)
      << mixed.acceptor;
}

// Whoever records a conversation cannot use any of it again: challenges differ.
TEST(Handshake, RefusesWhatWasSaidBefore) {
  Handshake caller(Role::caller, claim(3), {"secret", "world"}),
      first(Role::acceptor, claim(0), {"secret", "world"});
  const auto greeting = caller.take_reply();
  ASSERT_TRUE(first.take(greeting).ok());
  ASSERT_TRUE(caller.take(first.take_reply()).ok());
  const auto proof = caller.take_reply();
  Handshake second(Role::acceptor, claim(0), {"secret", "world"});
  ASSERT_TRUE(second.take(greeting).ok());
  EXPECT_FALSE(second.take(proof).ok());
  EXPECT_TRUE(first.take(proof).ok());
}

// A stranger without the secret who sends our own words back to us.
TEST(Handshake, RefusesItsOwnEcho) {
  Handshake caller(Role::caller, claim(3), {"secret", "world"});
  auto echo = caller.take_reply();
  echo.resize(caller.wanted());
  EXPECT_FALSE(caller.take(echo).ok());
  Handshake acceptor(Role::acceptor, claim(0), {"secret", "world"}),
      other(Role::caller, claim(3), {"?", "world"});
  ASSERT_TRUE(acceptor.take(other.take_reply()).ok());
  auto answer = acceptor.take_reply();
  answer.erase(answer.begin(), answer.end() - static_cast<std::ptrdiff_t>(acceptor.wanted()));
  EXPECT_FALSE(acceptor.take(answer).ok());
}

TEST(Handshake, SaysWhatIsWrongWithAGreeting) {
  Handshake caller(Role::caller, claim(3), {"secret", "world"});
  const auto good = caller.take_reply();
  const auto reason = [&](size_t at, std::byte value) {
    auto bytes = good;
    bytes[at] = value;
    Handshake acceptor(Role::acceptor, claim(0), {"secret", "world"});
    const Status s = acceptor.take(bytes);
    return s.ok() ? "" : s.failure().message;
  };
  EXPECT_NE(reason(0, std::byte{'G'}).find("no greeting"), std::string::npos);
  EXPECT_NE(reason(7, std::byte{9}).find("version 9"), std::string::npos);
  EXPECT_NE(reason(8, std::byte{2}).find("something else"), std::string::npos);
}

TEST(Secret, FollowsTheStandard) {
  // RFC 4231, test case 2.
  const std::string key = "Jefe", data = "what do ya want for nothing?";
  const Digest digest = hmac_sha256(std::as_bytes(std::span(key)), std::as_bytes(std::span(data)));
  const uint8_t expected[] = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24,
                              0x26, 0x08, 0x95, 0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27,
                              0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
  for (size_t i = 0; i < digest.size(); ++i) EXPECT_EQ(digest[i], std::byte{expected[i]});
}

}  // namespace
}  // namespace trireme::transport::tcp
