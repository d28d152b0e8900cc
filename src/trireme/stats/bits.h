#pragma once
// Dithered codes packed as bit planes, and the file that holds them.
//
// Legend: n rows (samples), d columns (coordinates), b bits of a code, L = 2^b levels.
// A code c in {0 … L-1} of column j stands for the value  centre_j + (step_j / 2) (2c - (L - 1)),
// so one bit stands for centre_j +- range_j. The dither values are not needed to read codes, nor are they
// stored.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/stats/kernels.h"

namespace trireme::stats {

enum class Scheme {
  one_bit,     // sign(x + U), U uniform on [-range, range)
  two_dither,  // the same value twice with independent dithers: 2 bits, the second of which makes the
               // diagonal known
  triangular,  // b >= 2 bits, dither U1 + U2: both the mean and the mean square of the value are known for
               // every x
  multi_bit,   // b >= 1 bits, uniform dither (stochastic rounding); b = 1 is one_bit
};
std::string_view name(Scheme scheme);
Scheme scheme_of(std::string_view name);  // throws Error(usage) with the known names

// What one needs to read the codes. Two streams can be merged when these are equal.
struct CodeBook {
  Scheme scheme = Scheme::triangular;
  unsigned bits = 2;  // b; 1 for one_bit and two_dither
  std::vector<double>
      range;  // gamma_j >= 0, one per column; 0: the column is taken to be constant at its centre
  std::vector<double> truncation;  // eta_j <= gamma_j, clipping before the dither; empty: gamma
  std::vector<double> centre;      // subtracted before quantising; empty: 0
  double step = 0;  // cell width of all columns (triangular, multi_bit); 0: the least that holds the range
  bool complex = false;  // columns 0 … d/2-1 are real parts, the rest imaginary parts of d/2 coordinates

  size_t columns() const { return range.size(); }
  unsigned planes() const { return scheme == Scheme::two_dither ? 2 : bits; }
  double step_of(size_t column) const;
  double centre_of(size_t column) const { return centre.empty() ? 0 : centre[column]; }
  double truncation_of(size_t column) const {
    return truncation.empty() ? range[column] : truncation[column];
  }
  // Throws Error(usage) that names the field: sizes differ, negative or non-finite, truncation > range, too
  // few bits.
  void validate() const;
  bool operator==(const CodeBook&) const = default;
};

// The least number of bits with which `scheme` holds +-range at this step.
unsigned bits_for(Scheme scheme, double range, double step);

// Which dithers were drawn. Rows are numbered from first_row on within (seed, stream): the same place gives
// the same dither, so two blocks whose places overlap are not independent.
struct DitherPlace {
  uint64_t seed = 0;
  uint32_t stream = 0;
  uint64_t first_row = 0;
  bool operator==(const DitherPlace&) const = default;
};

// n rows of codes: planes(), each [d][words], 64 rows a word, row 0 in bit 0; padded with zeros to kWordAlign
// words. Plane 0 is the highest bit of the code (triangular, multi_bit), or the first dither's sign
// (two_dither).
class BitMatrix {
 public:
  BitMatrix() = default;
  BitMatrix(CodeBook book, DitherPlace place, size_t rows, bool with_mask);
  const CodeBook& book() const { return book_; }
  const DitherPlace& place() const { return place_; }
  size_t rows() const { return rows_; }
  size_t columns() const { return book_.columns(); }
  size_t words() const { return words_; }  // per column and plane
  bool has_mask() const { return !mask_.empty(); }
  const uint64_t* plane(unsigned p, size_t column) const { return &data_[(p * columns() + column) * words_]; }
  uint64_t* plane(unsigned p, size_t column) { return &data_[(p * columns() + column) * words_]; }
  // Bit set: the value was seen. Codes of unseen values are 0. Only with has_mask().
  const uint64_t* mask(size_t column) const { return &mask_[column * words_]; }
  uint64_t* mask(size_t column) { return &mask_[column * words_]; }
  // The value the code of (row, column) stands for, without the centre; p picks the dither of two_dither.
  double value(size_t row, size_t column, unsigned p = 0) const;
  bool seen(size_t row, size_t column) const;
  size_t payload_bytes() const { return (data_.size() + mask_.size()) * sizeof(uint64_t); }
  // Rows [first, first + count) as a matrix of their own, with their place.
  BitMatrix slice(size_t first, size_t count) const;
  bool operator==(const BitMatrix&) const = default;

 private:
  friend class BitsReader;
  friend class BitsWriter;
  CodeBook book_;
  DitherPlace place_;
  size_t rows_ = 0, words_ = 0;
  std::vector<uint64_t> data_, mask_;
};

// Throws Error(input) when the two may not be pooled: other code books, or overlapping places of one stream.
void check_poolable(const CodeBook& book, const std::vector<DitherPlace>& places,
                    const std::vector<size_t>& rows, const CodeBook& next_book, const DitherPlace& next,
                    size_t next_rows);

// The file (docs/reference/bits.md): a header with the code book, then blocks of rows, each with its place,
// its row count and a checksum. Blocks are read one at a time; files of one code book are merged by taking
// their blocks together.
class BitsWriter {
 public:
  // The file appears at `path` only by close(); until then it is `path` + ".partial".
  BitsWriter(std::filesystem::path path, const CodeBook& book);
  ~BitsWriter();
  BitsWriter(const BitsWriter&) = delete;
  BitsWriter& operator=(const BitsWriter&) = delete;
  void append(const BitMatrix& block);
  void close();

 private:
  struct File;
  std::unique_ptr<File> file_;
};

class BitsReader {
 public:
  // Throws Error(input) that names the file and what is wrong with it.
  explicit BitsReader(std::filesystem::path path);
  ~BitsReader();
  const CodeBook& book() const;
  // The next block; false at the end. A block cut short or with a wrong checksum throws Error(input).
  bool next(BitMatrix& block);

 private:
  struct File;
  std::unique_ptr<File> file_;
};

}  // namespace trireme::stats
