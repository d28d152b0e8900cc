#pragma once
// How two ends of a fresh connection come to trust each other: each says who it claims to be and gives a
// random challenge, and proves that it knows the key by an HMAC over all that was said. The accepting side
// proves first. No sockets here: bytes in, bytes out.
//   1. caller    greeting: magic, claim, challenge
//   2. acceptor  greeting, proof = HMAC(key, "acceptor" world 1 2)
//   3. caller    proof = HMAC(key, "caller" world 1 2)
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/transport/tcp/secret.h"

namespace trireme::transport::tcp {

enum class Purpose : uint32_t { data = 1, store = 2 };

struct Claim {
  Purpose purpose = Purpose::data;
  uint32_t rank = 0, size = 0;
  uint32_t index = 0, connections = 1;  // this connection among those of the pair
  bool has_secret = false;              // whether the key is a secret_file
  bool operator==(const Claim&) const = default;
};

struct HandshakeKey {
  std::string key;    // known to all ranks and nobody else
  std::string world;  // names this run: proofs of another one are worthless
};

class Handshake {
 public:
  enum class Role : uint8_t { caller, acceptor };
  Handshake(Role role, const Claim& own, const HandshakeKey& key);

  // Bytes to send now; empty on the second call.
  std::vector<std::byte> take_reply();
  // How many bytes must come next; 0 once the other side has proved itself.
  size_t wanted() const;
  // Takes exactly wanted() bytes. Failure: the other side is no rank of ours, for the reason given.
  Status take(std::span<const std::byte> bytes);
  bool proved() const { return stage_ == Stage::proved; }
  // What the other side claims; true once it is proved.
  const Claim& peer() const { return peer_; }

 private:
  enum class Stage : uint8_t { greeting, proof, proved };
  std::vector<std::byte> greeting() const;
  Status read_greeting(std::span<const std::byte> bytes);
  Digest proof(Role of) const;

  Role role_;
  Claim own_, peer_;
  HandshakeKey key_;
  Digest challenge_{};
  Stage stage_ = Stage::greeting;
  std::vector<std::byte> said_;  // both greetings, the caller's first
  std::vector<std::byte> reply_;
};

}  // namespace trireme::transport::tcp
