#pragma once
// Low-rank matrix completion from one dithered bit per observed entry (arXiv 2202.13157, section V). No noise
// law is needed.
//
//   minimise  1/(2n) sum_k (Theta[i_k, j_k] - gamma q_k)^2 + lambda |Theta|_*   subject to |Theta[i, j]| <=
//   bound
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/stats/bits.h"
#include "trireme/stats/dense.h"

namespace trireme::stats {

// Where entries were observed, with repetition; rows and columns from 0.
struct Entries {
  std::vector<int64_t> rows, cols;
};

// How often each entry was seen and what its codes add up to: integers that add, so stream = batch and parts
// = whole.
class CompletionCounts {
 public:
  CompletionCounts(size_t rows, size_t cols, CodeBook book);  // a one-column book, any scheme but two_dither
  // bits: one row per entry. Throws Error(input) naming the first entry outside the matrix.
  void add(const Entries& entries, const BitMatrix& bits);
  void merge(const CompletionCounts& other);
  size_t rows() const { return rows_; }
  size_t cols() const { return cols_; }
  uint64_t observations() const { return observations_; }
  const CodeBook& book() const { return book_; }
  double count(size_t i, size_t j) const { return static_cast<double>(seen_[i * cols_ + j]); }
  // Sum of the decoded values of an entry.
  double sum(size_t i, size_t j) const;

  struct State {
    size_t rows = 0, cols = 0;
    CodeBook book;
    uint64_t observations = 0;
    std::vector<int32_t> seen;
    std::vector<int64_t> sums;
    std::vector<DitherPlace> places;
    std::vector<size_t> place_rows;
    bool operator==(const State&) const = default;
  };
  State state() const { return {rows_, cols_, book_, observations_, seen_, sums_, places_, place_rows_}; }
  static CompletionCounts from_state(State state);
  bool operator==(const CompletionCounts&) const = default;

 private:
  size_t rows_, cols_;
  CodeBook book_;
  uint64_t observations_ = 0;
  std::vector<int32_t> seen_;
  std::vector<int64_t> sums_;
  std::vector<DitherPlace> places_;
  std::vector<size_t> place_rows_;
};

struct CompletionOptions {
  double lambda = 0;
  double bound = 1;  // alpha
  int max_iterations = 500;
  double tolerance = 1e-6;  // root mean square of Theta - Z, relative to the bound
  unsigned threads = 0;
};

struct CompletionFit {
  Dense matrix;  // within the bound
  size_t rank = 0;
  int iterations = 0;
  bool converged = false;
  double residual = 0;  // root mean square of Theta - Z
  std::string warning;  // one line, or empty
};

// ADMM: Theta fits the data inside the box, Z is low rank, penalty 1 / (rows cols) at first. Singular values
// come from a block power iteration started from the last iterate's, so that large matrices cost a few
// products each step.
CompletionFit complete(const CompletionCounts& counts, const CompletionOptions& options);

// gamma sqrt(log(d1 + d2) / (n min(d1, d2))): lambda for multiple 1, which found the exact rank in the
// reference runs.
double completion_lambda(double range, size_t rows, size_t cols, uint64_t observations);

struct CompletionChoice {
  double multiple = 0;
  std::vector<double>
      criterion;  // held-out mean square of Theta - gamma q: the squared error plus a constant
};
// K folds of consecutive observations.
CompletionChoice choose_completion_lambda(const Entries& entries, const BitMatrix& bits, size_t rows,
                                          size_t cols, const std::vector<double>& candidates, unsigned folds,
                                          const CompletionOptions& options);

}  // namespace trireme::stats
