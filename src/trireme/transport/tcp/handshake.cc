#include "trireme/transport/tcp/handshake.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "trireme/transport/tcp/bytes.h"

namespace trireme::transport::tcp {
namespace {

constexpr std::string_view kMagic = "TRIREME";  // and a version byte
constexpr uint8_t kVersion = 1;
constexpr size_t kVersionAt = 7, kClaimAt = 8, kChallengeAt = kClaimAt + 6 * sizeof(uint32_t);
constexpr size_t kGreetingBytes = kChallengeAt + sizeof(Digest);

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

void append(std::vector<std::byte>& to, std::string_view text) {
  append(to, std::as_bytes(std::span(text)));
}

Failure stranger(const std::string& why) {
  return {ErrorCode::input, why};
}

}  // namespace

Handshake::Handshake(Role role, const Claim& own, const HandshakeKey& key)
    : role_(role), own_(own), key_(key) {
  fill_random(challenge_);
  if (role_ == Role::caller) {
    reply_ = greeting();
    said_ = reply_;
  }
}

std::vector<std::byte> Handshake::take_reply() {
  return std::exchange(reply_, {});
}

std::vector<std::byte> Handshake::greeting() const {
  std::vector<std::byte> bytes;
  append(bytes, kMagic);
  bytes.push_back(std::byte{kVersion});
  const std::array<uint32_t, 6> fields = {static_cast<uint32_t>(own_.purpose),
                                          own_.rank,
                                          own_.size,
                                          own_.index,
                                          own_.connections,
                                          own_.has_secret};
  bytes.resize(kChallengeAt);
  for (size_t i = 0; i < fields.size(); ++i)
    put_number(bytes.data() + kClaimAt + i * sizeof fields[i], fields[i]);
  append(bytes, challenge_);
  return bytes;
}

size_t Handshake::wanted() const {
  if (stage_ == Stage::greeting) return kGreetingBytes + (role_ == Role::caller ? sizeof(Digest) : 0);
  return stage_ == Stage::proof ? sizeof(Digest) : 0;
}

Digest Handshake::proof(Role of) const {
  std::vector<std::byte> message;
  append(message, of == Role::caller ? "caller" : "acceptor");
  append(message, key_.world);
  append(message, said_);
  return hmac_sha256(std::as_bytes(std::span(key_.key)), message);
}

Status Handshake::read_greeting(std::span<const std::byte> bytes) {
  const auto magic = std::as_bytes(std::span(kMagic));
  if (!std::equal(magic.begin(), magic.end(), bytes.begin()))
    return stranger("its first bytes are no greeting");
  if (bytes[kVersionAt] != std::byte{kVersion}) {
    return stranger(cat("it speaks version ", int(bytes[kVersionAt]), " of the protocol, this one version ",
                        int{kVersion}, "; run the same Trireme everywhere"));
  }
  const auto field = [&](size_t i) {
    return get_number<uint32_t>(bytes.data() + kClaimAt + i * sizeof(uint32_t));
  };
  peer_ = {static_cast<Purpose>(field(0)), field(1), field(2), field(3), field(4), field(5) == 1};
  if (peer_.purpose != own_.purpose || field(5) > 1) return stranger("it wants something else");
  if (peer_.has_secret != own_.has_secret) {
    const char* with = own_.has_secret ? "this side has a transport.secret_file and the other none"
                                       : "the other side has a transport.secret_file and this one none";
    return stranger(cat(with, "; give every rank the same file"));
  }
  append(said_, bytes.first(kGreetingBytes));
  return ok_status();
}

Status Handshake::take(std::span<const std::byte> bytes) {
  TRIREME_CHECK(bytes.size() == wanted() && !proved(), bytes.size(), " bytes");
  if (stage_ == Stage::greeting) {
    if (Status status = read_greeting(bytes); !status) return status;
    bytes = bytes.subspan(kGreetingBytes);
    stage_ = Stage::proof;
    if (role_ == Role::acceptor) {
      reply_ = greeting();
      append(said_, reply_);
      append(reply_, proof(Role::acceptor));
      return ok_status();
    }
  }
  Digest theirs;
  std::copy(bytes.begin(), bytes.end(), theirs.begin());
  if (!equal(theirs, proof(role_ == Role::caller ? Role::acceptor : Role::caller))) {
    return stranger(own_.has_secret ? "it does not know the secret (transport.secret_file)"
                                    : "it does not belong to this run");
  }
  if (role_ == Role::caller) append(reply_, proof(Role::caller));
  stage_ = Stage::proved;
  return ok_status();
}

}  // namespace trireme::transport::tcp
