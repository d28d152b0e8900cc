#include "trireme/transport/rendezvous_wire.h"

#include <gtest/gtest.h>

#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/rng.h"

namespace trireme::transport {
namespace {
using Kind = RendezvousMessage::Kind;

struct Pair {
  RendezvousChannel client{Side::client}, server{Side::server};
  void use_secret(std::string_view of_client, std::string_view of_server) {
    client.use_key(session_key(of_client, "nonce a", "nonce b"));
    server.use_key(session_key(of_server, "nonce a", "nonce b"));
  }
};

TEST(Proof, DependsOnTheSecretAndOnWhereItsPartsEnd) {
  const Proof proof = prove("Jefe", {"what do ya want ", "for nothing?"});
  EXPECT_EQ(proof, prove("Jefe", {"what do ya want ", "for nothing?"}));
  EXPECT_NE(proof, prove("Jefe", {"what do ya want f", "or nothing?"}));
  EXPECT_NE(proof, prove("Jeff", {"what do ya want ", "for nothing?"}));
  EXPECT_NE(make_nonce(), make_nonce());
}

const RendezvousMessage kMessage{Kind::set, -5, "key\xff", std::string("va\0lue", 6)};

TEST(RendezvousWire, CarriesMessagesInAnyPieces) {
  for (const bool secret : {false, true}) {
    Pair pair;
    if (secret) pair.use_secret("s", "s");
    std::string bytes = pair.client.seal(kMessage);
    bytes += pair.client.seal({Kind::beat, 0, "", ""});
    std::vector<RendezvousMessage> got;
    for (const char byte : bytes) {
      pair.server.feed({&byte, 1});
      while (const auto message = pair.server.next()) got.push_back(*message);
    }
    ASSERT_EQ(got.size(), 2U);
    EXPECT_EQ(got[0], kMessage);
    EXPECT_EQ(got[1].kind, Kind::beat);
  }
}

void expect_forged(const std::function<void(Pair&)>& attack) {
  Pair pair;
  pair.use_secret("s", "s");
  attack(pair);
  EXPECT_THROW(pair.server.next(), Error);
}

TEST(RendezvousWire, NothingIsForgedRepeatedReorderedOrLeftOut) {
  expect_forged([](Pair& p) {
    std::string bytes = p.client.seal(kMessage);
    bytes[10] = static_cast<char>(bytes[10] ^ 1);
    p.server.feed(bytes);
  });
  expect_forged([](Pair& p) {
    const std::string bytes = p.client.seal(kMessage);
    p.server.feed(bytes + bytes);
    EXPECT_TRUE(p.server.next());
  });
  expect_forged([](Pair& p) {
    p.client.seal(kMessage);
    p.server.feed(p.client.seal(kMessage));
  });
  expect_forged([](Pair& p) { p.server.feed(p.server.seal(kMessage)); });  // sent back to where it came from
  expect_forged([](Pair& p) { p.server.feed(RendezvousChannel(Side::client).seal(kMessage)); });
  Pair strangers;
  strangers.use_secret("s", "t");
  strangers.server.feed(strangers.client.seal(kMessage));
  EXPECT_THROW(strangers.server.next(), Error);
}

TEST(RendezvousWire, StrangersMayNotSendMuch) {
  const RendezvousMessage large{Kind::set, 0, "key", std::string(100'000, 'x')};
  Pair pair;
  pair.server.feed(pair.client.seal(large).substr(0, 100));
  EXPECT_THROW(pair.server.next(), Error) << "before the rest has come";
  Pair trusted;
  trusted.server.trust();
  trusted.server.feed(trusted.client.seal(large));
  EXPECT_EQ(trusted.server.next(), large);
}

// What random damage does to a stream: a message, nothing, or an Error, and never more. TRIREME_FUZZ_ROUNDS
// makes it longer.
TEST(RendezvousWire, DamagedBytesAreErrorsAndNothingElse) {
  const auto rounds = std::stoll(environment("TRIREME_FUZZ_ROUNDS").value_or("20000"));
  PhiloxStream random(7, 0);
  int64_t errors = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    Pair pair;
    if (round % 3 == 0) pair.use_secret("s", "s");
    std::string bytes;
    for (int i = 0; i < 3; ++i) {
      const auto kind = static_cast<Kind>(random.next_u32() % 13);
      bytes += pair.client.seal({kind, static_cast<int64_t>(random.next_u64()),
                                 std::string(random.next_u32() % 20, 'k'),
                                 std::string(random.next_u32() % 90, 'v')});
    }
    for (uint32_t n = random.next_u32() % 4; n > 0; --n)
      bytes[random.next_u32() % bytes.size()] = static_cast<char>(random.next_u32());
    bytes.resize(random.next_u32() % (bytes.size() + 1));
    pair.server.feed(bytes);
    try {
      while (pair.server.next()) {
      }
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::input);
      ++errors;
    }
  }
  EXPECT_GT(errors, rounds / 10);
}

}  // namespace
}  // namespace trireme::transport
