#pragma once
// Sparse regression from dithered bits (arXiv 2202.13157, section IV; one-bit responses: arXiv 1807.06976).
//
//   minimise  1/2 theta^T G theta - b^T theta + lambda |theta|_1,   optionally subject to |theta|_1 <= radius
//
// G estimates E x x^T, b estimates E y x. With full-precision covariates G is positive semidefinite; from
// quantised ones it is not, and without the l1 ball the objective may have no minimum.
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/stats/bits.h"
#include "trireme/stats/covariance.h"
#include "trireme/stats/dense.h"
#include "trireme/stats/matrix_view.h"

namespace trireme::stats {

enum class LassoPath {
  automatic,      // convex where G is positive semidefinite; else the l1 ball where a radius is given; else
                  // projected
  convex,         // refuses an indefinite G
  l1_ball,        // needs a radius; proximal gradient with the exact step for penalty and ball together
  psd_projected,  // G's negative eigenvalues set to 0, then convex
};
std::string_view name(LassoPath path);
LassoPath lasso_path_of(std::string_view name);  // Error(usage) with the known names

struct LassoOptions {
  double lambda = 0;
  double radius = std::numeric_limits<double>::infinity();
  LassoPath path = LassoPath::automatic;
  int max_iterations = 20000;
  double tolerance = 1e-6;  // on the optimality conditions, relative to the largest |b|
  unsigned threads = 0;
};

struct LassoFit {
  std::vector<double> coefficients;
  LassoPath path = LassoPath::convex;  // the one taken
  int iterations = 0;
  bool converged = false;
  double optimality = 0;  // largest violation of the optimality conditions
  double objective = 0;
  double smallest_eigenvalue = std::numeric_limits<double>::quiet_NaN();  // of G, where it was in question
  std::string warning;  // one line, or empty: switched path, not converged
};

// From the Gram matrix and b. Error(input) when G is indefinite and path = convex, or shapes differ.
LassoFit lasso_gram(const Dense& gram, const std::vector<double>& b, const LassoOptions& options);

// Full-precision x (n x d), entries truncated at +-truncation; y: n rows of one column of codes, in the same
// row order. Only the columns of G that become active are computed. first/end pick rows for cross-validation.
LassoFit lasso_full(const Matrix& x, const BitMatrix& y, double truncation, const LassoOptions& options);

// --- Quantised covariates
// ---------------------------------------------------------------------------------------------

// G and b from bits; integer counts that add.
class RegressionCounts {
 public:
  RegressionCounts(CodeBook x, CodeBook y, Pairing pairing = Pairing::all_pairs);
  // Rows of x and y in the same order. Error(input) when their numbers differ.
  void add(const BitMatrix& x, const BitMatrix& y, unsigned threads = 0);
  void merge(const RegressionCounts& other);
  static RegressionCounts without(const RegressionCounts& whole, const RegressionCounts& part);
  const CovarianceCounts& gram_counts() const { return gram_; }
  uint64_t rows() const { return gram_.rows(); }
  Dense gram() const { return gram_.second_moment(); }
  // b_j = mean over rows of value(y) value(x_j); the mean of both dithers for two_dither.
  std::vector<double> cross() const;
  const std::vector<int64_t>& cross_sums() const { return cross_; }
  static RegressionCounts from_state(CovarianceCounts gram, CodeBook y, std::vector<int64_t> cross);

 private:
  CovarianceCounts gram_;
  CodeBook y_book_;
  std::vector<int64_t> cross_;
};

// lambda / (scale_x scale_y sqrt(log d / n)) by K folds of consecutive rows: held-out 1/2 theta^T G theta -
// b^T theta, which needs no full-precision y. Candidates are multiples; the solver takes them from the
// largest down.
struct LambdaChoice {
  double multiple = 0;
  std::vector<double> criterion;
};
LambdaChoice choose_lambda_full(const Matrix& x, const BitMatrix& y, double truncation,
                                const std::vector<double>& candidates, unsigned folds,
                                const LassoOptions& options);
LambdaChoice choose_lambda_quantised(const BitMatrix& x, const BitMatrix& y, Pairing pairing,
                                     const std::vector<double>& candidates, unsigned folds,
                                     const LassoOptions& options);

// Standard errors of the coefficients on the support, given the support: sandwich G_S^-1 Var(score) G_S^-1 /
// n with the per-row score y x_S - (x x^T)_S theta from full-precision (x) or decoded (bits) rows; 0 off the
// support.
std::vector<double> lasso_errors_full(const Matrix& x, const BitMatrix& y, double truncation,
                                      const std::vector<double>& coefficients);
std::vector<double> lasso_errors_quantised(const BitMatrix& x, const BitMatrix& y,
                                           const std::vector<double>& coefficients);

// --- Pieces, for tests
// ------------------------------------------------------------------------------------------------

// Minimises 1/2 |z - point|^2 + cut |z|_1 subject to |z|_1 <= radius, exactly.
std::vector<double> prox_l1_ball(const std::vector<double>& point, double cut, double radius);
// Largest and smallest eigenvalue of a symmetric matrix: dense solver up to 400 columns, then Lanczos.
struct EigenRange {
  double smallest = 0, largest = 0;
};
EigenRange eigenvalue_range(const Dense& symmetric);

}  // namespace trireme::stats
