#pragma once
// A dense matrix of results: plain memory that crosses to NumPy by a move, with the algebra kept to the .cc
// files.
#include <cstddef>
#include <vector>

namespace trireme::stats {

// Row-major.
struct Dense {
  size_t rows = 0, cols = 0;
  std::vector<double> values;

  Dense() = default;
  Dense(size_t r, size_t c, double fill = 0) : rows(r), cols(c), values(r * c, fill) {}
  double& operator()(size_t i, size_t j) { return values[i * cols + j]; }
  double operator()(size_t i, size_t j) const { return values[i * cols + j]; }
  bool operator==(const Dense&) const = default;
};

struct ComplexDense {
  Dense real, imaginary;
};

}  // namespace trireme::stats
