#include "trireme/stats/completion.h"

#include <unistd.h>

#include <Eigen/Core>
#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/stats/parallel.h"

namespace trireme::stats {
namespace {

using Eigen::Index;
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Columns = Eigen::MatrixXd;

constexpr Index kStrip = 64;  // rows of a thread's item

Columns times(const RowMajor& a, const Columns& v, unsigned threads) {
  Columns out(a.rows(), v.cols());
  parallel_for(static_cast<size_t>((a.rows() + kStrip - 1) / kStrip), threads, [&](size_t item) {
    const Index first = static_cast<Index>(item) * kStrip, count = std::min(kStrip, a.rows() - first);
    out.middleRows(first, count).noalias() = a.middleRows(first, count) * v;
  });
  return out;
}

Columns transposed_times(const RowMajor& a, const Columns& u, unsigned threads) {
  constexpr Index kWide = 256;
  Columns out(a.cols(), u.cols());
  parallel_for(static_cast<size_t>((a.cols() + kWide - 1) / kWide), threads, [&](size_t item) {
    const Index first = static_cast<Index>(item) * kWide, count = std::min(kWide, a.cols() - first);
    out.middleRows(first, count).noalias() = a.middleCols(first, count).transpose() * u;
  });
  return out;
}

Columns orthonormal(const Columns& m) {
  const Eigen::HouseholderQR<Columns> qr(m);
  return qr.householderQ() * Columns::Identity(m.rows(), m.cols());
}

// Singular-value soft threshold, keeping the right singular vectors from call to call.
class SingularThreshold {
 public:
  SingularThreshold(Index rows, Index cols, unsigned threads) : rows_(rows), cols_(cols), threads_(threads) {}

  // z becomes the threshold of a at `cut`; returns the rank of z.
  Index apply(const RowMajor& a, double cut, RowMajor& z) {
    const Index most = std::min(rows_, cols_);
    if (most <= kSmall)
      return assemble(Eigen::BDCSVD<Columns>(a, Eigen::ComputeThinU | Eigen::ComputeThinV), cut, z);
    if (right_.cols() == 0) right_ = random_start(std::min(most, Index{10}));
    while (true) {
      if (right_.cols() * 3 > most)
        return assemble(Eigen::BDCSVD<Columns>(a, Eigen::ComputeThinU | Eigen::ComputeThinV), cut, z);
      const Eigen::JacobiSVD<Columns> small = iterate(a, cut);
      if (small.singularValues().minCoeff() <= cut) return assemble_low_rank(small, cut, z);
      Columns wider(cols_, right_.cols() * 2);  // all are above the cut: there may be more
      wider << right_, random_start(right_.cols());
      right_ = wider;
    }
  }

 private:
  static constexpr Index kSmall = 150;

  Columns random_start(Index k) {
    Columns out(cols_, k);
    for (Index j = 0; j < k; ++j)
      for (Index i = 0; i < cols_; ++i) out(i, j) = random_.next_double() - 0.5;
    return out;
  }

  // Block power iteration until the values above the cut stand still; left_ and right_ are then the bases.
  Eigen::JacobiSVD<Columns> iterate(const RowMajor& a, double cut) {
    Eigen::VectorXd before;
    for (int turn = 0;; ++turn) {
      left_ = orthonormal(times(a, orthonormal(right_), threads_));
      right_ = transposed_times(a, left_, threads_);  // a^T left
      const Eigen::HouseholderQR<Columns> qr(right_);
      const Columns triangle = qr.matrixQR().topRows(right_.cols()).triangularView<Eigen::Upper>();
      Eigen::JacobiSVD<Columns> small(triangle, Eigen::ComputeFullU | Eigen::ComputeFullV);
      right_ = qr.householderQ() * Columns::Identity(right_.rows(), right_.cols());
      const Eigen::VectorXd kept = (small.singularValues().array() - cut).cwiseMax(0.0);
      const bool still =
          before.size() == kept.size() && (kept - before).norm() <= 1e-7 * std::max(kept.norm(), cut);
      if (still || turn == 40) return small;
      before = kept;
    }
  }

  // a ~ left (right triangle)^T = left V S U^T right^T for triangle = U S V^T.
  Index assemble_low_rank(const Eigen::JacobiSVD<Columns>& small, double cut, RowMajor& z) {
    const Index rank = (small.singularValues().array() > cut).count();
    const Columns u = left_ * small.matrixV().leftCols(rank);
    const Columns v = right_ * small.matrixU().leftCols(rank);
    right_ = right_ * small.matrixU();  // leading directions first, for the next call
    fill(u, small.singularValues().head(rank).array() - cut, v, z);
    return rank;
  }
  Index assemble(const Eigen::BDCSVD<Columns>& svd, double cut, RowMajor& z) {
    const Index rank = (svd.singularValues().array() > cut).count();
    fill(svd.matrixU().leftCols(rank), svd.singularValues().head(rank).array() - cut,
         svd.matrixV().leftCols(rank), z);
    return rank;
  }
  void fill(const Columns& u, const Eigen::ArrayXd& values, const Columns& v, RowMajor& z) {
    const Columns scaled = u * values.matrix().asDiagonal();
    parallel_for(static_cast<size_t>((rows_ + kStrip - 1) / kStrip), threads_, [&](size_t item) {
      const Index first = static_cast<Index>(item) * kStrip, count = std::min(kStrip, rows_ - first);
      z.middleRows(first, count).noalias() = scaled.middleRows(first, count) * v.transpose();
    });
  }

