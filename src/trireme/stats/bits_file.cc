#include <unistd.h>
#include <zlib.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json_problem.h"
#include "trireme/stats/bits.h"

namespace trireme::stats {
namespace {

constexpr char kMagic[8] = {'T', 'R', 'B', 'I', 'T', 'S', '\n', '\0'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kMaxHeader = uint64_t{1} << 30;

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

struct BlockHeader {
  uint64_t rows = 0, first_row = 0, seed = 0;
  uint32_t stream = 0, has_mask = 0;
  uint64_t payload_bytes = 0;
  uint32_t checksum = 0, reserved = 0;
};
static_assert(sizeof(BlockHeader) == 48);

std::string header_text(const CodeBook& book) {
  nlohmann::json json = {{"kind", "trireme-bits"}, {"version", kVersion}, {"scheme", name(book.scheme)},
                         {"bits", book.bits},      {"range", book.range}, {"truncation", book.truncation},
                         {"centre", book.centre},  {"step", book.step},   {"complex", book.complex}};
  return json.dump();
}

CodeBook parse_header(const std::string& text, const std::string& path) {
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.at("kind") != "trireme-bits") fail(ErrorCode::input, path, ": not a file of dithered bits");
    if (json.at("version") > kVersion)
      fail(ErrorCode::unsupported, path, ": version ", json.at("version").get<int>(),
           " of the bits file; this program reads ", kVersion);
    CodeBook book{scheme_of(json.at("scheme").get<std::string>()),
                  json.at("bits"),
                  json.at("range"),
                  json.at("truncation"),
                  json.at("centre"),
                  json.at("step"),
                  json.at("complex")};
    book.validate();
    return book;
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorCode::input, path, ": broken header: ", json_problem(e));
  }
}

uint32_t checksum(const std::vector<uint64_t>& words, uint32_t start) {
  if (words.empty()) return start;  // zlib takes a null pointer for "begin anew"
  return static_cast<uint32_t>(
      crc32_z(start, reinterpret_cast<const Bytef*>(words.data()), words.size() * sizeof(uint64_t)));
}

}  // namespace

struct BitsWriter::File {
  std::filesystem::path path, partial;
  CodeBook book;
  std::FILE* out = nullptr;

  void put(const void* data, size_t size) {
    if (size > 0 && std::fwrite(data, 1, size, out) != size)
      fail(ErrorCode::io, "writing ", path.string(), ": ", std::strerror(errno));
  }
};

BitsWriter::BitsWriter(std::filesystem::path path, const CodeBook& book) : file_(std::make_unique<File>()) {
  book.validate();
  check_replaceable(path);
  file_->partial = path.string() + ".partial";
  file_->path = std::move(path);
  file_->book = book;
  file_->out = std::fopen(file_->partial.c_str(), "wb");
  if (file_->out == nullptr)
    fail(ErrorCode::io, "cannot write ", file_->partial.string(), ": ", std::strerror(errno));
  const std::string header = header_text(book);
  const uint64_t size = header.size();
  file_->put(kMagic, sizeof kMagic);
  file_->put(&size, sizeof size);
  file_->put(header.data(), header.size());
}

BitsWriter::~BitsWriter() {
  if (!file_ || file_->out == nullptr) return;
  std::fclose(file_->out);
  std::error_code ignored;
  std::filesystem::remove(file_->partial, ignored);
}

void BitsWriter::append(const BitMatrix& block) {
  TRIREME_CHECK(file_->out != nullptr, "append after close");
  if (!(block.book() == file_->book))
    fail(ErrorCode::input, file_->path.string(),
         ": the block was taken with another scheme, range or column count");
  BlockHeader head;
  head.rows = block.rows();
  head.first_row = block.place().first_row;
  head.seed = block.place().seed;
  head.stream = block.place().stream;
  head.has_mask = block.has_mask();
  head.payload_bytes = block.payload_bytes();
  head.checksum = checksum(block.mask_, checksum(block.data_, 0));
  file_->put(&head, sizeof head);
  file_->put(block.data_.data(), block.data_.size() * sizeof(uint64_t));
  file_->put(block.mask_.data(), block.mask_.size() * sizeof(uint64_t));
}

