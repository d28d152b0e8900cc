#include "trireme/stats/regression.h"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/stats/lasso.h"

namespace trireme::stats {
namespace {

using Eigen::Index;
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

void check_rows(size_t x, const BitMatrix& y) {
  if (y.columns() != 1) fail(ErrorCode::input, "y has ", y.columns(), " columns; regression takes one");
  if (x != y.rows()) fail(ErrorCode::input, "x has ", x, " rows, y has ", y.rows());
  if (x < 2) fail(ErrorCode::input, "regression needs at least 2 rows, not ", x);
  if (y.has_mask()) fail(ErrorCode::input, "y has missing values; remove those rows");
}

std::vector<double> decode_column(const BitMatrix& y) {
  std::vector<double> out(y.rows());
  const double centre = y.book().centre_of(0);
  for (size_t i = 0; i < y.rows(); ++i) out[i] = centre + y.value(i, 0);
  return out;
}

double rate(size_t d, size_t n) {
  return std::sqrt(std::log(std::max<double>(2, d)) / static_cast<double>(n));
}

double mean_of(const std::vector<double>& v) {
  return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
}

// Candidates from the largest down, so that each solution starts the next; results in the caller's order.
void for_decreasing(const std::vector<double>& candidates, const std::function<void(size_t)>& body) {
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return candidates[a] > candidates[b]; });
  for (size_t c : order) body(c);
}

LambdaChoice choose(const std::vector<double>& candidates, std::vector<double> criterion) {
  const auto best = std::min_element(criterion.begin(), criterion.end());
  return {candidates[static_cast<size_t>(best - criterion.begin())], std::move(criterion)};
}

void check_folds(size_t n, unsigned folds, const std::vector<double>& candidates) {
  if (folds < 2 || folds > n)
    fail(ErrorCode::usage, folds, " folds of ", n, " rows: give from 2 to as many folds as rows");
  if (candidates.empty()) fail(ErrorCode::usage, "no candidates for lambda");
}

std::vector<size_t> support_of(const std::vector<double>& coefficients) {
  std::vector<size_t> support;
  for (size_t j = 0; j < coefficients.size(); ++j)
    if (coefficients[j] != 0) support.push_back(j);
  return support;
}

// covariates: n x |S|, curvature_bias: what each row's x x^T holds too much of on the diagonal.
std::vector<double> sandwich(const RowMajor& x, const std::vector<double>& y,
                             const Eigen::VectorXd& curvature_bias, const std::vector<size_t>& support,
                             const std::vector<double>& coefficients) {
  std::vector<double> out(coefficients.size(), 0.0);
  if (support.empty()) return out;
  const auto n = static_cast<double>(y.size());
  Eigen::VectorXd theta(static_cast<Index>(support.size()));
  for (size_t k = 0; k < support.size(); ++k) theta[static_cast<Index>(k)] = coefficients[support[k]];
  RowMajor gram = x.transpose() * x / n;
  gram -= RowMajor(curvature_bias.asDiagonal());
  const Eigen::VectorXd residual =
      Eigen::Map<const Eigen::VectorXd>(y.data(), static_cast<Index>(y.size())) - x * theta;
  RowMajor scores = residual.asDiagonal() * x;
  scores.rowwise() += curvature_bias.cwiseProduct(theta).transpose();
  scores.rowwise() -= scores.colwise().mean().eval();
  const RowMajor meat = scores.transpose() * scores / n;
  const RowMajor inverse = gram.ldlt().solve(RowMajor::Identity(gram.rows(), gram.cols()));
  const RowMajor cover = inverse * meat * inverse.transpose() / n;
  for (size_t k = 0; k < support.size(); ++k)
    out[support[k]] = std::sqrt(std::max(0.0, cover(static_cast<Index>(k), static_cast<Index>(k))));
  return out;
}

}  // namespace

LassoFit lasso_full(const Matrix& x, const BitMatrix& y, double truncation, const LassoOptions& options) {
  check_rows(rows(x), y);
  if (std::isfinite(options.radius) || options.path == LassoPath::l1_ball)
    fail(ErrorCode::usage, "full-precision covariates give a convex problem: leave out radius and path");
  check_lambda(options.lambda);
  const DataGram gram(x, truncation, options.threads);
  std::vector<std::vector<double>> b;
  gram.products(decode_column(y), 1, b);
  for (size_t j = 0; j < b[0].size(); ++j)
    if (!std::isfinite(b[0][j])) fail(ErrorCode::input, "column ", j, " of x holds NaN or infinite values");
  return WorkingSetLasso(gram, b[0]).solve(options);
}

