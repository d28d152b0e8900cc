#pragma once
// The rendezvous's messages as bytes, without I/O. A frame is a length (4 bytes, little-endian), kind (1
// byte), number (8), length of the key (4), key, value; with a session key, a proof of 32 bytes over
// direction, running number and content follows, so that nothing can be forged, repeated, reordered or left
// out.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/transport/tcp/secret.h"

namespace trireme::transport {

// HMAC-SHA-256 over parts that carry their lengths, so that ("ab", "c") and ("a", "bc") differ.
using Proof = tcp::Digest;
Proof prove(std::string_view secret, std::initializer_list<std::string_view> parts);
inline constexpr size_t kNonceBytes = 32;
std::string make_nonce();  // unpredictable

struct RendezvousMessage {
  enum class Kind : uint8_t {
    hello,      // number: kRendezvousVersion; key: kOpen or kSecret; value: the client's nonce
    challenge,  // the same from the server; value: its nonce and its proof
    join,       // number: rank; key: job; value: world as text
    welcome,
    refused,  // number: exit code of the refused; value: why
    set,      // key, value
    get,      // number: of the request; key
    add,      // number: of the request; key; value: amount as text
    value,    // number: of the request; value
    beat,
    loss,    // number: rank; key: number of the error code; value: why
    failed,  // number: rank; value: why, in that rank's words
    bye,     // value: empty, or why this rank fails
  };
  Kind kind = Kind::beat;
  int64_t number = 0;
  std::string key, value;
  bool operator==(const RendezvousMessage&) const = default;
};

inline constexpr int64_t kRendezvousVersion = 1;
inline constexpr std::string_view kOpenRendezvous = "trireme rendezvous, open",
                                  kSecretRendezvous = "trireme rendezvous, secret";

enum class Side { client, server };

// One end of a connection.
class RendezvousChannel {
 public:
  explicit RendezvousChannel(Side side) : side_(side) {}
  std::string seal(const RendezvousMessage& message);  // the bytes to send
  void feed(std::string_view bytes) { received_ += bytes; }
  // The next whole message, or nothing yet. Error(input) says what is wrong with the bytes.
  std::optional<RendezvousMessage> next();
  // From here on both directions carry proofs with this key.
  void use_key(const Proof& key) { key_ = key; }
  // Frames of strangers are short; members may send up to 1 MiB.
  void trust() { limit_ = 1 << 20; }

 private:
  Proof proof_of(Side sender, uint64_t number, std::string_view content) const;
  Side side_;
  std::optional<Proof> key_;
  std::string received_;
  uint64_t sent_count_ = 0, received_count_ = 0;
  size_t limit_ = 512;
};

// Decimal; Error(input) for anything else.
int64_t whole_number(std::string_view text);

// What the server proves itself with, and the key with which both then prove every message.
std::string server_proof(std::string_view secret, std::string_view client_nonce,
                         std::string_view server_nonce);
Proof session_key(std::string_view secret, std::string_view client_nonce, std::string_view server_nonce);

}  // namespace trireme::transport
