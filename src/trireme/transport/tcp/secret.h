#pragma once
// A secret that ranks share, and proofs that somebody knows it (HMAC-SHA-256 of OpenSSL).
#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace trireme::transport::tcp {

using Digest = std::array<std::byte, 32>;

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);
// In a time that does not depend on where they differ.
bool equal(const Digest& a, const Digest& b);
// From the system's generator.
void fill_random(std::span<std::byte> out);
// The file's content without white space at its end. Error(input) when it is missing, or shorter than 16
// bytes. Warns when others than its owner may read it.
std::string read_secret(const std::filesystem::path& path);

}  // namespace trireme::transport::tcp