RegressionCounts::RegressionCounts(CodeBook x, CodeBook y, Pairing pairing)
    : gram_(std::move(x), pairing), y_book_(std::move(y)) {
  y_book_.validate();
  if (y_book_.columns() != 1)
    fail(ErrorCode::input, "y has ", y_book_.columns(), " columns; regression takes one");
  if (y_book_.scheme == Scheme::two_dither)
    fail(ErrorCode::usage, "y needs no second dither: take one_bit, triangular or multi_bit for it");
  cross_.assign(gram_.columns(), 0);
}

void RegressionCounts::add(const BitMatrix& x, const BitMatrix& y, unsigned threads) {
  check_rows(x.rows(), y);
  if (!(y.book() == y_book_))
    fail(ErrorCode::input, "these bits of y were taken with another range or scheme");
  if (x.has_mask()) fail(ErrorCode::input, "x has missing values; regression needs complete rows");
  if (x.place().seed == y.place().seed && x.place().stream == y.place().stream)
    fail(ErrorCode::input, "x and y were quantised with the same dithers: give y a stream of its own");
  gram_.add(x, threads);
  const bool two = x.book().scheme == Scheme::two_dither;
  const unsigned x_planes = x.book().planes(), y_planes = y_book_.planes();
  for (size_t j = 0; j < x.columns(); ++j)
    for (unsigned p = 0; p < x_planes; ++p)
      for (unsigned q = 0; q < y_planes; ++q) {
        const auto differ =
            static_cast<int64_t>(kernels().xor_count(x.plane(p, j), y.plane(q, 0), x.words()));
        const unsigned shift = (two ? 0 : x_planes - 1 - p) + (y_planes - 1 - q);
        cross_[j] += (static_cast<int64_t>(x.rows()) - 2 * differ) << shift;
      }
}

void RegressionCounts::merge(const RegressionCounts& other) {
  if (!(y_book_ == other.y_book_))
    fail(ErrorCode::input, "these bits of y were taken with another range or scheme");
  gram_.merge(other.gram_);
  std::transform(cross_.begin(), cross_.end(), other.cross_.begin(), cross_.begin(), std::plus<>());
}

RegressionCounts RegressionCounts::without(const RegressionCounts& whole, const RegressionCounts& part) {
  RegressionCounts rest = whole;
  rest.gram_ = CovarianceCounts::without(whole.gram_, part.gram_);
  std::transform(rest.cross_.begin(), rest.cross_.end(), part.cross_.begin(), rest.cross_.begin(),
                 std::minus<>());
  return rest;
}

std::vector<double> RegressionCounts::cross() const {
  if (rows() == 0) fail(ErrorCode::input, "no rows were counted");
  std::vector<double> out(cross_.size());
  const double share = gram_.book().scheme == Scheme::two_dither ? 0.5 : 1;
  for (size_t j = 0; j < out.size(); ++j)
    out[j] = share * gram_.book().step_of(j) / 2 * y_book_.step_of(0) / 2 * static_cast<double>(cross_[j]) /
             static_cast<double>(rows());
  return out;
}

RegressionCounts RegressionCounts::from_state(CovarianceCounts gram, CodeBook y, std::vector<int64_t> cross) {
  RegressionCounts out(gram.book(), std::move(y), gram.pairing());
  if (cross.size() != gram.columns())
    fail(ErrorCode::input, cross.size(), " cross sums do not fit ", gram.columns(), " columns");
  out.gram_ = std::move(gram);
  out.cross_ = std::move(cross);
  return out;
}

LambdaChoice choose_lambda_full(const Matrix& x, const BitMatrix& y, double truncation,
                                const std::vector<double>& candidates, unsigned folds,
                                const LassoOptions& options) {
  check_rows(rows(x), y);
  const size_t n = rows(x), d = cols(x);
  check_folds(n, folds, candidates);
  const std::vector<double> values = decode_column(y);
  std::vector<double> criterion(candidates.size(), 0.0);
  for (unsigned f = 0; f < folds; ++f) {
    const size_t first = n * f / folds, end = n * (f + 1) / folds;
    const DataGram gram(x, truncation, options.threads, first, end);
    std::vector<std::vector<double>> b;
    gram.products(values, 1, b);
    WorkingSetLasso solver(gram, b[0]);
    for_decreasing(candidates, [&](size_t c) {
      LassoOptions trial = options;
      trial.lambda = candidates[c] * y.book().range[0] * rate(d, gram.used_rows());
      const LassoFit fit = solver.solve(trial);
      const std::vector<size_t> support = support_of(fit.coefficients);
      double loss = 0;
      for (size_t i = first; i < end; ++i) {
        double predicted = 0;
        for (size_t j : support)
          predicted +=
              fit.coefficients[j] *
              std::visit([&](const auto& v) { return std::clamp<double>(v(i, j), -truncation, truncation); },
                         x);
        loss += predicted * predicted / 2 - values[i] * predicted;
      }
      criterion[c] += loss / static_cast<double>(n);
    });
  }
  return choose(candidates, std::move(criterion));
}

