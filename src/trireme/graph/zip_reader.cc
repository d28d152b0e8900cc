#include "trireme/graph/zip_reader.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::graph {
namespace {

static_assert(std::endian::native == std::endian::little, "zip numbers are little-endian");

constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50, kDescriptor = 0x08074b50;
constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr uint64_t kLocalHeaderSize = 30, kDirectoryEntrySize = 46;
constexpr uint64_t kEndSize = 22, kEnd64Size = 56, kEnd64LocatorSize = 20;
constexpr uint16_t kFull16 = 0xffff, kZip64Extra = 0x0001;
constexpr uint32_t kFull32 = 0xffffffff;
constexpr uint16_t kEncrypted = 1, kHasDescriptor = 1 << 3;

[[noreturn]] void broken(const std::string& what) {
  fail(ErrorCode::input, what);
}

// Reads little-endian numbers of a part of the file, and throws at its end.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const char* what) : rest_(bytes), what_(what) {}
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::span<const std::byte> bytes(uint64_t size) {
    if (size > rest_.size()) broken(cat("truncated in ", what_));
    const auto taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  std::string text(uint64_t size) {
    const auto taken = bytes(size);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  void skip(uint64_t size) { bytes(size); }
  size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
  const char* what_;
};

std::span<const std::byte> part(std::span<const std::byte> file, uint64_t begin, uint64_t size,
                                const char* what) {
  if (begin > file.size() || size > file.size() - begin)
    broken(cat("truncated: ", what, " lies outside the file"));
  return file.subspan(begin, size);
}

struct Directory {
  uint64_t begin = 0, size = 0, entries = 0;
  uint64_t end = 0;  // where the records after it start
};

// The last record of the file; it may be followed only by the comment whose length it states.
uint64_t find_end(std::span<const std::byte> file) {
  if (file.empty()) broken("the file is empty");
  if (file.size() < kEndSize) broken("not a zip archive, or truncated");
  const uint64_t last = file.size() - kEndSize;
  const uint64_t first = last > kFull16 ? last - kFull16 : 0;
  for (uint64_t at = last + 1; at-- > first;) {
    uint32_t signature;
    uint16_t comment;
    std::memcpy(&signature, file.data() + at, sizeof signature);
    if (signature != kEnd) continue;
    std::memcpy(&comment, file.data() + at + kEndSize - sizeof comment, sizeof comment);
    if (at + kEndSize + comment == file.size()) return at;
  }
  broken("not a zip archive, or truncated: its end record is missing");
}

// Numbers too large for the old end record stand in the zip64 one, found through the locator just before the
// old.
std::optional<Directory> find_directory64(std::span<const std::byte> file, uint64_t end) {
  if (end < kEnd64LocatorSize) return std::nullopt;
  Cursor locator(file.subspan(end - kEnd64LocatorSize, kEnd64LocatorSize), "the zip64 locator");
  if (locator.take<uint32_t>() != kEnd64Locator) return std::nullopt;
  const auto disk = locator.take<uint32_t>();
  const auto at = locator.take<uint64_t>();
  if (disk != 0 || locator.take<uint32_t>() > 1) broken("archives in several parts are not supported");
  if (at > end - kEnd64LocatorSize || end - kEnd64LocatorSize - at < kEnd64Size)
    broken("inconsistent zip64 end record");
  Cursor record(part(file, at, kEnd64Size, "the zip64 end record"), "the zip64 end record");
  Directory directory;
  directory.end = at;
  const bool known = record.take<uint32_t>() == kEnd64;
  const auto size = record.take<uint64_t>();  // of what follows this number
  if (!known || size != end - kEnd64LocatorSize - at - 12) broken("inconsistent zip64 end record");
  record.skip(2 * sizeof(uint16_t));  // versions
  if (record.take<uint32_t>() != 0 || record.take<uint32_t>() != 0)
    broken("archives in several parts are not supported");
  directory.entries = record.take<uint64_t>();
  if (record.take<uint64_t>() != directory.entries) broken("inconsistent number of entries");
  directory.size = record.take<uint64_t>();
  directory.begin = record.take<uint64_t>();
  return directory;
}

Directory find_directory(std::span<const std::byte> file) {
  const uint64_t end = find_end(file);
  Cursor record(file.subspan(end, kEndSize), "the end record");
  record.skip(sizeof(uint32_t));
  const auto disk = record.take<uint16_t>(), directory_disk = record.take<uint16_t>();
  const auto entries_here = record.take<uint16_t>(), entries = record.take<uint16_t>();
  const auto size = record.take<uint32_t>(), begin = record.take<uint32_t>();
  auto directory = find_directory64(file, end);
  const auto agrees = [&directory](uint64_t small, uint64_t full, uint64_t large) {
    return directory ? small == full || small == large : small != full;
  };
  if (!agrees(disk, kFull16, 0) || !agrees(directory_disk, kFull16, 0) ||
      (!directory && (disk || directory_disk)))
    broken("archives in several parts are not supported");
  const Directory plain{begin, size, entries, end};
  const Directory& found = directory ? *directory : plain;
  if (!agrees(entries, kFull16, found.entries) || !agrees(entries_here, kFull16, found.entries) ||
      !agrees(size, kFull32, found.size) || !agrees(begin, kFull32, found.begin) || entries != entries_here)
    broken("its end records contradict each other");
  if (found.begin > found.end || found.end - found.begin != found.size)
    broken("truncated, or bytes were inserted: the directory is not where its end record says");
  return found;
}

struct Listed {  // what the directory says of an entry
  std::string name;
  ZipReader::Entry entry;
  uint16_t flags = 0;
};

// The 64-bit numbers stand, in this order, for those that are all ones in the entry itself.
void read_zip64(std::span<const std::byte> extra, uint64_t& size, uint64_t& stored, uint64_t& header) {
  Cursor fields(extra, "an extra field");
  bool found = false;
  while (fields.left() > 0) {
    const auto kind = fields.take<uint16_t>();
    Cursor field(fields.bytes(fields.take<uint16_t>()), "a zip64 field");
    if (kind != kZip64Extra) continue;
    if (std::exchange(found, true)) broken("an entry has two zip64 fields");
    for (uint64_t* number : {&size, &stored, &header})
      if (*number == kFull32) *number = field.take<uint64_t>();
  }
}

Listed read_listed(Cursor& directory) {
  if (directory.take<uint32_t>() != kDirectoryEntry) broken("the directory is damaged");
  directory.skip(2 * sizeof(uint16_t));  // versions
  Listed listed;
  listed.flags = directory.take<uint16_t>();
  const auto method = directory.take<uint16_t>();
  directory.skip(2 * sizeof(uint16_t));  // time and date
  listed.entry.crc = directory.take<uint32_t>();
  uint64_t stored = directory.take<uint32_t>();
  listed.entry.size = directory.take<uint32_t>();
  const auto name_size = directory.take<uint16_t>(), extra_size = directory.take<uint16_t>();
  const auto comment_size = directory.take<uint16_t>();
  if (directory.take<uint16_t>() != 0) broken("archives in several parts are not supported");
  directory.skip(sizeof(uint16_t) + sizeof(uint32_t));  // attributes
  listed.entry.header = directory.take<uint32_t>();
  listed.name = directory.text(name_size);
  read_zip64(directory.bytes(extra_size), listed.entry.size, stored, listed.entry.header);
  directory.skip(comment_size);
  if (listed.flags & kEncrypted) broken(cat("entry '", listed.name, "' is encrypted"));
  if (method != 0)
    broken(cat("entry '", listed.name, "' is compressed; torch.export.save stores entries as they are"));
  if (stored != listed.entry.size) broken(cat("entry '", listed.name, "' has two sizes"));
  return listed;
}

// What follows the data when sizes were not known at its start: [signature] crc, stored size, size; numbers
// of 4 or 8 bytes. Returns where it ends; torch writes it, and states zeros in the local header.
uint64_t check_descriptor(std::span<const std::byte> file, const ZipReader::Entry& entry) {
  const uint64_t at = entry.begin + entry.size;
  const auto matches = [&](uint64_t offset, bool wide) {
    const uint64_t length = sizeof(uint32_t) + 2 * (wide ? sizeof(uint64_t) : sizeof(uint32_t));
    if (length > file.size() - at - offset) return false;
    Cursor cursor(file.subspan(at + offset, length), "a data descriptor");
    if (cursor.take<uint32_t>() != entry.crc) return false;
    const auto size = [&]() -> uint64_t { return wide ? cursor.take<uint64_t>() : cursor.take<uint32_t>(); };
    return size() == entry.size && size() == entry.size;
  };
  uint32_t signature = 0;
  if (file.size() - at >= sizeof signature) std::memcpy(&signature, file.data() + at, sizeof signature);
  const uint64_t offset = signature == kDescriptor ? sizeof signature : 0;
  for (const bool wide : {true, false})
    if (matches(offset, wide)) return at + offset + (wide ? 20 : 12);
  broken("its descriptor contradicts the directory");
}

// Finds the data and compares the local header with the directory; returns where the entry ends.
uint64_t locate(std::span<const std::byte> file, Listed& listed) {
  auto& entry = listed.entry;
  Cursor header(part(file, entry.header, kLocalHeaderSize, "its header"), "its header");
  if (header.take<uint32_t>() != kLocalHeader) broken("its header is damaged");
  header.skip(sizeof(uint16_t));  // version
  const auto flags = header.take<uint16_t>();
  if (flags != listed.flags || header.take<uint16_t>() != 0) broken("its header contradicts the directory");
  header.skip(2 * sizeof(uint16_t));  // time and date
  const auto crc = header.take<uint32_t>();
  uint64_t stored = header.take<uint32_t>(), size = header.take<uint32_t>();
  const auto name_size = header.take<uint16_t>(), extra_size = header.take<uint16_t>();
  const uint64_t variable = entry.header + kLocalHeaderSize;
  Cursor rest(part(file, variable, uint64_t{name_size} + extra_size, "its header"), "its header");
  if (rest.text(name_size) != listed.name) broken("its header has another name");
  uint64_t no_offset = 0;
  read_zip64(rest.bytes(extra_size), size, stored, no_offset);
  entry.begin = variable + name_size + extra_size;
  part(file, entry.begin, entry.size, "its data");
  const bool later = flags & kHasDescriptor;
  const auto agrees = [later](uint64_t here, uint64_t directory) {
    return here == directory || (later && here == 0);
  };
  if (!agrees(crc, entry.crc) || !agrees(size, entry.size) || !agrees(stored, entry.size))
    broken("its header contradicts the directory");
  return later ? check_descriptor(file, entry) : entry.begin + entry.size;
}

std::map<std::string, ZipReader::Entry> read_entries(std::span<const std::byte> file) {
  const Directory directory = find_directory(file);
  if (directory.entries > directory.size / kDirectoryEntrySize) broken("inconsistent number of entries");
  Cursor cursor(file.subspan(directory.begin, directory.size), "the directory");
  std::vector<Listed> listed;
  for (uint64_t i = 0; i < directory.entries; ++i) listed.push_back(read_listed(cursor));
  if (cursor.left() != 0) broken("the directory has more entries than its end record says");

  std::sort(listed.begin(), listed.end(),
            [](const Listed& a, const Listed& b) { return a.entry.header < b.entry.header; });
  std::map<std::string, ZipReader::Entry> entries;
  uint64_t end = 0;
  for (auto& item : listed) {
    try {
      if (item.entry.header < end) broken("overlaps the one before it");
      end = locate(file.first(directory.begin), item);
    } catch (const Error& e) {
      broken(cat("entry '", item.name, "': ", e.what()));
    }
    if (!entries.emplace(item.name, item.entry).second) broken(cat("entry '", item.name, "' occurs twice"));
  }
  return entries;
}

}  // namespace

ZipReader::ZipReader(const std::filesystem::path& path) : path_(path), file_(path) {
  try {
    entries_ = read_entries(file_.bytes());
  } catch (const Error& e) {
    fail(e.code(), path.string(), ": ", e.what());
  }
}

std::span<const std::byte> ZipReader::read(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) fail(ErrorCode::input, path_.string(), ": entry '", name, "' is missing");
  const auto bytes = file_.bytes().subspan(found->second.begin, found->second.size);
  const auto crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  if (crc != found->second.crc)
    fail(ErrorCode::input, path_.string(), ": entry '", name, "' is damaged (checksum mismatch)");
  return bytes;
}

}  // namespace trireme::graph
