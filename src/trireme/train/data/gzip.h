#pragma once
// A file's bytes, inflated when it is gzip (told by its first two bytes, not by its name), mapped when it is
// not.
#include <filesystem>
#include <span>
#include <string>
#include <variant>

#include "trireme/base/files.h"

namespace trireme::train {

class FileBytes {
 public:
  // Error(input) names the file: missing, unreadable, truncated or damaged gzip.
  explicit FileBytes(const std::filesystem::path& path);
  std::span<const std::byte> bytes() const;

 private:
  std::variant<MappedFile, std::string> content_;
};

}  // namespace trireme::train
