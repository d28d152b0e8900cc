#pragma once
// The solver behind regression.h, apart so that cross-validation can warm-start it.
#include <memory>
#include <vector>

#include "trireme/stats/regression.h"

namespace trireme::stats {

// Columns of a symmetric Gram matrix on demand.
class GramSource {
 public:
  virtual ~GramSource() = default;
  virtual size_t size() const = 0;
  // out[k] becomes column which[k].
  virtual void columns(const std::vector<size_t>& which, std::vector<std::vector<double>>& out) const = 0;
};

class DenseGram : public GramSource {
 public:
  explicit DenseGram(const Dense& gram) : gram_(gram) {}  // keeps the reference
  size_t size() const override { return gram_.rows; }
  void columns(const std::vector<size_t>& which, std::vector<std::vector<double>>& out) const override;

 private:
  const Dense& gram_;
};

// (1/n) X^T X over the rows of x outside [skip_first, skip_end), entries truncated.
class DataGram : public GramSource {
 public:
  DataGram(const Matrix& x, double truncation, unsigned threads, size_t skip_first = 0, size_t skip_end = 0);
  size_t size() const override { return cols(x_); }
  size_t used_rows() const { return rows(x_) - (skip_end_ - skip_first_); }
  void columns(const std::vector<size_t>& which, std::vector<std::vector<double>>& out) const override;
  // (1/n) X^T Z for Z given by rows; Z is n x k, row-major, with a row for every row of x.
  void products(const std::vector<double>& z, size_t k, std::vector<std::vector<double>>& out) const;

 private:
  const Matrix& x_;
  double truncation_;
  unsigned threads_;
  size_t skip_first_, skip_end_;
};

// Coordinate descent on a growing working set, for positive semidefinite G. Keeps its coefficients and
// columns between calls, so a decreasing sequence of lambdas costs little more than the last one.
class WorkingSetLasso {
 public:
  WorkingSetLasso(const GramSource& gram, std::vector<double> b);
  // Fills everything of the fit but path and smallest_eigenvalue.
  LassoFit solve(const LassoOptions& options);

 private:
  void grow(const std::vector<size_t>& candidates);
  int descend(const LassoOptions& options, double stop);
  void refresh_gradient();

  const GramSource& gram_;
  std::vector<double> b_, theta_, gradient_;
  std::vector<size_t> active_;
  std::vector<char> is_active_;
  std::vector<std::vector<double>> columns_;  // of the active
};

void check_lambda(double lambda);  // Error(usage) unless finite and >= 0

// Largest violation of the optimality conditions: |g_j| <= lambda where theta_j = 0, g_j = -lambda
// sign(theta_j) elsewhere.
double lasso_violation(const std::vector<double>& gradient, const std::vector<double>& theta, double lambda);

}  // namespace trireme::stats
