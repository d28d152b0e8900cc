#pragma once
// safetensors files (8-byte header length, JSON header, raw little-endian data), read through a map, written
// with fsync + rename. Format: the safetensors README; header limited to 100 MB, gaps and overlaps refused.
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/spec/dtype.h"

namespace trireme::tensor {

struct SafetensorsEntry {
  spec::Dtype dtype = spec::Dtype::f32;
  spec::Shape shape;
  std::span<const std::byte>
      bytes;  // lives as long as the file object (reading) or the caller's memory (writing)
};

class SafetensorsFile {
 public:
  // Error(input) names the file and what is wrong with it: truncated, overlapping, size that does not match,
  // …
  explicit SafetensorsFile(const std::filesystem::path& path);
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  MappedFile file_;
  std::map<std::string, SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

// Throws Error(io) naming file and cause; an existing file is then intact.
void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, SafetensorsEntry>& entries,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace trireme::tensor
