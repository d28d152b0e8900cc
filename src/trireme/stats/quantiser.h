#pragma once
// Truncate, dither, quantise (arXiv 2202.13157, section II; triangular and multi-bit: arXiv 2308.16059).
//
//   E[value | x] = clip(x, range);  one bit: Var = range^2 - clip(x)^2;  triangular: E[(value - x)^2 | x] =
//   step^2 / 4.
//
// The dither of (row, column) is a function of (seed, stream, row, column, dither index) alone
// (Philox4x32-10), so any chunking and any number of threads give the same bits.
#include <cstdint>
#include <limits>

#include "trireme/stats/bits.h"
#include "trireme/stats/matrix_view.h"

namespace trireme::stats {

enum class Missing {
  error,  // NaN is refused
  mask,   // NaN means "not seen"
};

// x: n x book.columns(). Throws Error(input) that names row and column at the first NaN (unless masked) or
// infinity, and Error(usage) for a wrong code book. threads = 0: one per processor.
BitMatrix quantise(const Matrix& x, const CodeBook& book, const DitherPlace& place,
                   Missing missing = Missing::error, unsigned threads = 0);

// The slow reference: one code, from the definition.
unsigned quantise_one(double x, const CodeBook& book, const DitherPlace& place, uint64_t row, size_t column,
                      unsigned dither = 0);

// Local differential privacy of one row's codes of one column, by the ratio of the likelihoods:
// rho = eta / gamma, one bit log((1 + rho) / (1 - rho)), two dithers twice that; infinite when eta = gamma,
// and for schemes of several bits, whose outer codes tell the sign of x.
double privacy_epsilon(const CodeBook& book, size_t column);

// --- Choosing the range
// ---------------------------------------------------------------------------------------------

enum class Problem { mean, covariance, regression, regression_quantised, completion };

// Range for light tails: scale * sqrt(log n); scale stands for the psi_2 norm, the standard deviation serves.
double light_tail_range(double scale, size_t n);

// Range that balances clipping bias and dither noise when E|x|^p <= moment: with L = n / log d
//   mean, covariance, regression_quantised   (moment sqrt(L))^(1/p)
//   regression                               moment^(1/p) L^(1/(2(p-1)))
//   completion (d x d matrix)                moment^(1/p) (n / (d log 2d))^(1/(2p))
double moment_range(Problem problem, double moment, double order, size_t n, size_t d);

// Level at which full-precision or multi-bit covariates are truncated: (n moment / log d)^(1/4), moment of
// order 4.
double truncation_level(double moment, size_t n, size_t d);

struct PilotRange {
  double centre = 0, range = 0;
};
// From a pilot of unquantised values, of which this sorts a copy: centre and half distance of the quantiles
// at e and 1 - e.
PilotRange pilot_range(std::vector<double> pilot, double e);
// How many values the pilot keeps, and its e, for n samples: ceil(sqrt n), sqrt(2 / n) in one dimension;
// ceil(2 sqrt n), sqrt(9 / n) in several; e = corrupted + 1 / sqrt n when a share `corrupted` of the data may
// be anything (Error(usage) unless it is in [0, 0.5)).
struct PilotRule {
  size_t count = 0;
  double e = 0;
};
PilotRule pilot_rule(size_t n, size_t d, double corrupted = 0);

}  // namespace trireme::stats
