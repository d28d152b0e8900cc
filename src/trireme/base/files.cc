#include "trireme/base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail_errno(ErrorCode code, const std::filesystem::path& path, std::string_view doing) {
  const int error = errno;
  fail(code, path.string(), ": cannot ", doing, ": ", std::strerror(error));
}

[[noreturn]] void refuse_special(const std::filesystem::path& path) {
  fail(ErrorCode::input, path.string(), ": not a regular file (a pipe, socket or device)");
}

size_t size_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? static_cast<size_t>(status.st_size) : 0;
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

int open_to_read(const std::filesystem::path& path) {
  // Without O_NONBLOCK a pipe without a writer would be waited for here.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENXIO) refuse_special(path);  // a socket, or a device without a driver
  if (fd < 0) fail_errno(ErrorCode::input, path, "read");
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) return fd;
  ::close(fd);
  if (S_ISDIR(status.st_mode)) fail(ErrorCode::input, path.string(), ": is a folder, a file is needed");
  refuse_special(path);
}

void check_replaceable(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
    refuse_special(path);
}

std::string read_file(const std::filesystem::path& path) {
  const Descriptor file(open_to_read(path));
  std::string content;
  content.reserve(size_of(file.get()));
  std::array<char, 65536> chunk;
  while (true) {
    const ssize_t n = ::read(file.get(), chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(ErrorCode::input, path, "read");
    if (n == 0) return content;
    content.append(chunk.data(), static_cast<size_t>(n));
  }
}

// In the same folder, so that the rename stays within one file system; per thread, so that two writers of one
// path do not share it.
FileWriter::FileWriter(std::filesystem::path path)
    : path_((check_replaceable(path), std::move(path))),
      temporary_(folder_of(path_) /
                 cat(".", path_.filename().string(), ".", ::getpid(), ".", ::gettid(), ".tmp")),
      fd_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (fd_ < 0) fail_errno(ErrorCode::io, path_, "write");
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void FileWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // Linux moves at most 2 GiB per call; smaller pieces also bound how long a signal waits.
    const ssize_t n = ::write(fd_, bytes.data(), std::min(bytes.size(), size_t{64} << 20));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(ErrorCode::io, path_, "write");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void FileWriter::commit() {
  // Some file systems report a failed write only when it is closed.
  if (::fsync(fd_) != 0 || ::close(std::exchange(fd_, -1)) != 0 ||
      ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail_errno(ErrorCode::io, path_, "write");
  }
  temporary_.clear();
  sync_path(folder_of(path_));
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  FileWriter file(path);
  file.append(std::as_bytes(std::span(content)));
  file.commit();
}

void sync_path(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  // EINVAL: a file system that has nothing to sync for a folder.
  if (file.get() < 0 || (::fsync(file.get()) != 0 && errno != EINVAL))
    fail_errno(ErrorCode::io, path, "sync to disk");
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file(open_to_read(path));
  size_ = size_of(file.get());
  if (size_ == 0) return;
  void* map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (map == MAP_FAILED) fail_errno(ErrorCode::input, path, "map");
  data_ = static_cast<const std::byte*>(map);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

uint64_t content_hash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace trireme
