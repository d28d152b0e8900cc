#pragma once
// A matrix that someone else owns, in any memory order: NumPy arrays and Eigen maps enter without a copy.
#include <cstddef>
#include <variant>

namespace trireme::stats {

// Element (i, j) is data[i * row_stride + j * column_stride]; strides count elements, not bytes.
template <typename T>
struct MatrixView {
  const T* data = nullptr;
  size_t rows = 0, cols = 0;
  std::ptrdiff_t row_stride = 0, column_stride = 0;

  T operator()(size_t i, size_t j) const {
    return data[static_cast<std::ptrdiff_t>(i) * row_stride + static_cast<std::ptrdiff_t>(j) * column_stride];
  }
  MatrixView row_range(size_t first, size_t count) const {
    return {data + static_cast<std::ptrdiff_t>(first) * row_stride, count, cols, row_stride, column_stride};
  }
};

template <typename T>
MatrixView<T> row_major(const T* data, size_t rows, size_t cols) {
  return {data, rows, cols, static_cast<std::ptrdiff_t>(cols), 1};
}

// What the estimators take: a float value and the same value as double give the same bits.
using Matrix = std::variant<MatrixView<float>, MatrixView<double>>;

inline size_t rows(const Matrix& m) {
  return std::visit([](const auto& v) { return v.rows; }, m);
}
inline size_t cols(const Matrix& m) {
  return std::visit([](const auto& v) { return v.cols; }, m);
}

}  // namespace trireme::stats
