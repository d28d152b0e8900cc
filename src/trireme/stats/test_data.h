#pragma once
// Random data and small verbs for this folder's tests.
#include <cmath>
#include <numbers>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/stats/bits.h"
#include "trireme/stats/dense.h"
#include "trireme/stats/matrix_view.h"

namespace trireme::stats::testing {

inline double normal(PhiloxStream& s) {
  return std::sqrt(-2 * std::log(1 - s.next_double())) * std::cos(2 * std::numbers::pi * s.next_double());
}

inline Dense normal_matrix(size_t n, size_t d, uint64_t seed) {
  PhiloxStream source(seed, 0);
  Dense x(n, d);
  for (double& v : x.values) v = normal(source);
  return x;
}

// Blocks of 4 columns with covariance 0.6^|i-j| inside (an autoregression), independent between blocks.
inline Dense block_data(size_t n, size_t d, uint64_t seed) {
  Dense x = normal_matrix(n, d, seed);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < d; ++j)
      if (j % 4) x(i, j) = 0.6 * x(i, j - 1) + 0.8 * x(i, j);
  return x;
}

inline double block_covariance(size_t i, size_t j) {
  return i / 4 == j / 4 ? std::pow(0.6, std::abs(static_cast<double>(i) - static_cast<double>(j))) : 0.0;
}

inline Matrix view(const Dense& x) {
  return row_major(x.values.data(), x.rows, x.cols);
}

inline CodeBook book_of(Scheme scheme, size_t d, double range, unsigned bits = 0) {
  CodeBook book;
  book.scheme = scheme;
  book.bits = bits ? bits : scheme == Scheme::triangular ? 2 : 1;
  book.range.assign(d, range);
  return book;
}

}  // namespace trireme::stats::testing
