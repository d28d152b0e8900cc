#pragma once
// Means from one dithered bit a value: centre + (step / 2) mean(2 code - (L - 1)), with the pilot rule for
// the range.
#include <cstdint>
#include <vector>

#include "trireme/stats/bits.h"
#include "trireme/stats/matrix_view.h"

namespace trireme::stats {

// Integer counts per column; they add, so stream = batch and merged parts = whole.
class MeanCounts {
 public:
  explicit MeanCounts(CodeBook book);
  void add(const BitMatrix& block);  // Error(input) when check_poolable refuses
  void merge(const MeanCounts& other);
  const CodeBook& book() const { return book_; }
  uint64_t rows(size_t column) const { return seen_[column]; }
  // Error(input) naming the column that was never seen.
  std::vector<double> mean() const;
  // Square root of the sample variance of the decoded values over their number.
  std::vector<double> standard_errors() const;

  struct State {
    CodeBook book;
    std::vector<uint64_t> seen;
    std::vector<int64_t> sums, squares;  // of 2 code - (L - 1); two dithers: of the sum of both signs
    std::vector<DitherPlace> places;
    std::vector<size_t> place_rows;
    bool operator==(const State&) const = default;
  };
  State state() const { return {book_, seen_, sums_, squares_, places_, place_rows_}; }
  static MeanCounts from_state(State state);
  bool operator==(const MeanCounts&) const = default;

 private:
  CodeBook book_;
  std::vector<uint64_t> seen_;
  std::vector<int64_t> sums_, squares_;
  std::vector<DitherPlace> places_;
  std::vector<size_t> place_rows_;
};

// The pilot rule per column from the first rows of x (pilot_rule): a one-bit code book with centre and range,
// and how many rows the pilot used up. Those rows stay at full precision and are not quantised. NaN are left
// out.
struct PilotBook {
  CodeBook book;
  size_t rows = 0;
};
PilotBook pilot_book(const Matrix& x, size_t total_rows, double corrupted = 0);

}  // namespace trireme::stats
