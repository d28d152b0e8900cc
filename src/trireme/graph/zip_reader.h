#pragma once
// A strict reader of zip archives whose entries are stored, not compressed, as torch writes them (with zip64
// records). Own code, for two reasons: weights are used in place from the file's map, and an archive that two
// readers could understand differently (overlapping or inconsistent entries) must be refused. Format: PKWARE
// APPNOTE 6.3.
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/files.h"

namespace trireme::graph {

class ZipReader {
 public:
  // Error(input) names the file and what is wrong: not a zip, truncated, compressed, overlapping,
  // inconsistent.
  explicit ZipReader(const std::filesystem::path& path);

  bool contains(const std::string& name) const { return entries_.contains(name); }
  // The entry's bytes, in the map; valid as long as this object. The checksum is computed at each call.
  // Error(input) when there is no such entry or its checksum does not match.
  std::span<const std::byte> read(const std::string& name) const;

  struct Entry {
    uint64_t header = 0;  // where its local header starts in the file
    uint64_t begin = 0;   // where its data starts
    uint64_t size = 0;
    uint32_t crc = 0;
  };
  const std::map<std::string, Entry>& entries() const { return entries_; }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::map<std::string, Entry> entries_;
};

}  // namespace trireme::graph
