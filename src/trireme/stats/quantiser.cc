#include "trireme/stats/quantiser.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/stats/parallel.h"

namespace trireme::stats {
namespace {

constexpr size_t kStripRows = 64 * kWordAlign;  // whole cache lines of bits, so threads never share one
constexpr size_t kStripColumns = 16;            // the floats of one cache line of a row-major matrix

double unit(uint32_t word) {
  return static_cast<double>(word) * 0x1.0p-32;
}

// The rule of one column, with everything that does not depend on the row.
struct ColumnRule {
  bool constant, triangular;
  double centre, limit, step, half_levels;
  int top;  // highest code

  ColumnRule(const CodeBook& book, size_t j)
      : constant(book.range[j] == 0),
        triangular(book.scheme == Scheme::triangular),
        centre(book.centre_of(j)),
        limit(book.truncation_of(j)),
        step(book.step_of(j)),
        half_levels(std::ldexp(1.0, static_cast<int>(book.bits) - 1)),
        top((1 << book.bits) - 1) {}

  // Half-open dithers: x = range always gives the top code of one bit, x = -range the bottom one.
  unsigned code(double x, uint32_t word0, uint32_t word1) const {
    if (constant) return 0;
    const double clipped = std::clamp(x - centre, -limit, limit);
    const double dither = triangular ? unit(word0) + unit(word1) - 1.0 : unit(word0) - 0.5;
    const int cell = static_cast<int>(std::floor(clipped / step + dither + half_levels));
    return static_cast<unsigned>(std::clamp(cell, 0, top));
  }
};

// One column of one strip: count <= kStripRows values.
void pack_column(const double* x, size_t count, size_t first_row, size_t column, Missing missing,
                 BitMatrix& out) {
  const CodeBook& book = out.book();
  const DitherPlace& place = out.place();
  const ColumnRule rule(book, column);
  std::array<uint32_t, kStripRows> word0, word1;
  kernels().dither_words(place.seed, place.stream, static_cast<uint32_t>(column), place.first_row + first_row,
                         (count + 7) / 8 * 8, word0.data(), word1.data());
  const bool two = book.scheme == Scheme::two_dither;
  const unsigned planes = book.planes();
  for (size_t base = 0; base < count; base += 64) {
    std::array<uint64_t, 16> words{};
    uint64_t seen = 0;
    for (size_t i = base; i < std::min(count, base + 64); ++i) {
      if (!std::isfinite(x[i])) {
        if (std::isnan(x[i]) && missing == Missing::mask) continue;
        fail(ErrorCode::input, "row ", place.first_row + first_row + i, ", column ", column, " is ",
             std::isnan(x[i]) ? "NaN; treat it as missing (missing = mask) or remove it"
                              : "infinite; remove the row");
      }
      const size_t at = i - base;
      seen |= uint64_t{1} << at;
      const unsigned code = two ? rule.code(x[i], word0[i], 0) << 1 | rule.code(x[i], word1[i], 0)
                                : rule.code(x[i], word0[i], word1[i]);
      for (unsigned p = 0; p < planes; ++p) words[p] |= uint64_t{code >> (planes - 1 - p) & 1} << at;
    }
    const size_t word = (first_row + base) / 64;
    for (unsigned p = 0; p < planes; ++p) out.plane(p, column)[word] = words[p];
    if (out.has_mask()) out.mask(column)[word] = seen;
  }
}

template <typename T>
bool any_nan(const MatrixView<T>& x) {
  for (size_t i = 0; i < x.rows; ++i)
    for (size_t j = 0; j < x.cols; ++j)
      if (std::isnan(x(i, j))) return true;
  return false;
}

template <typename T>
BitMatrix quantise_view(const MatrixView<T>& x, const CodeBook& book, const DitherPlace& place,
                        Missing missing, unsigned threads) {
  BitMatrix out(book, place, x.rows, missing == Missing::mask && any_nan(x));
  const size_t strips = (x.rows + kStripRows - 1) / kStripRows;
  const size_t groups = (x.cols + kStripColumns - 1) / kStripColumns;
  parallel_for(strips * groups, threads, [&](size_t item) {
    const size_t row = item / groups * kStripRows, column = item % groups * kStripColumns;
    const size_t count = std::min(kStripRows, x.rows - row), width = std::min(kStripColumns, x.cols - column);
    // Column by column in our order, row by row in the matrix's: each cache line of x is read once.
    const auto values = std::make_unique_for_overwrite<double[]>(kStripRows * kStripColumns);
    for (size_t i = 0; i < count; ++i)
      for (size_t j = 0; j < width; ++j)
        values[j * kStripRows + i] = static_cast<double>(x(row + i, column + j));
    for (size_t j = 0; j < width; ++j)
      pack_column(&values[j * kStripRows], count, row, column + j, missing, out);
  });
  return out;
}

}  // namespace

BitMatrix quantise(const Matrix& x, const CodeBook& book, const DitherPlace& place, Missing missing,
                   unsigned threads) {
  book.validate();
  if (rows(x) == 0) fail(ErrorCode::input, "no rows: the data is empty");
  if (cols(x) != book.columns())
    fail(ErrorCode::input, "the data has ", cols(x), " columns, the ranges are for ", book.columns());
  return std::visit([&](const auto& view) { return quantise_view(view, book, place, missing, threads); }, x);
}

unsigned quantise_one(double x, const CodeBook& book, const DitherPlace& place, uint64_t row, size_t column,
                      unsigned dither) {
  const uint64_t at = place.first_row + row;
  const PhiloxCounter words =
      philox4x32_10({static_cast<uint32_t>(column), static_cast<uint32_t>(at),
                     static_cast<uint32_t>(at >> 32), place.stream},
                    {static_cast<uint32_t>(place.seed), static_cast<uint32_t>(place.seed >> 32)});
  return ColumnRule(book, column).code(x, words[dither], words[1]);
}

double privacy_epsilon(const CodeBook& book, size_t column) {
  const double rho = book.range[column] > 0 ? book.truncation_of(column) / book.range[column] : 0;
  if (book.planes() > 1 && book.scheme != Scheme::two_dither) return std::numeric_limits<double>::infinity();
  return book.planes() * std::log((1 + rho) / (1 - rho));
}

double light_tail_range(double scale, size_t n) {
  return scale * std::sqrt(std::log(std::max<double>(2, n)));
}

double moment_range(Problem problem, double moment, double order, size_t n, size_t d) {
  if (!(order > 1) || !std::isfinite(order))
    fail(ErrorCode::usage, "moment order ", order, "; give a number above 1");
  if (!(moment >= 0)) fail(ErrorCode::usage, "moment ", moment, " must not be negative");
  const double log_d = std::log(std::max<double>(2, d));
  const double ratio = std::max(1.0, static_cast<double>(n) / log_d);
  switch (problem) {
    case Problem::regression:
      return std::pow(moment, 1 / order) * std::pow(ratio, 1 / (2 * (order - 1)));
    case Problem::completion:
      return std::pow(moment, 1 / order) *
             std::pow(std::max(1.0, static_cast<double>(n) / (d * std::log(2.0 * d))), 1 / (2 * order));
    case Problem::mean:
    case Problem::covariance:
    case Problem::regression_quantised:
      break;
  }
  return std::pow(moment * std::sqrt(ratio), 1 / order);
}

double truncation_level(double moment, size_t n, size_t d) {
  return std::pow(static_cast<double>(n) * moment / std::log(std::max<double>(2, d)), 0.25);
}

PilotRange pilot_range(std::vector<double> pilot, double e) {
  if (pilot.empty()) fail(ErrorCode::input, "the pilot has no values");
  std::sort(pilot.begin(), pilot.end());
  const auto quantile = [&](double q) {
    const double at = q * static_cast<double>(pilot.size() - 1);
    const size_t low = std::min(static_cast<size_t>(at), pilot.size() - 1),
                 high = std::min(low + 1, pilot.size() - 1);
    return pilot[low] + (at - static_cast<double>(low)) * (pilot[high] - pilot[low]);
  };
  e = std::clamp(e, 0.0, 0.5);
  const double low = quantile(e), high = quantile(1 - e);
  return {(low + high) / 2, (high - low) / 2};
}

PilotRule pilot_rule(size_t n, size_t d, double corrupted) {
  const double size = static_cast<double>(n);
  PilotRule rule{static_cast<size_t>(std::ceil((d > 1 ? 2 : 1) * std::sqrt(size))),
                 std::sqrt((d > 1 ? 9 : 2) / size)};
  if (corrupted > 0) rule.e = corrupted + 1 / std::sqrt(size);
  rule.count = std::min(rule.count, n);
  return rule;
}

}  // namespace trireme::stats
