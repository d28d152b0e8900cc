#include "trireme/train/data/idx.h"

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

constexpr std::byte kUnsignedByte{0x08};

int64_t big_endian(std::span<const std::byte> four) {
  int64_t value = 0;
  for (const std::byte b : four) value = value << 8 | std::to_integer<int64_t>(b);
  return value;
}

}  // namespace

IdxFile::IdxFile(const std::filesystem::path& path) : file_(path) {
  const auto bytes = file_.bytes();
  const auto refuse = [&path](const auto&... what) { fail(ErrorCode::input, path.string(), ": ", what...); };
  if (bytes.size() < 4 || bytes[0] != std::byte{0} || bytes[1] != std::byte{0})
    refuse("is not an IDX file (it must begin with two zero bytes)");
  if (bytes[2] != kUnsignedByte)
    refuse("IDX element type ", std::to_integer<int>(bytes[2]), " is not read; only unsigned bytes (8) are");
  const auto dimensions = std::to_integer<size_t>(bytes[3]);
  header_bytes_ = 4 + 4 * dimensions;
  if (dimensions == 0 || bytes.size() < header_bytes_) refuse("IDX header is cut short or has no dimensions");
  for (size_t d = 0; d < dimensions; ++d) shape_.push_back(big_endian(bytes.subspan(4 + 4 * d, 4)));
  size_t expected = 0;
  try {
    expected = static_cast<size_t>(spec::count(shape_));
  } catch (const Error& error) {
    refuse(error.what());
  }
  if (bytes.size() - header_bytes_ != expected)
    refuse("IDX sizes ", spec::to_text(shape_), " need ", expected, " bytes of data, the file has ",
           bytes.size() - header_bytes_);
}

}  // namespace trireme::train
