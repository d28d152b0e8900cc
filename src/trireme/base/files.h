#pragma once
// Files: read whole or mapped, written so that a crash leaves the old content or the new, never half.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

// Opens for reading; the caller owns the descriptor. Error(input) names the file when it is missing,
// unreadable, a folder, or no regular file: a pipe or device may never give an end, or anything at all.
int open_to_read(const std::filesystem::path& path);

// Error(input) when something other than a regular file or a folder stands there: a rename would replace the
// device node or pipe itself. (Over a folder the rename fails.)
void check_replaceable(const std::filesystem::path& path);

// Whole; errors as open_to_read.
std::string read_file(const std::filesystem::path& path);

// A file that appears whole or not at all: temporary name, then fsync, rename, fsync of the folder. Failures
// throw Error(io) naming file and cause ("No space left …"). Without commit() nothing is left, and an old
// file stands. Error(input) as check_replaceable.
class FileWriter {
 public:
  explicit FileWriter(std::filesystem::path path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  void append(std::span<const std::byte> bytes);
  void commit();  // at most once, last

 private:
  std::filesystem::path path_, temporary_;
  int fd_;
};
void write_file(const std::filesystem::path& path, std::string_view content);

// 64-bit FNV-1a of a text: tells contents apart, no protection against intent.
uint64_t content_hash(std::string_view text);

// fsync a file or folder that others wrote.
void sync_path(const std::filesystem::path& path);

// A read-only memory map, owned. Errors as open_to_read. Empty files map to an empty span.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace trireme
