#include "trireme/solver/least_squares.h"

#include <Eigen/Dense>
#include <Eigen/QR>

#include "trireme/base/error.h"

namespace trireme::solver {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

// The unconstrained solution over the columns of the active set; 0 elsewhere.
VectorXd solve_on(const MatrixXd& a, const VectorXd& b, const std::vector<bool>& active) {
  std::vector<Index> columns;
  for (size_t j = 0; j < active.size(); ++j)
    if (active[j]) columns.push_back(static_cast<Index>(j));
  MatrixXd part(a.rows(), static_cast<Index>(columns.size()));
  for (size_t j = 0; j < columns.size(); ++j) part.col(static_cast<Index>(j)) = a.col(columns[j]);
  const VectorXd solved = part.colPivHouseholderQr().solve(b);
  VectorXd x = VectorXd::Zero(a.cols());
  for (size_t j = 0; j < columns.size(); ++j) x(columns[j]) = solved(static_cast<Index>(j));
  return x;
}

}  // namespace

std::vector<double> nonnegative_least_squares(std::span<const double> a, size_t columns,
                                              std::span<const double> b) {
  TRIREME_CHECK(columns > 0 && a.size() == columns * b.size());
  using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto n = static_cast<Index>(columns);
  const MatrixXd A = Eigen::Map<const RowMajor>(a.data(), static_cast<Index>(b.size()), n);
  const VectorXd B = Eigen::Map<const VectorXd>(b.data(), static_cast<Index>(b.size()));
  const double tolerance = 1e-12 * (1 + (A.transpose() * B).cwiseAbs().maxCoeff());
  VectorXd x = VectorXd::Zero(n);
  std::vector<bool> active(columns, false);
  for (size_t round = 0; round < 3 * columns; ++round) {
    const VectorXd gradient = A.transpose() * (B - A * x);
    Index enter = -1;
    for (Index j = 0; j < n; ++j)
      if (!active[static_cast<size_t>(j)] && gradient(j) > tolerance &&
          (enter < 0 || gradient(j) > gradient(enter)))
        enter = j;
    if (enter < 0) break;
    active[static_cast<size_t>(enter)] = true;
    VectorXd next = solve_on(A, B, active);
    // Back along the line to the new solution until none is negative; those at zero leave the set.
    for (size_t inner = 0; inner < columns; ++inner) {
      double share = 1;
      for (Index j = 0; j < n; ++j)
        if (active[static_cast<size_t>(j)] && next(j) <= 0) share = std::min(share, x(j) / (x(j) - next(j)));
      if (share >= 1) break;
      x += share * (next - x);
      for (Index j = 0; j < n; ++j)
        if (active[static_cast<size_t>(j)] && next(j) <= 0 && x(j) <= tolerance) {
          x(j) = 0;
          active[static_cast<size_t>(j)] = false;
        }
      next = solve_on(A, B, active);
    }
    x = next.cwiseMax(0);
  }
  return {x.data(), x.data() + n};
}

}  // namespace trireme::solver
