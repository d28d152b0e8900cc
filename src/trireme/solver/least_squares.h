#pragma once
// Least squares with coefficients that cannot be negative. Source: Lawson and Hanson, Solving Least Squares
// Problems, chapter 23.
#include <span>
#include <vector>

namespace trireme::solver {

// The x >= 0 that minimises |A x - b|. A is row-major, rows = b.size(), all rows of `columns` numbers.
// Deterministic; columns without use stay 0.
std::vector<double> nonnegative_least_squares(std::span<const double> a, size_t columns,
                                              std::span<const double> b);

}  // namespace trireme::solver
