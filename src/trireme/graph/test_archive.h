#pragma once
// Archives made byte by byte for the tests, as torch writes them or as Python's zipfile does, and broken on
// purpose.
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "trireme/graph/zip_reader.h"

namespace trireme::graph {

struct TestEntry {
  std::string name, data;
  // Overrides of what the directory says, to contradict the local header.
  int64_t directory_size = -1, directory_header = -1;
  uint16_t method = 0, flags = 0;
  uint32_t crc_error = 0;
};

struct TestArchive {
  std::vector<TestEntry> entries;
  bool descriptors = true;   // as torch: sizes stand after the data, the local header has zeros
  bool zip64 = true;         // as torch: a zip64 end record, always
  bool zip64_sizes = false;  // sizes and offsets in zip64 fields, as in archives above 4 GiB
  std::string comment;

  std::string bytes() const {
    std::string out, directory;
    for (const auto& e : entries) {
      const auto header = static_cast<uint64_t>(out.size());
      const auto crc = static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(e.data.data()),
                                                     static_cast<uInt>(e.data.size()))) ^
                       e.crc_error;
      const uint16_t flags = e.flags | (descriptors ? 8 : 0);
      const uint64_t size = e.data.size();
      const bool wide_header = zip64_sizes && !descriptors;
      const uint32_t header_size = descriptors ? 0 : wide_header ? 0xffffffff : static_cast<uint32_t>(size);
      put(out, uint32_t{0x04034b50}, uint16_t{20}, flags, e.method, uint32_t{0},
          descriptors ? uint32_t{0} : crc, header_size, header_size, static_cast<uint16_t>(e.name.size()),
          static_cast<uint16_t>(wide_header ? 20 : 0));
      out += e.name;
      if (wide_header) put(out, uint16_t{1}, uint16_t{16}, size, size);
      out += e.data;
      if (descriptors && zip64_sizes) put(out, uint32_t{0x08074b50}, crc, size, size);
      if (descriptors && !zip64_sizes)
        put(out, uint32_t{0x08074b50}, crc, static_cast<uint32_t>(size), static_cast<uint32_t>(size));

      const uint64_t listed_size = e.directory_size < 0 ? size : static_cast<uint64_t>(e.directory_size);
      const uint64_t listed_header =
          e.directory_header < 0 ? header : static_cast<uint64_t>(e.directory_header);
      const auto small = [this](uint64_t value) {
        return zip64_sizes ? 0xffffffff : static_cast<uint32_t>(value);
      };
      put(directory, uint32_t{0x02014b50}, uint16_t{20}, uint16_t{20}, flags, e.method, uint32_t{0}, crc,
          small(listed_size), small(listed_size), static_cast<uint16_t>(e.name.size()),
          static_cast<uint16_t>(zip64_sizes ? 28 : 0), uint16_t{0}, uint16_t{0}, uint16_t{0}, uint32_t{0},
          small(listed_header));
      directory += e.name;
      if (zip64_sizes) put(directory, uint16_t{1}, uint16_t{24}, listed_size, listed_size, listed_header);
    }
    const auto begin = static_cast<uint64_t>(out.size());
    const auto count = static_cast<uint64_t>(entries.size()), size = static_cast<uint64_t>(directory.size());
    out += directory;
    if (zip64) {
      const auto end = static_cast<uint64_t>(out.size());
      put(out, uint32_t{0x06064b50}, uint64_t{44}, uint16_t{45}, uint16_t{45}, uint32_t{0}, uint32_t{0},
          count, count, size, begin);
      put(out, uint32_t{0x07064b50}, uint32_t{0}, end, uint32_t{1});
    }
    const auto small = [this](uint64_t value) {
      return zip64_sizes ? 0xffffffff : static_cast<uint32_t>(value);
    };
    put(out, uint32_t{0x06054b50}, uint16_t{0}, uint16_t{0}, static_cast<uint16_t>(count),
        static_cast<uint16_t>(count), small(size), small(begin), static_cast<uint16_t>(comment.size()));
    return out + comment;
  }

  // The entries of an archive, to be changed and written again.
  static TestArchive of(const std::filesystem::path& path) {
    const ZipReader zip(path);
    TestArchive archive;
    for (const auto& [name, entry] : zip.entries()) {
      const auto data = zip.read(name);
      archive.entries.push_back({name, {reinterpret_cast<const char*>(data.data()), data.size()}});
    }
    return archive;
  }
  TestEntry& entry(const std::string& ending) {
    for (auto& e : entries)
      if (e.name.ends_with(ending)) return e;
    throw std::out_of_range(ending);
  }
  void remove(const std::string& ending) {
    std::erase_if(entries, [&](const TestEntry& e) { return e.name.ends_with(ending); });
  }

 private:
  template <typename... Numbers>
  static void put(std::string& out, Numbers... numbers) {
    (out.append(reinterpret_cast<const char*>(&numbers), sizeof numbers), ...);
  }
};

// A file of the running test, gone with it.
class TestFile {
 public:
  explicit TestFile(const std::string& content = "") { write(content); }
  ~TestFile() { std::filesystem::remove(path_); }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;
  void write(const std::string& content) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << content;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("trireme_graph_test_" + std::to_string(::getpid()) + ".pt2");
};

}  // namespace trireme::graph
