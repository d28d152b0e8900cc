#include "trireme/transport/tcp/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"

namespace trireme::transport::tcp {
namespace {

constexpr size_t kShortest = 16;

const unsigned char* raw(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  Digest digest;
  unsigned int length = 0;
  static constexpr unsigned char kNone = 0;  // an empty key must not be a null pointer
  const auto* made =
      HMAC(EVP_sha256(), key.empty() ? &kNone : raw(key), static_cast<int>(key.size()), raw(message),
           message.size(), reinterpret_cast<unsigned char*>(digest.data()), &length);
  if (made == nullptr || length != digest.size()) fail(ErrorCode::internal, "OpenSSL made no HMAC");
  return digest;
}

bool equal(const Digest& a, const Digest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(std::span<std::byte> out) {
  if (RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(out.size())) != 1) {
    fail(ErrorCode::internal, "OpenSSL gave no random bytes");
  }
}

std::string read_secret(const std::filesystem::path& path) {
  std::string secret = read_file(path);
  secret.erase(secret.find_last_not_of(" \t\r\n") + 1);
  if (secret.size() < kShortest) {
    fail(ErrorCode::input, "transport.secret_file = \"", path.string(), "\": ", secret.size(),
         " bytes are too short for a secret, at least ", kShortest,
         " are needed; make one with: openssl rand -hex 32");
  }
  using std::filesystem::perms;
  if ((std::filesystem::status(path).permissions() & (perms::group_read | perms::others_read)) !=
      perms::none) {
    log::warning(cat("transport.secret_file = \"", path.string(),
                     "\" can be read by others; chmod 600 keeps it secret"));
  }
  return secret;
}

}  // namespace trireme::transport::tcp