void BitsWriter::close() {
  TRIREME_CHECK(file_->out != nullptr, "closed twice");
  std::FILE* out = file_->out;
  const bool flushed = std::fflush(out) == 0 && fsync(fileno(out)) == 0;
  const int cause = errno;
  file_->out = nullptr;
  std::fclose(out);
  std::error_code error;
  if (flushed) {
    std::filesystem::rename(file_->partial, file_->path, error);
    if (!error) return;
  }
  std::error_code ignored;
  std::filesystem::remove(file_->partial, ignored);
  fail(ErrorCode::io, "writing ", file_->path.string(), ": ",
       flushed ? error.message() : std::strerror(cause));
}

struct BitsReader::File {
  std::string path;
  CodeBook book;
  std::FILE* in = nullptr;
  size_t blocks = 0;

  ~File() {
    if (in != nullptr) std::fclose(in);
  }
  void get(void* data, size_t size, const char* what) {
    if (size > 0 && std::fread(data, 1, size, in) != size)
      fail(ErrorCode::input, path, ": cut short in ", what, " ", blocks, "; copy the file again");
  }
};

BitsReader::BitsReader(std::filesystem::path path) : file_(std::make_unique<File>()) {
  file_->path = path.string();
  file_->in = ::fdopen(open_to_read(path), "rb");
  TRIREME_CHECK(file_->in != nullptr);
  char magic[sizeof kMagic];
  if (std::fread(magic, 1, sizeof magic, file_->in) != sizeof magic ||
      std::memcmp(magic, kMagic, sizeof magic) != 0)
    fail(ErrorCode::input, file_->path, ": not a file of dithered bits (wrong first bytes)");
  uint64_t size = 0;
  file_->get(&size, sizeof size, "header");
  if (size > kMaxHeader) fail(ErrorCode::input, file_->path, ": broken header length ", size);
  std::string header(size, '\0');
  file_->get(header.data(), size, "header");
  file_->book = parse_header(header, file_->path);
}

BitsReader::~BitsReader() = default;
const CodeBook& BitsReader::book() const {
  return file_->book;
}

bool BitsReader::next(BitMatrix& block) {
  BlockHeader head;
  const size_t got = std::fread(&head, 1, sizeof head, file_->in);
  if (got == 0) return false;
  if (got != sizeof head)
    fail(ErrorCode::input, file_->path, ": cut short in block ", file_->blocks, "; copy the file again");
  const uint64_t cells = file_->book.columns() * (file_->book.planes() + (head.has_mask ? 1 : 0));
  const uint64_t words = ((head.rows + 63) / 64 + kWordAlign - 1) / kWordAlign * kWordAlign;
  // Compared before anything of this size is allocated: a broken count must not become a huge request.
  if (head.rows > (uint64_t{1} << 48) || head.payload_bytes != cells * words * sizeof(uint64_t))
    fail(ErrorCode::input, file_->path, ": broken header of block ", file_->blocks);
  const long here = std::ftell(file_->in);
  if (head.payload_bytes > std::filesystem::file_size(file_->path) - static_cast<uint64_t>(here))
    fail(ErrorCode::input, file_->path, ": cut short in block ", file_->blocks, "; copy the file again");
  block = BitMatrix(file_->book, {head.seed, head.stream, head.first_row}, head.rows, head.has_mask != 0);
  file_->get(block.data_.data(), block.data_.size() * sizeof(uint64_t), "block");
  file_->get(block.mask_.data(), block.mask_.size() * sizeof(uint64_t), "block");
  if (checksum(block.mask_, checksum(block.data_, 0)) != head.checksum)
    fail(ErrorCode::input, file_->path, ": block ", file_->blocks,
         " does not match its checksum; copy the file again");
  ++file_->blocks;
  return true;
}

}  // namespace trireme::stats
