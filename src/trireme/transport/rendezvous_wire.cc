#include "trireme/transport/rendezvous_wire.h"

#include <charconv>

#include "trireme/base/error.h"

namespace trireme::transport {
namespace {

constexpr size_t kLengthBytes = 4, kHeaderBytes = 1 + 8 + 4;

void put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

uint64_t take(std::string_view& in, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i)
    value |= uint64_t{static_cast<unsigned char>(in[static_cast<size_t>(i)])} << (8 * i);
  in.remove_prefix(static_cast<size_t>(bytes));
  return value;
}

std::string_view view(const Proof& proof) {
  return {reinterpret_cast<const char*>(proof.data()), proof.size()};
}

RendezvousMessage decode(std::string_view content) {
  if (content.size() < kHeaderBytes) fail(ErrorCode::input, "a message of ", content.size(), " bytes");
  RendezvousMessage message;
  const auto kind = take(content, 1);
  if (kind > static_cast<uint64_t>(RendezvousMessage::Kind::bye))
    fail(ErrorCode::input, "an unknown message");
  message.kind = static_cast<RendezvousMessage::Kind>(kind);
  message.number = static_cast<int64_t>(take(content, 8));
  const auto key = take(content, 4);
  if (key > content.size()) fail(ErrorCode::input, "a message that ends inside its key");
  message.key = content.substr(0, key);
  message.value = content.substr(key);
  return message;
}

}  // namespace

Proof prove(std::string_view secret, std::initializer_list<std::string_view> parts) {
  std::string message;
  for (const std::string_view part : parts) {
    put(message, part.size(), 8);
    message += part;
  }
  return tcp::hmac_sha256(std::as_bytes(std::span(secret)), std::as_bytes(std::span(message)));
}

std::string make_nonce() {
  std::string nonce(kNonceBytes, '\0');
  tcp::fill_random(std::as_writable_bytes(std::span(nonce)));
  return nonce;
}

std::string RendezvousChannel::seal(const RendezvousMessage& message) {
  std::string content;
  put(content, static_cast<uint64_t>(message.kind), 1);
  put(content, static_cast<uint64_t>(message.number), 8);
  put(content, message.key.size(), 4);
  content += message.key;
  content += message.value;
  if (key_) content += view(proof_of(side_, sent_count_++, content));
  std::string frame;
  put(frame, content.size(), kLengthBytes);
  return frame + content;
}

std::optional<RendezvousMessage> RendezvousChannel::next() {
  std::string_view rest = received_;
  if (rest.size() < kLengthBytes) return {};
  const size_t length = take(rest, kLengthBytes);
  if (length > limit_)
    fail(ErrorCode::input, "a message of ", length, " bytes, at most ", limit_, " are taken");
  if (rest.size() < length) return {};
  std::string_view content = rest.substr(0, length);
  if (key_) {
    Proof claimed;
    if (content.size() < claimed.size()) fail(ErrorCode::input, "a message without proof");
    content.substr(content.size() - claimed.size())
        .copy(reinterpret_cast<char*>(claimed.data()), claimed.size());
    content.remove_suffix(claimed.size());
    const Side sender = side_ == Side::client ? Side::server : Side::client;
    if (!tcp::equal(claimed, proof_of(sender, received_count_++, content)))
      fail(ErrorCode::input, "a message with a wrong proof: another secret, or a forgery");
  }
  RendezvousMessage message = decode(content);
  received_.erase(0, kLengthBytes + length);
  return message;
}

Proof RendezvousChannel::proof_of(Side sender, uint64_t number, std::string_view content) const {
  std::string count;
  put(count, number, 8);
  return prove(view(*key_), {sender == Side::client ? "from client" : "from server", count, content});
}

int64_t whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    fail(ErrorCode::input, "'", text, "' is no number");
  return value;
}

std::string server_proof(std::string_view secret, std::string_view client_nonce,
                         std::string_view server_nonce) {
  const Proof proof = prove(secret, {"rendezvous server", client_nonce, server_nonce});
  return std::string(view(proof));
}

Proof session_key(std::string_view secret, std::string_view client_nonce, std::string_view server_nonce) {
  return prove(secret, {"rendezvous session", client_nonce, server_nonce});
}

}  // namespace trireme::transport
