#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/base/error.h"
#include "trireme/stats/covariance.h"
#include "trireme/stats/parallel.h"

namespace trireme::stats {
namespace {

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Eigen::Map<const RowMajor> map(const Dense& m) {
  return {m.values.data(), static_cast<Eigen::Index>(m.rows), static_cast<Eigen::Index>(m.cols)};
}
Eigen::Map<RowMajor> map(Dense& m) {
  return {m.values.data(), static_cast<Eigen::Index>(m.rows), static_cast<Eigen::Index>(m.cols)};
}

Eigen::SelfAdjointEigenSolver<RowMajor> eigen(const Dense& symmetric, int what) {
  if (symmetric.rows != symmetric.cols || symmetric.rows == 0)
    fail(ErrorCode::usage, "a ", symmetric.rows, " x ", symmetric.cols,
         " matrix has no eigenvalues; give a square one");
  Eigen::SelfAdjointEigenSolver<RowMajor> solver(map(symmetric), what);
  if (solver.info() != Eigen::Success)
    fail(ErrorCode::input, "no eigenvalues: the matrix has NaN or infinite entries");
  return solver;
}

// multiple * sqrt(log d / n), without the entry's own scale.
double level(double multiple, size_t d, uint64_t n) {
  return multiple * std::sqrt(std::log(std::max<double>(2, d)) / static_cast<double>(n));
}

double off_diagonal_distance(const Dense& a, const Dense& b) {
  double sum = 0;
  for (size_t i = 0; i < a.rows; ++i)
    for (size_t j = 0; j < a.cols; ++j)
      if (i != j) sum += (a(i, j) - b(i, j)) * (a(i, j) - b(i, j));
  return sum;
}

}  // namespace

void threshold(Dense& m, Shrink shrink, double multiple, const std::vector<double>& scale, uint64_t n) {
  if (scale.size() != m.rows || m.rows != m.cols)
    fail(ErrorCode::usage, "threshold: ", scale.size(), " scales for a ", m.rows, " x ", m.cols, " matrix");
  if (!(multiple >= 0)) fail(ErrorCode::usage, "threshold multiple ", multiple, " must not be negative");
  const double common = level(multiple, m.rows, n);
  for (size_t i = 0; i < m.rows; ++i)
    for (size_t j = 0; j < m.cols; ++j) {
      const double cut = common * scale[i] * scale[j];
      double& a = m(i, j);
      if (i == j) continue;
      if (std::abs(a) < cut)
        a = 0;
      else if (shrink == Shrink::soft)
        a = std::copysign(std::abs(a) - cut, a);
    }
}

void add_in_folds(const BitMatrix& block, std::vector<CovarianceCounts>& parts, unsigned threads) {
  for (size_t f = 0; f < parts.size(); ++f) {
    const size_t first = block.rows() * f / parts.size(), end = block.rows() * (f + 1) / parts.size();
    if (end > first) parts[f].add(block.slice(first, end - first), threads);
  }
}

ThresholdChoice choose_threshold(const std::vector<CovarianceCounts>& parts, Shrink shrink,
                                 const std::vector<double>& candidates) {
  if (candidates.empty()) fail(ErrorCode::usage, "no candidate thresholds");
  if (parts.size() < 2) fail(ErrorCode::usage, parts.size(), " folds: give from 2 to as many as rows");
  CovarianceCounts whole = parts[0];
  for (size_t f = 1; f < parts.size(); ++f) whole.merge(parts[f]);
  for (const CovarianceCounts& part : parts)
    if (part.rows() == 0)
      fail(ErrorCode::usage, parts.size(), " folds of ", whole.rows(),
           " rows: give from 2 to as many folds as rows");
  const size_t d = whole.columns();
  // Only off-diagonal entries are compared, so that schemes without a diagonal can be tuned too.
  const std::vector<double> diagonal(d, 0.0);
  ThresholdChoice choice;
  choice.criterion.assign(candidates.size(), 0);
  for (const CovarianceCounts& held_out : parts) {
    const CovarianceCounts training = CovarianceCounts::without(whole, held_out);
    const Dense estimate = training.second_moment(diagonal), target = held_out.second_moment(diagonal);
    for (size_t c = 0; c < candidates.size(); ++c) {
      Dense cut = estimate;
      threshold(cut, shrink, candidates[c], whole.book().range, training.rows());
      choice.criterion[c] += off_diagonal_distance(cut, target) / static_cast<double>(parts.size());
    }
  }
  const auto best = std::min_element(choice.criterion.begin(), choice.criterion.end());
  choice.multiple = candidates[static_cast<size_t>(best - choice.criterion.begin())];
  return choice;
}

ThresholdChoice choose_threshold(const BitMatrix& bits, Pairing pairing, Shrink shrink,
                                 const std::vector<double>& candidates, unsigned folds, unsigned threads) {
  if (folds > bits.rows())
    fail(ErrorCode::usage, folds, " folds of ", bits.rows(), " rows: give from 2 to as many folds as rows");
  std::vector<CovarianceCounts> parts(folds, CovarianceCounts(bits.book(), pairing));
  add_in_folds(bits, parts, threads);
  return choose_threshold(parts, shrink, candidates);
}

double smallest_eigenvalue(const Dense& symmetric) {
  return eigen(symmetric, Eigen::EigenvaluesOnly).eigenvalues().minCoeff();
}

Dense project_psd(const Dense& symmetric, double floor) {
  const auto solver = eigen(symmetric, Eigen::ComputeEigenvectors);
  Dense out(symmetric.rows, symmetric.cols);
  const RowMajor scaled = solver.eigenvectors() * solver.eigenvalues().cwiseMax(floor).asDiagonal();
  map(out).noalias() = scaled * solver.eigenvectors().transpose();
  for (size_t i = 0; i < out.rows; ++i)
    for (size_t j = 0; j < i; ++j) out(i, j) = out(j, i) = (out(i, j) + out(j, i)) / 2;
  return out;
}

Dense shrink_to_definite(const Dense& symmetric, double floor) {
  const auto full = map(symmetric);
  for (size_t i = 0; i < symmetric.rows; ++i)
    if (!(symmetric(i, i) >= floor))
      fail(ErrorCode::input, "the variance of column ", i, " is ", symmetric(i, i),
           ", below the least eigenvalue asked for (", floor,
           "); no scaling of the other entries mends that");
  if (smallest_eigenvalue(symmetric) >= floor) return symmetric;
  // t A + (1 - t) diag(A) - floor I is affine in t and positive semidefinite at 0, so bisection finds the
  // last such t.
  const RowMajor diagonal = RowMajor(full.diagonal().asDiagonal());
  double good = 0, bad = 1;
  for (int step = 0; step < 40; ++step) {
    const double t = (good + bad) / 2;
    RowMajor trial = t * full + (1 - t) * diagonal;
    trial.diagonal().array() -= floor;
    (Eigen::LLT<RowMajor>(trial).info() == Eigen::Success ? good : bad) = t;
  }
  Dense out(symmetric.rows, symmetric.cols);
  map(out) = good * full + (1 - good) * diagonal;
  return out;
}

Dense toeplitz(const Dense& m) {
  Dense out(m.rows, m.cols);
  for (size_t lag = 0; lag < m.rows; ++lag) {
    double sum = 0;
    for (size_t i = 0; i + lag < m.rows; ++i) sum += m(i, i + lag);
    for (size_t i = 0; i + lag < m.rows; ++i)
      out(i, i + lag) = out(i + lag, i) = sum / static_cast<double>(m.rows - lag);
  }
  return out;
}

ComplexDense fold_complex(const Dense& parts) {
  if (parts.rows % 2 || parts.rows != parts.cols)
    fail(ErrorCode::usage, "fold_complex takes a square matrix of even size, not ", parts.rows, " x ",
         parts.cols);
  const size_t d = parts.rows / 2;
  ComplexDense out{Dense(d, d), Dense(d, d)};
  for (size_t i = 0; i < d; ++i)
    for (size_t j = 0; j < d; ++j) {
      out.real(i, j) = parts(i, j) + parts(d + i, d + j);
      out.imaginary(i, j) = i == j ? 0 : parts(d + i, j) - parts(i, d + j);
    }
  return out;
}

Dense embed(const ComplexDense& m) {
  const size_t d = m.real.rows;
  Dense out(2 * d, 2 * d);
  for (size_t i = 0; i < d; ++i)
    for (size_t j = 0; j < d; ++j) {
      out(i, j) = out(d + i, d + j) = m.real(i, j);
      out(d + i, j) = m.imaginary(i, j);
      out(i, d + j) = -m.imaginary(i, j);
    }
  return out;
}

ComplexDense extract(const Dense& embedded) {
  const size_t d = embedded.rows / 2;
  ComplexDense out{Dense(d, d), Dense(d, d)};
  for (size_t i = 0; i < d; ++i)
    for (size_t j = 0; j < d; ++j) {
      out.real(i, j) = embedded(i, j);
      out.imaginary(i, j) = embedded(d + i, j);
    }
  return out;
}

ComplexDense toeplitz(const ComplexDense& m) {
  ComplexDense out{toeplitz(m.real), Dense(m.real.rows, m.real.cols)};
  const size_t d = m.real.rows;
  for (size_t lag = 1; lag < d; ++lag) {
    double sum = 0;
    for (size_t i = 0; i + lag < d; ++i) sum += m.imaginary(i, i + lag);
    for (size_t i = 0; i + lag < d; ++i) {
      out.imaginary(i, i + lag) = sum / static_cast<double>(d - lag);
      out.imaginary(i + lag, i) = -out.imaginary(i, i + lag);
    }
  }
  return out;
}

Dense full_precision_second_moment(const Matrix& x, unsigned) {
  constexpr size_t kRows = 1024;
  const size_t n = rows(x), d = cols(x);
  if (n == 0 || d == 0) fail(ErrorCode::input, "the data is empty");
  Dense out(d, d);
  auto total = map(out);
  std::visit(
      [&](const auto& view) {
        for (size_t first = 0; first < n; first += kRows) {
          const size_t count = std::min(kRows, n - first);
          RowMajor part(static_cast<Eigen::Index>(count), static_cast<Eigen::Index>(d));
          for (size_t i = 0; i < count; ++i)
            for (size_t j = 0; j < d; ++j)
              part(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) =
                  static_cast<double>(view(first + i, j));
          total.noalias() += part.transpose() * part;
        }
      },
      x);
  total /= static_cast<double>(n);
  return out;
}

Dense arcsine_correlation(const Matrix& x, unsigned threads) {
  const size_t n = rows(x), d = cols(x);
  if (n == 0 || d == 0) fail(ErrorCode::input, "the data is empty");
  CodeBook book;
  book.scheme = Scheme::one_bit;
  book.bits = 1;
  book.range.assign(d, 1);
  BitMatrix signs(book, {}, n, false);
  std::visit(
      [&](const auto& view) {
        for (size_t j = 0; j < d; ++j)
          for (size_t i = 0; i < n; ++i)
            if (view(i, j) >= 0) signs.plane(0, j)[i / 64] |= uint64_t{1} << (i % 64);
      },
      x);
  CovarianceCounts counts(book);
  counts.add(signs, threads);
  Dense out = counts.second_moment(book.range);
  for (double& value : out.values) value = std::sin(std::numbers::pi / 2 * value);
  return out;
}

}  // namespace trireme::stats
