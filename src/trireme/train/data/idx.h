#pragma once
// IDX files (the format of the MNIST digits): two zero bytes, element type, number of dimensions, big-endian
// sizes, data.
#include <filesystem>
#include <span>

#include "trireme/spec/dtype.h"
#include "trireme/train/data/gzip.h"

namespace trireme::train {

// Unsigned bytes only, which all known image sets of this format hold.
class IdxFile {
 public:
  // Error(input) names the file: not IDX, another element type, sizes that do not match its length.
  explicit IdxFile(const std::filesystem::path& path);
  const spec::Shape& shape() const { return shape_; }  // at least one dimension; the first counts samples
  // Row-major, count(shape()) bytes; lives as long as this object.
  std::span<const std::byte> data() const { return file_.bytes().subspan(header_bytes_); }

 private:
  FileBytes file_;
  spec::Shape shape_;
  size_t header_bytes_ = 0;
};

}  // namespace trireme::train
