#pragma once
// Covariance from dithered bits (arXiv 2202.13157, section III; triangular dither: arXiv 2308.16059).
//
// Everything about the data is in integer counts, which add: batch = stream, merged parts = whole, bit for
// bit. With A_kj = 2 value_kj / step_j (odd integers), s = signs of the two dithers, per pair of columns over
// the rows k:
//   raw         gamma_i gamma_j / (2n) sum (s1_i s2_j + s2_i s1_j)
//   all_pairs   gamma_i gamma_j / (4n) sum (s1_i + s2_i)(s1_j + s2_j);   diagonal as raw
//   coded       step_i step_j / (4n) sum A_i A_j;   triangular: the diagonal minus step^2 / 4
// Rows with a value missing count only in the pairs that they do have (n becomes n_ij).
#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/stats/bits.h"
#include "trireme/stats/dense.h"
#include "trireme/stats/matrix_view.h"

namespace trireme::stats {

enum class Pairing { all_pairs, raw };  // what to make of two dithers

class CovarianceCounts {
 public:
  // with_errors also counts squares, which standard_errors() needs (one more pass over the bits).
  explicit CovarianceCounts(CodeBook book, Pairing pairing = Pairing::all_pairs, bool with_errors = false);
  // Throws Error(input) unless the block may be pooled (check_poolable). threads = 0: one per processor.
  // Another kernel than the fastest gives the same counts: for tests and benches.
  void add(const BitMatrix& block, unsigned threads = 0, const Kernels& k = kernels());
  void merge(const CovarianceCounts& other);
  // The counts of `whole` that are not in `part`, whose blocks must be slices of whole's: for
  // cross-validation.
  static CovarianceCounts without(const CovarianceCounts& whole, const CovarianceCounts& part);

  const CodeBook& book() const { return book_; }
  Pairing pairing() const { return pairing_; }
  uint64_t rows() const { return rows_; }
  size_t columns() const { return book_.columns(); }
  // n_ij, the rows that show both columns; n_ii those that show column i.
  uint64_t pairs(size_t i, size_t j) const;

  // Estimates of E clip(x)clip(x)^T and E x, of x - centre. `variances`: the known diagonal, needed by
  // one_bit and multi_bit, whose single uniform dither tells nothing certain about it (Error(usage) when it
  // is missing). Error(input) when a pair of columns was never seen together.
  Dense second_moment(const std::vector<double>& variances = {}) const;
  std::vector<double> mean() const;
  // second_moment - mean mean^T.
  Dense covariance(const std::vector<double>& variances = {}) const;
  // Of second_moment's entries: sqrt of the sample variance of the per-row terms / n_ij. Needs with_errors.
  Dense standard_errors() const;

  // The counts themselves, for storage. from_state throws Error(input) when the sizes do not fit.
  struct State {
    CodeBook book;
    Pairing pairing = Pairing::all_pairs;
    uint64_t rows = 0;
    std::vector<int64_t> sums, squares, pairs,
        column_sums;  // upper triangles by rows; empty squares, pairs: not kept
    std::vector<DitherPlace> places;
    std::vector<size_t> place_rows;
    bool operator==(const State&) const = default;
  };
  State state() const;
  static CovarianceCounts from_state(State state);
  bool operator==(const CovarianceCounts&) const = default;

 private:
  size_t at(size_t i, size_t j) const;  // in the upper triangle, i and j in any order
  double unit(size_t i, size_t j) const;
  void remember(const DitherPlace& place, size_t rows);
  void make_pairs();

  CodeBook book_;
  Pairing pairing_;
  uint64_t rows_ = 0;
  std::vector<int64_t> sums_, squares_, pairs_, column_sums_;
  std::vector<DitherPlace> places_;
  std::vector<size_t> place_rows_;
};

// --- After the estimate
// --------------------------------------------------------------------------------------------

enum class Shrink { hard, soft };

// Off-diagonal entries by |a| against level(i, j) = multiple * scale_i * scale_j * sqrt(log d / n); hard
// keeps or drops, soft also moves the kept towards 0. scale_j = range_j is the adaptive level (a constant
// range gives the universal one).
void threshold(Dense& matrix, Shrink shrink, double multiple, const std::vector<double>& scale, uint64_t n);

struct ThresholdChoice {
  double multiple = 0;
  std::vector<double> criterion;  // per candidate
};
// Adds a block's counts to those of K folds, as slices of consecutive rows: for choose_threshold.
void add_in_folds(const BitMatrix& block, std::vector<CovarianceCounts>& parts, unsigned threads = 0);
// From the counts of K folds: distance of the thresholded training estimate from the held-out, unthresholded
// one, off the diagonal; the chosen multiple holds for the whole sample, the training level being sqrt(n /
// n_train) higher.
ThresholdChoice choose_threshold(const std::vector<CovarianceCounts>& parts, Shrink shrink,
                                 const std::vector<double>& candidates);
ThresholdChoice choose_threshold(const BitMatrix& bits, Pairing pairing, Shrink shrink,
                                 const std::vector<double>& candidates, unsigned folds, unsigned threads = 0);

double smallest_eigenvalue(const Dense& symmetric);
// Nearest positive semidefinite matrix in the Frobenius norm: eigenvalues below `floor` are set to it.
Dense project_psd(const Dense& symmetric, double floor = 0);
// Same zeros, positive definite: off-diagonal entries times the largest t <= 1 with smallest eigenvalue >=
// floor. Throws Error(input) when the diagonal itself is below the floor.
Dense shrink_to_definite(const Dense& symmetric, double floor);
// Averages along diagonals: the covariance of a stationary series or of a uniform line array.
Dense toeplitz(const Dense& symmetric);

// The matrix [A -B; B A] of a Hermitian A + iB: symmetric, with the same eigenvalues, each twice; and back.
Dense embed(const ComplexDense& hermitian);
ComplexDense extract(const Dense& embedded);
// E x x^H of d/2 complex coordinates from the d x d matrix of their real and imaginary parts.
ComplexDense fold_complex(const Dense& parts);
ComplexDense toeplitz(const ComplexDense& hermitian);

// --- Baselines
// -----------------------------------------------------------------------------------------------------

// (1/n) sum x x^T in double precision.
Dense full_precision_second_moment(const Matrix& x, unsigned threads = 0);
// Arcsine law: sin(pi/2 mean(sign sign')), the correlation of Gaussian data from undithered signs; the scale
// is lost.
Dense arcsine_correlation(const Matrix& x, unsigned threads = 0);

}  // namespace trireme::stats
