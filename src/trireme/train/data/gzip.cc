#include "trireme/train/data/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

class Inflater {
 public:
  Inflater() {
    constexpr int kGzipOnly = 16;
    TRIREME_CHECK(inflateInit2(&stream_, MAX_WBITS + kGzipOnly) == Z_OK);
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
};

// zlib counts in 32 bits, so long inputs are handed over in pieces. Several members in a row are one content,
// as gzip itself reads them.
std::string inflate_all(std::span<const std::byte> input, const std::filesystem::path& path) {
  Inflater inflater;
  z_stream& z = inflater.stream();
  std::string content;
  std::array<char, 1 << 16> chunk;
  for (;;) {
    if (z.avail_in == 0) {
      const size_t piece = std::min<size_t>(input.size(), std::numeric_limits<uInt>::max());
      z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(input.data()));
      z.avail_in = static_cast<uInt>(piece);
      input = input.subspan(piece);
    }
    z.next_out = reinterpret_cast<Bytef*>(chunk.data());
    z.avail_out = static_cast<uInt>(chunk.size());
    const int result = inflate(&z, Z_NO_FLUSH);
    content.append(chunk.data(), chunk.size() - z.avail_out);
    if (result == Z_STREAM_END) {
      if (z.avail_in == 0 && input.empty()) return content;
      inflateReset(&z);
    } else if (result == Z_BUF_ERROR) {
      fail(ErrorCode::input, path.string(), ": the gzip file is truncated: copy it again");
    } else if (result != Z_OK) {
      fail(ErrorCode::input, path.string(), ": the gzip file is damaged (",
           z.msg != nullptr ? z.msg : "no detail", "): copy it again");
    }
  }
}

std::variant<MappedFile, std::string> load(const std::filesystem::path& path) {
  MappedFile file(path);
  if (is_gzip(file.bytes())) return inflate_all(file.bytes(), path);
  return std::variant<MappedFile, std::string>(std::move(file));
}

}  // namespace

FileBytes::FileBytes(const std::filesystem::path& path) : content_(load(path)) {}

std::span<const std::byte> FileBytes::bytes() const {
  if (const auto* file = std::get_if<MappedFile>(&content_)) return file->bytes();
  return std::as_bytes(std::span(std::get<std::string>(content_)));
}

}  // namespace trireme::train