LambdaChoice choose_lambda_quantised(const BitMatrix& x, const BitMatrix& y, Pairing pairing,
                                     const std::vector<double>& candidates, unsigned folds,
                                     const LassoOptions& options) {
  check_rows(x.rows(), y);
  check_folds(x.rows(), folds, candidates);
  RegressionCounts whole(x.book(), y.book(), pairing);
  std::vector<RegressionCounts> parts;
  for (unsigned f = 0; f < folds; ++f) {
    const size_t first = x.rows() * f / folds, end = x.rows() * (f + 1) / folds;
    parts.emplace_back(x.book(), y.book(), pairing);
    parts.back().add(x.slice(first, end - first), y.slice(first, end - first), options.threads);
    whole.merge(parts.back());
  }
  const double scale = mean_of(x.book().range) * y.book().range[0];
  std::vector<double> criterion(candidates.size(), 0.0);
  for (const RegressionCounts& held_out : parts) {
    const RegressionCounts training = RegressionCounts::without(whole, held_out);
    const Dense gram = training.gram(), test_gram = held_out.gram();
    const std::vector<double> b = training.cross(), test_b = held_out.cross();
    for (size_t c = 0; c < candidates.size(); ++c) {
      LassoOptions trial = options;
      trial.lambda = candidates[c] * scale * rate(x.columns(), training.rows());
      const LassoFit fit = lasso_gram(gram, b, trial);
      for (size_t i : support_of(fit.coefficients)) {
        double half = 0;
        for (size_t j : support_of(fit.coefficients)) half += test_gram(i, j) * fit.coefficients[j] / 2;
        criterion[c] += fit.coefficients[i] * (half - test_b[i]) / folds;
      }
    }
  }
  return choose(candidates, std::move(criterion));
}

std::vector<double> lasso_errors_full(const Matrix& x, const BitMatrix& y, double truncation,
                                      const std::vector<double>& coefficients) {
  check_rows(rows(x), y);
  const std::vector<size_t> support = support_of(coefficients);
  RowMajor part(static_cast<Index>(rows(x)), static_cast<Index>(support.size()));
  std::visit(
      [&](const auto& view) {
        for (size_t i = 0; i < view.rows; ++i)
          for (size_t k = 0; k < support.size(); ++k)
            part(static_cast<Index>(i), static_cast<Index>(k)) =
                std::clamp<double>(view(i, support[k]), -truncation, truncation);
      },
      x);
  return sandwich(part, decode_column(y), Eigen::VectorXd::Zero(static_cast<Index>(support.size())), support,
                  coefficients);
}

std::vector<double> lasso_errors_quantised(const BitMatrix& x, const BitMatrix& y,
                                           const std::vector<double>& coefficients) {
  check_rows(x.rows(), y);
  if (x.book().scheme != Scheme::triangular && x.book().scheme != Scheme::two_dither)
    fail(ErrorCode::usage, "standard errors need the triangular or two_dither scheme for x");
  const std::vector<size_t> support = support_of(coefficients);
  const bool two = x.book().scheme == Scheme::two_dither;
  RowMajor part(static_cast<Index>(x.rows()), static_cast<Index>(support.size()));
  Eigen::VectorXd bias(static_cast<Index>(support.size()));
  for (size_t k = 0; k < support.size(); ++k) {
    double square = 0, product = 0;
    for (size_t i = 0; i < x.rows(); ++i) {
      const double a = x.value(i, support[k], 0), b = two ? x.value(i, support[k], 1) : a;
      part(static_cast<Index>(i), static_cast<Index>(k)) = (a + b) / 2;
      square += (a + b) * (a + b) / 4;
      product += a * b;
    }
    const double step = x.book().step_of(support[k]);
    bias[static_cast<Index>(k)] = two ? (square - product) / static_cast<double>(x.rows()) : step * step / 4;
  }
  return sandwich(part, decode_column(y), bias, support, coefficients);
}

}  // namespace trireme::stats
