// TensorBoard's event files, written by hand: three protobuf messages are not worth the library, whose Debian
// and torch copies clash in one process.
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/train/run_files.h"

namespace trireme::train {
namespace {

static_assert(std::endian::native == std::endian::little, "event files are little-endian");

// CRC-32C (Castagnoli), reflected polynomial.
constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82f63b78U : crc >> 1;
    table[byte] = crc;
  }
  return table;
}

uint32_t crc32c(std::string_view data) {
  static constexpr auto kTable = crc_table();
  uint32_t crc = 0xffffffffU;
  for (const char c : data) crc = kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ crc >> 8;
  return ~crc;
}

// The record format masks its checksums, so that a checksum of data that holds checksums stays well mixed.
uint32_t masked_crc(std::string_view data) {
  return std::rotr(crc32c(data), 15) + 0xa282ead8U;
}

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

enum class Wire : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

std::string tag(int field, Wire wire) {
  return varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire));
}
std::string field(int number, double value) {
  return tag(number, Wire::fixed64) + raw(value);
}
std::string field(int number, float value) {
  return tag(number, Wire::fixed32) + raw(value);
}
std::string field(int number, int64_t value) {
  return tag(number, Wire::varint) + varint(static_cast<uint64_t>(value));
}
std::string field(int number, const std::string& value) {
  return tag(number, Wire::bytes) + varint(value.size()) + value;
}

// Field numbers of tensorflow's event.proto and summary.proto.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
constexpr int kSummaryValue = 1, kValueTag = 1, kValueSimple = 2, kSessionStatus = 1;
constexpr int64_t kSessionStart = 1;

void write_record(std::ofstream& file, const std::string& data) {
  const std::string length = raw(static_cast<uint64_t>(data.size()));
  file << length << raw(masked_crc(length)) << data << raw(masked_crc(data));
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::filesystem::path new_event_file(const std::filesystem::path& folder, double now) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) std::strcpy(host.data(), "localhost");
  const std::string name =
      cat("events.out.tfevents.", static_cast<int64_t>(now), ".", host.data(), ".", ::getpid());
  // A resumed run may begin in the second in which the first ended.
  for (int n = 0;; ++n)
    if (auto path = folder / cat(name, ".", n); !std::filesystem::exists(path)) return path;
}

}  // namespace

EventWriter::EventWriter(const std::filesystem::path& folder, int64_t first_step) {
  const double now = wall_time();
  path_ = new_event_file(folder, now);
  file_.open(path_, std::ios::binary);
  if (!file_) fail(ErrorCode::io, path_.string(), ": cannot create: ", std::strerror(errno));
  write_record(file_,
               field(event::kWallTime, now) + field(event::kFileVersion, std::string("brain.Event:2")));
  // TensorBoard drops the points of an earlier attempt from this step on.
  if (first_step > 1)
    write_record(file_, field(event::kWallTime, now) + field(event::kStep, first_step) +
                            field(event::kSessionLog, field(kSessionStatus, kSessionStart)));
}

void EventWriter::scalar(const std::string& name, int64_t step, double value, double wall_time) {
  const std::string entry = field(kValueTag, name) + field(kValueSimple, static_cast<float>(value));
  write_record(file_, field(event::kWallTime, wall_time) + field(event::kStep, step) +
                          field(event::kSummary, field(kSummaryValue, entry)));
}

void EventWriter::flush() {
  if (!file_.flush()) fail(ErrorCode::io, path_.string(), ": cannot write: ", std::strerror(errno));
}

}  // namespace trireme::train
