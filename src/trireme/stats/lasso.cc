#include "trireme/stats/lasso.h"

#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/stats/parallel.h"

namespace trireme::stats {
namespace {

using Eigen::Index;
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXd;

constexpr size_t kRows = 512, kColumns = 512;  // a block of x that stays in the second-level cache as floats

double soft(double value, double cut) {
  return std::copysign(std::max(0.0, std::abs(value) - cut), value);
}

double l1_norm(const std::vector<double>& v) {
  return std::accumulate(v.begin(), v.end(), 0.0, [](double sum, double x) { return sum + std::abs(x); });
}

double largest(const std::vector<double>& v) {
  double out = 0;
  for (double x : v) out = std::max(out, std::abs(x));
  return out;
}

double objective(const std::vector<double>& gradient, const std::vector<double>& b,
                 const std::vector<double>& theta, double lambda) {
  double sum = 0;  // G theta = gradient + b
  for (size_t j = 0; j < theta.size(); ++j)
    sum += theta[j] * ((gradient[j] + b[j]) / 2 - b[j]) + lambda * std::abs(theta[j]);
  return sum;
}

Vector multiply(const Dense& m, const Vector& v, unsigned threads) {
  Vector out(v.size());
  const size_t strips = (m.rows + 255) / 256;
  parallel_for(strips, threads, [&](size_t s) {
    const Index first = static_cast<Index>(s * 256),
                count = std::min<Index>(256, static_cast<Index>(m.rows) - first);
    const Eigen::Map<const RowMajor> strip(&m.values[static_cast<size_t>(first) * m.cols], count,
                                           static_cast<Index>(m.cols));
    out.segment(first, count).noalias() = strip * v;
  });
  return out;
}

// Lanczos with full reorthogonalisation. Ritz values lie inside the spectrum, so a negative smallest one is
// proof; the largest is good to about a percent when it has stopped moving.
EigenRange lanczos_range(const Dense& m) {
  constexpr int kSteps = 120;
  PhiloxStream random(17, 0);
  const Index d = static_cast<Index>(m.rows);
  std::vector<Vector> basis{Vector(d)};
  for (Index i = 0; i < d; ++i) basis[0][i] = random.next_double() - 0.5;
  basis[0].normalize();
  std::vector<double> diagonal, off;
  EigenRange range;
  for (int step = 0; step < kSteps && step < d; ++step) {
    Vector next = multiply(m, basis.back(), 0);
    diagonal.push_back(basis.back().dot(next));
    for (int turn = 0; turn < 2; ++turn)
      for (const Vector& q : basis) next -= q.dot(next) * q;
    const Eigen::Map<const Vector> a(diagonal.data(), static_cast<Index>(diagonal.size()));
    const Eigen::Map<const Vector> c(off.data(), static_cast<Index>(off.size()));
    Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver;
    solver.computeFromTridiagonal(a, c, Eigen::EigenvaluesOnly);
    const EigenRange before = range;
    range = {solver.eigenvalues().minCoeff(), solver.eigenvalues().maxCoeff()};
    const double scale = std::max(std::abs(range.smallest), std::abs(range.largest));
    // An indefinite matrix is known at once; a definite one must have converged at its lower end.
    const double moved =
        std::max(std::abs(range.largest - before.largest), std::abs(range.smallest - before.smallest));
    if (step > 10 && moved < (range.smallest < 0 ? 2e-3 : 1e-6) * scale) break;
    const double length = next.norm();
    if (length < 1e-12 * scale) break;
    off.push_back(length);
    basis.push_back(next / length);
  }
  return range;
}

// Proximal gradient without momentum: for an indefinite G inside the l1 ball it descends to a stationary
// point.
LassoFit l1_ball_descent(const Dense& gram, const std::vector<double>& b, const LassoOptions& options,
                         double norm) {
  LassoFit fit;
  const size_t d = b.size();
  const double step = 1 / norm, stop = options.tolerance * std::max(largest(b), 1e-300);
  std::vector<double> theta(d, 0.0), gradient(d);
  const DenseGram source(gram);
  for (fit.iterations = 0; fit.iterations < options.max_iterations; ++fit.iterations) {
    for (size_t j = 0; j < d; ++j) gradient[j] = -b[j];
    for (size_t k = 0; k < d; ++k)
      if (theta[k] != 0)
        Eigen::Map<Vector>(gradient.data(), static_cast<Index>(d)) +=
            theta[k] * Eigen::Map<const Vector>(&gram.values[k * d], static_cast<Index>(d));
    std::vector<double> point(d);
    for (size_t j = 0; j < d; ++j) point[j] = theta[j] - step * gradient[j];
    std::vector<double> next = prox_l1_ball(point, options.lambda * step, options.radius);
    double moved = 0;
    for (size_t j = 0; j < d; ++j) moved = std::max(moved, std::abs(next[j] - theta[j]));
    fit.optimality = moved / step;
    fit.objective = objective(gradient, b, theta, options.lambda);
    theta = std::move(next);
    if (fit.optimality <= stop) {
      fit.converged = true;
      break;
    }
  }
  fit.coefficients = std::move(theta);
  return fit;
}

LassoPath choose_path(const LassoOptions& options, const EigenRange& range, LassoFit& notes) {
  const bool definite = range.smallest >= -1e-10 * range.largest;
  const bool ball = std::isfinite(options.radius);
  switch (options.path) {
    case LassoPath::convex:
      if (!definite)
        fail(ErrorCode::input, "the Gram matrix has a negative eigenvalue (", range.smallest,
             "), so the problem without an l1 ball may have no minimum: give a radius, or take path "
             "psd_projected");
      return LassoPath::convex;
    case LassoPath::l1_ball:
      if (!ball)
        fail(ErrorCode::usage,
             "path l1_ball needs a finite radius, at least the l1 norm of the coefficients sought");
      return LassoPath::l1_ball;
    case LassoPath::psd_projected:
      return LassoPath::psd_projected;
    case LassoPath::automatic:
      break;
  }
  if (ball) return LassoPath::l1_ball;
  if (definite) return LassoPath::convex;
  notes.warning =
      cat("the Gram matrix has a negative eigenvalue (", range.smallest,
          "); it was projected to the nearest positive semidefinite one. Give a radius for the l1-ball path");
  return LassoPath::psd_projected;
}

void check_problem(const Dense& gram, const std::vector<double>& b, const LassoOptions& options) {
  if (gram.rows != gram.cols || gram.rows != b.size() || b.empty())
    fail(ErrorCode::input, "a ", gram.rows, " x ", gram.cols, " Gram matrix does not fit ", b.size(),
         " cross moments");
  for (const auto* values : {&gram.values, &b})
    for (double v : *values)
      if (!std::isfinite(v))
        fail(ErrorCode::input, "the Gram matrix or the cross moments hold NaN or infinite entries");
  check_lambda(options.lambda);
  if (!(options.radius > 0)) fail(ErrorCode::usage, "radius ", options.radius, " must be positive");
}

}  // namespace

std::string_view name(LassoPath path) {
  switch (path) {
    case LassoPath::automatic:
      return "automatic";
    case LassoPath::convex:
      return "convex";
    case LassoPath::l1_ball:
      return "l1_ball";
    case LassoPath::psd_projected:
      return "psd_projected";
  }
  return "?";
}

LassoPath lasso_path_of(std::string_view text) {
  for (LassoPath p : {LassoPath::automatic, LassoPath::convex, LassoPath::l1_ball, LassoPath::psd_projected})
    if (name(p) == text) return p;
  fail(ErrorCode::usage, "unknown path \"", text, "\": one of automatic, convex, l1_ball, psd_projected");
}

void DenseGram::columns(const std::vector<size_t>& which, std::vector<std::vector<double>>& out) const {
  out.clear();
  for (size_t j : which) {
    const auto row = gram_.values.begin() + static_cast<std::ptrdiff_t>(j * gram_.cols);
    out.emplace_back(row, row + static_cast<std::ptrdiff_t>(gram_.cols));
  }
}

DataGram::DataGram(const Matrix& x, double truncation, unsigned threads, size_t skip_first, size_t skip_end)
    : x_(x), truncation_(truncation), threads_(threads), skip_first_(skip_first), skip_end_(skip_end) {
  if (!(truncation > 0)) fail(ErrorCode::usage, "truncation ", truncation, " must be positive");
}

void DataGram::columns(const std::vector<size_t>& which, std::vector<std::vector<double>>& out) const {
  std::vector<double> z(rows(x_) * which.size());
  std::visit(
      [&](const auto& view) {
        for (size_t i = 0; i < view.rows; ++i)
          for (size_t k = 0; k < which.size(); ++k)
            z[i * which.size() + k] =
                std::clamp(static_cast<double>(view(i, which[k])), -truncation_, truncation_);
      },
      x_);
  products(z, which.size(), out);
}

void DataGram::products(const std::vector<double>& z, size_t k, std::vector<std::vector<double>>& out) const {
  const size_t n = rows(x_), d = cols(x_);
  out.assign(k, std::vector<double>(d));
  parallel_for((d + kColumns - 1) / kColumns, threads_, [&](size_t item) {
    const size_t column = item * kColumns, width = std::min(kColumns, d - column);
    RowMajor total = RowMajor::Zero(static_cast<Index>(k), static_cast<Index>(width));
    for (size_t first = 0; first < n; first += kRows) {
      const size_t count = std::min(kRows, n - first);
      RowMajor block(static_cast<Index>(count), static_cast<Index>(width));
      std::visit(
          [&](const auto& view) {
            for (size_t i = 0; i < count; ++i) {
              const bool skipped = first + i >= skip_first_ && first + i < skip_end_;
              for (size_t j = 0; j < width; ++j)
                block(static_cast<Index>(i), static_cast<Index>(j)) =
                    skipped ? 0
                            : std::clamp(static_cast<double>(view(first + i, column + j)), -truncation_,
                                         truncation_);
            }
          },
          x_);
      const Eigen::Map<const RowMajor> part(&z[first * k], static_cast<Index>(count), static_cast<Index>(k));
      total.noalias() += part.transpose() * block;
    }
    for (size_t r = 0; r < k; ++r)
      for (size_t j = 0; j < width; ++j)
        out[r][column + j] =
            total(static_cast<Index>(r), static_cast<Index>(j)) / static_cast<double>(used_rows());
  });
}

void check_lambda(double lambda) {
  if (!(lambda >= 0) || !std::isfinite(lambda))
    fail(ErrorCode::usage, "lambda ", lambda, ": give a finite number that is not negative");
}

double lasso_violation(const std::vector<double>& gradient, const std::vector<double>& theta, double lambda) {
  double worst = 0;
  for (size_t j = 0; j < theta.size(); ++j)
    worst = std::max(worst, theta[j] == 0 ? std::abs(gradient[j]) - lambda
                                          : std::abs(gradient[j] + std::copysign(lambda, theta[j])));
  return worst;
}

WorkingSetLasso::WorkingSetLasso(const GramSource& gram, std::vector<double> b)
    : gram_(gram), b_(std::move(b)), theta_(b_.size(), 0.0), gradient_(b_.size()), is_active_(b_.size(), 0) {
  refresh_gradient();
}

void WorkingSetLasso::refresh_gradient() {
  for (size_t j = 0; j < b_.size(); ++j) gradient_[j] = -b_[j];
  Eigen::Map<Vector> g(gradient_.data(), static_cast<Index>(b_.size()));
  for (size_t k = 0; k < active_.size(); ++k)
    if (theta_[active_[k]] != 0)
      g += theta_[active_[k]] * Eigen::Map<const Vector>(columns_[k].data(), static_cast<Index>(b_.size()));
}

void WorkingSetLasso::grow(const std::vector<size_t>& candidates) {
  std::vector<std::vector<double>> fresh;
  gram_.columns(candidates, fresh);
  for (size_t k = 0; k < candidates.size(); ++k) {
    active_.push_back(candidates[k]);
    is_active_[candidates[k]] = 1;
    columns_.push_back(std::move(fresh[k]));
  }
}

// Cyclic coordinate descent over the working set; keeps the gradient right on the set only. Returns the
// sweeps.
int WorkingSetLasso::descend(const LassoOptions& options, double stop) {
  int sweeps = 0;
  for (; sweeps < options.max_iterations; ++sweeps) {
    double worst = 0;
    for (size_t k = 0; k < active_.size(); ++k) {
      const size_t j = active_[k];
      const double curvature = columns_[k][j];
      if (!(curvature > 0)) continue;  // a constant column
      const double next = soft(theta_[j] * curvature - gradient_[j], options.lambda) / curvature;
      const double change = next - theta_[j];
      if (change == 0) continue;
      theta_[j] = next;
      for (size_t a : active_) gradient_[a] += change * columns_[k][a];
      worst = std::max(worst, std::abs(change) * curvature);
    }
    if (worst <= stop) break;
  }
  return sweeps;
}

LassoFit WorkingSetLasso::solve(const LassoOptions& options) {
  LassoFit fit;
  const double stop = options.tolerance * std::max(largest(b_), 1e-300);
  while (fit.iterations < options.max_iterations) {
    fit.iterations += 1 + descend(options, stop / 4);
    refresh_gradient();
    std::vector<size_t> violating;
    for (size_t j = 0; j < b_.size(); ++j)
      if (!is_active_[j] && std::abs(gradient_[j]) > options.lambda + stop) violating.push_back(j);
    if (violating.empty()) break;
    const size_t keep = std::min(violating.size(), std::max<size_t>(16, active_.size() / 2));
    std::partial_sort(violating.begin(), violating.begin() + static_cast<std::ptrdiff_t>(keep),
                      violating.end(),
                      [&](size_t a, size_t c) { return std::abs(gradient_[a]) > std::abs(gradient_[c]); });
    violating.resize(keep);
    grow(violating);
  }
  fit.optimality = std::max(0.0, lasso_violation(gradient_, theta_, options.lambda));
  fit.converged = fit.optimality <= 2 * stop;
  fit.objective = objective(gradient_, b_, theta_, options.lambda);
  fit.coefficients = theta_;
  if (!fit.converged)
    fit.warning = cat("not converged after ", fit.iterations, " sweeps: optimality ", fit.optimality,
                      " above ", stop, "; raise max_iterations or lambda");
  return fit;
}

std::vector<double> prox_l1_ball(const std::vector<double>& point, double cut, double radius) {
  std::vector<double> out(point.size());
  for (size_t j = 0; j < point.size(); ++j) out[j] = soft(point[j], cut);
  if (l1_norm(out) <= radius) return out;
  // Inside the ball the penalty only adds a multiple of the constraint's own norm: project the point itself.
  std::vector<double> sizes(point.size());
  for (size_t j = 0; j < point.size(); ++j) sizes[j] = std::abs(point[j]);
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  double sum = 0, level = 0;
  for (size_t k = 0; k < sizes.size(); ++k) {
    sum += sizes[k];
    const double trial = (sum - radius) / static_cast<double>(k + 1);
    if (trial >= sizes[k]) break;
    level = trial;
  }
  for (size_t j = 0; j < point.size(); ++j) out[j] = soft(point[j], level);
  return out;
}

EigenRange eigenvalue_range(const Dense& m) {
  if (m.rows > 400) return lanczos_range(m);
  const Eigen::Map<const RowMajor> full(m.values.data(), static_cast<Index>(m.rows),
                                        static_cast<Index>(m.cols));
  const Eigen::SelfAdjointEigenSolver<RowMajor> solver(full, Eigen::EigenvaluesOnly);
  return {solver.eigenvalues().minCoeff(), solver.eigenvalues().maxCoeff()};
}

LassoFit lasso_gram(const Dense& gram, const std::vector<double>& b, const LassoOptions& options) {
  constexpr size_t kLargestProjection = 3000;
  check_problem(gram, b, options);
  const EigenRange range = eigenvalue_range(gram);
  LassoFit notes;
  const LassoPath path = choose_path(options, range, notes);
  LassoFit fit;
  if (path == LassoPath::l1_ball) {
    const double norm = std::max(std::abs(range.smallest), std::abs(range.largest));
    if (norm > 0)
      fit = l1_ball_descent(gram, b, options, 1.02 * norm);  // Lanczos may be a percent low
    else
      fit.coefficients.assign(b.size(), 0.0), fit.converged = true;
    if (!fit.converged)
      fit.warning = cat("not converged after ", fit.iterations, " steps: optimality ", fit.optimality,
                        "; raise max_iterations, or lower the radius");
  } else {
    if (path == LassoPath::psd_projected && b.size() > kLargestProjection)
      fail(ErrorCode::input, "the Gram matrix of ", b.size(), " columns has a negative eigenvalue (",
           range.smallest, ") and is too large to project: give a radius for the l1-ball path");
    const Dense projected = path == LassoPath::psd_projected ? project_psd(gram) : Dense();
    const DenseGram source(path == LassoPath::psd_projected ? projected : gram);
    fit = WorkingSetLasso(source, b).solve(options);
  }
  fit.path = path;
  fit.smallest_eigenvalue = range.smallest;
  if (!notes.warning.empty())
    fit.warning = fit.warning.empty() ? notes.warning : notes.warning + "; " + fit.warning;
  return fit;
}

}  // namespace trireme::stats