  Index rows_, cols_;
  unsigned threads_;
  PhiloxStream random_{23, 0};
  Columns left_, right_;
};

void check_entries(const Entries& entries, size_t values, size_t rows, size_t cols) {
  if (entries.rows.size() != entries.cols.size() || entries.rows.size() != values)
    fail(ErrorCode::input, entries.rows.size(), " row indices, ", entries.cols.size(), " column indices and ",
         values, " values: give as many of each");
  for (size_t k = 0; k < values; ++k)
    if (entries.rows[k] < 0 || static_cast<size_t>(entries.rows[k]) >= rows || entries.cols[k] < 0 ||
        static_cast<size_t>(entries.cols[k]) >= cols)
      fail(ErrorCode::input, "observation ", k, " is at (", entries.rows[k], ", ", entries.cols[k],
           "), outside the ", rows, " x ", cols, " matrix");
}

}  // namespace

CompletionCounts::CompletionCounts(size_t rows, size_t cols, CodeBook book)
    : rows_(rows), cols_(cols), book_(std::move(book)) {
  book_.validate();
  if (rows == 0 || cols == 0) fail(ErrorCode::usage, "a ", rows, " x ", cols, " matrix has no entries");
  if (book_.columns() != 1 || book_.scheme == Scheme::two_dither || book_.centre_of(0) != 0)
    fail(ErrorCode::usage, "completion takes one column of codes around 0, from one dither");
  constexpr double kBytesOfEntry = 60;  // counts, sums and complete()'s matrices
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (static_cast<double>(rows) * static_cast<double>(cols) * kBytesOfEntry > memory)
    fail(ErrorCode::input, "a ", rows, " x ", cols,
         " matrix does not fit this machine's memory; number its rows and columns", " from 0 without gaps");
  seen_.assign(rows * cols, 0);
  sums_.assign(rows * cols, 0);
}

void CompletionCounts::add(const Entries& entries, const BitMatrix& bits) {
  check_entries(entries, bits.rows(), rows_, cols_);
  check_poolable(book_, places_, place_rows_, bits.book(), bits.place(), bits.rows());
  if (bits.has_mask()) fail(ErrorCode::input, "missing values: leave those observations out");
  const double half_step = book_.step_of(0) / 2;
  for (size_t k = 0; k < bits.rows(); ++k) {
    const size_t at = static_cast<size_t>(entries.rows[k]) * cols_ + static_cast<size_t>(entries.cols[k]);
    ++seen_[at];
    if (half_step > 0) sums_[at] += std::lround(bits.value(k, 0) / half_step);
  }
  observations_ += bits.rows();
  places_.push_back(bits.place());
  place_rows_.push_back(bits.rows());
}

void CompletionCounts::merge(const CompletionCounts& other) {
  if (rows_ != other.rows_ || cols_ != other.cols_)
    fail(ErrorCode::input, "a ", rows_, " x ", cols_, " and a ", other.rows_, " x ", other.cols_,
         " matrix cannot be merged");
  for (size_t p = 0; p < other.places_.size(); ++p)
    check_poolable(book_, places_, place_rows_, other.book_, other.places_[p], other.place_rows_[p]);
  for (size_t k = 0; k < seen_.size(); ++k) {
    seen_[k] += other.seen_[k];
    sums_[k] += other.sums_[k];
  }
  observations_ += other.observations_;
  places_.insert(places_.end(), other.places_.begin(), other.places_.end());
  place_rows_.insert(place_rows_.end(), other.place_rows_.begin(), other.place_rows_.end());
}

double CompletionCounts::sum(size_t i, size_t j) const {
  return book_.step_of(0) / 2 * static_cast<double>(sums_[i * cols_ + j]);
}

CompletionCounts CompletionCounts::from_state(State s) {
  CompletionCounts out(s.rows, s.cols, std::move(s.book));
  if (s.seen.size() != out.seen_.size() || s.sums.size() != out.sums_.size() ||
      s.places.size() != s.place_rows.size())
    fail(ErrorCode::input, "these counts do not fit a ", s.rows, " x ", s.cols, " matrix");
  out.observations_ = s.observations;
  out.seen_ = std::move(s.seen);
  out.sums_ = std::move(s.sums);
  out.places_ = std::move(s.places);
  out.place_rows_ = std::move(s.place_rows);
  return out;
}

double completion_lambda(double range, size_t rows, size_t cols, uint64_t observations) {
  return range * std::sqrt(std::log(static_cast<double>(rows + cols)) /
                           (static_cast<double>(observations) * static_cast<double>(std::min(rows, cols))));
}

CompletionFit complete(const CompletionCounts& counts, const CompletionOptions& options) {
  if (counts.observations() == 0) fail(ErrorCode::input, "no observations");
  if (!(options.bound > 0) || !std::isfinite(options.bound))
    fail(ErrorCode::usage, "bound ", options.bound, ": give a positive number that no entry exceeds");
  if (!(options.lambda >= 0) || !std::isfinite(options.lambda))
    fail(ErrorCode::usage, "lambda ", options.lambda, ": give a finite number that is not negative");
  const Index d1 = static_cast<Index>(counts.rows()), d2 = static_cast<Index>(counts.cols());
  const double n = static_cast<double>(counts.observations()),
               cells = static_cast<double>(d1) * static_cast<double>(d2);
  double rho = 1 / cells;
  RowMajor seen(d1, d2), sums(d1, d2);
  for (Index i = 0; i < d1; ++i)
    for (Index j = 0; j < d2; ++j) {
      seen(i, j) = counts.count(static_cast<size_t>(i), static_cast<size_t>(j)) / n;
      sums(i, j) = counts.sum(static_cast<size_t>(i), static_cast<size_t>(j)) / n;
    }
  RowMajor theta(d1, d2), z = RowMajor::Zero(d1, d2), w = RowMajor::Zero(d1, d2);
  SingularThreshold low_rank(d1, d2, options.threads);
  CompletionFit fit;
  while (fit.iterations < options.max_iterations && !fit.converged) {
    ++fit.iterations;
    theta = ((sums + rho * (z - w)).array() / (seen.array() + rho))
                .cwiseMax(-options.bound)
                .cwiseMin(options.bound);
    w += theta;  // Theta + W, of which Z is the threshold
    const RowMajor last = z;
    fit.rank = static_cast<size_t>(low_rank.apply(w, options.lambda / rho, z));
    w -= z;
    fit.residual = (theta - z).norm() / std::sqrt(cells);
    const double moved = (z - last).norm() / std::sqrt(cells);
    fit.converged = std::max(fit.residual, moved) <= options.tolerance * options.bound;
    // Residual balancing (Boyd et al. 2011, 3.4.1), now and then and not for ever, so that convergence is
    // kept: with few observations the first penalty is far from the best.
    if (fit.iterations % 10 == 0 && fit.iterations <= 200) {
      const double factor = fit.residual > 3 * moved ? 2 : moved > 3 * fit.residual ? 0.5 : 1;
      rho *= factor;
      w /= factor;
    }
  }
  fit.matrix = Dense(counts.rows(), counts.cols());
  Eigen::Map<RowMajor>(fit.matrix.values.data(), d1, d2) = z.cwiseMax(-options.bound).cwiseMin(options.bound);
  if (!fit.converged)
    fit.warning = cat("not converged after ", fit.iterations, " iterations: residual ", fit.residual,
                      "; raise max_iterations or the tolerance");
  return fit;
}

CompletionChoice choose_completion_lambda(const Entries& entries, const BitMatrix& bits, size_t rows,
                                          size_t cols, const std::vector<double>& candidates, unsigned folds,
                                          const CompletionOptions& options) {
  const size_t n = bits.rows();
  check_entries(entries, n, rows, cols);
  if (folds < 2 || folds > n) fail(ErrorCode::usage, folds, " folds of ", n, " observations");
  if (candidates.empty()) fail(ErrorCode::usage, "no candidates for lambda");
  const auto part = [&](size_t first, size_t end) {
    const auto cut = [&](const std::vector<int64_t>& v) {
      return std::vector<int64_t>(v.begin() + static_cast<std::ptrdiff_t>(first),
                                  v.begin() + static_cast<std::ptrdiff_t>(end));
    };
    CompletionCounts counts(rows, cols, bits.book());
    counts.add({cut(entries.rows), cut(entries.cols)}, bits.slice(first, end - first));
    return counts;
  };
  CompletionChoice choice;
  choice.criterion.assign(candidates.size(), 0);
  for (unsigned f = 0; f < folds; ++f) {
    const size_t first = n * f / folds, end = n * (f + 1) / folds;
    CompletionCounts training = part(0, first > 0 ? first : end);
    if (first == 0)
      training = part(end, n);
    else if (end < n)
      training.merge(part(end, n));
    for (size_t c = 0; c < candidates.size(); ++c) {
      CompletionOptions trial = options;
      trial.lambda =
          candidates[c] * completion_lambda(bits.book().range[0], rows, cols, training.observations());
      const CompletionFit fit = complete(training, trial);
      for (size_t k = first; k < end; ++k) {
        const double miss =
            fit.matrix(static_cast<size_t>(entries.rows[k]), static_cast<size_t>(entries.cols[k])) -
            bits.value(k, 0);
        choice.criterion[c] += miss * miss / static_cast<double>(n);
      }
    }
  }
  const auto best = std::min_element(choice.criterion.begin(), choice.criterion.end());
  choice.multiple = candidates[static_cast<size_t>(best - choice.criterion.begin())];
  return choice;
}

}  // namespace trireme::stats
