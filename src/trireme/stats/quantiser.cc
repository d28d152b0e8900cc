#include "trireme/stats/quantiser.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
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

CodeRule rule_of(const CodeBook& book, size_t j) {
  return {.centre = book.centre_of(j),
          .limit = book.truncation_of(j),
          .step = book.step_of(j),
          .half_levels = std::ldexp(1.0, static_cast<int>(book.bits) - 1),
          .top = (1u << book.bits) - 1,
          .triangular = book.scheme == Scheme::triangular};
}

// A column of range 0 is constant and has code 0.
// Half-open dithers: x = range always gives the top code of one bit, x = -range the bottom one.
unsigned code_of(const CodeRule& rule, double x, uint32_t word0, uint32_t word1) {
  if (rule.step == 0) return 0;
  const double clipped = std::clamp(x - rule.centre, -rule.limit, rule.limit);
  const double dither = rule.triangular ? unit(word0) + unit(word1) - 1.0 : unit(word0) - 0.5;
  const int cell = static_cast<int>(std::floor(clipped / rule.step + dither + rule.half_levels));
  return static_cast<unsigned>(std::clamp(cell, 0, static_cast<int>(rule.top)));
}

// One column of one strip: its values and dithers, of which count <= kStripRows are there, and where it goes.
struct ColumnStrip {
  const double* x;
  size_t count, first_row, column;
  std::array<uint32_t, kStripRows> word0, word1;
  CodeRule rule;

  ColumnStrip(const double* values, size_t rows, size_t first, size_t j, const BitMatrix& out)
      : x(values), count(rows), first_row(first), column(j), rule(rule_of(out.book(), j)) {
    const DitherPlace& place = out.place();
    kernels().dither_words(place.seed, place.stream, static_cast<uint32_t>(j), place.first_row + first,
                           (rows + 7) / 8 * 8, word0.data(), word1.data());
  }
};

// Bit `bit` of 64 codes.
uint64_t plane_word(const uint8_t* codes, unsigned bit) {
  uint64_t out = 0;
  for (size_t k = 0; k < 8; ++k) {
    uint64_t eight;
    std::memcpy(&eight, codes + 8 * k, 8);
    // The multiplication gathers the lowest bit of each byte in the highest byte.
    out |= ((eight >> bit & 0x0101010101010101) * 0x0102040810204080 >> 56) << (8 * k);
  }
  return out;
}

// All values at once. False, with nothing to be used in `out`, where one is not finite, the codes
// need more than a byte, or the column is constant.
bool pack_quickly(const ColumnStrip& strip, BitMatrix& out) {
  const CodeBook& book = out.book();
  if (book.bits > 8 || strip.rule.step == 0) return false;
  const bool two = book.scheme == Scheme::two_dither;
  alignas(64) std::array<uint8_t, kStripRows> codes{}, second{};
  const size_t count = (strip.count + 7) / 8 * 8;
  const Kernels& k = kernels();
  if (!k.codes(strip.rule, strip.x, strip.word0.data(), strip.word1.data(), count, codes.data()))
    return false;
  if (two) k.codes(strip.rule, strip.x, strip.word1.data(), strip.word0.data(), count, second.data());
  std::fill(codes.begin() + static_cast<std::ptrdiff_t>(strip.count), codes.end(), 0);
  std::fill(second.begin() + static_cast<std::ptrdiff_t>(strip.count), second.end(), 0);
  for (size_t base = 0; base < strip.count; base += 64) {
    const size_t word = (strip.first_row + base) / 64;
    const size_t left = strip.count - base;
    if (two) {
      out.plane(0, strip.column)[word] = plane_word(&codes[base], 0);
      out.plane(1, strip.column)[word] = plane_word(&second[base], 0);
    } else {
      for (unsigned p = 0; p < book.bits; ++p)
        out.plane(p, strip.column)[word] = plane_word(&codes[base], book.bits - 1 - p);
    }
    if (out.has_mask()) out.mask(strip.column)[word] = left >= 64 ? ~uint64_t{0} : (uint64_t{1} << left) - 1;
  }
  return true;
}

// Value by value: missing ones are masked, and what cannot be used is named.
void pack_slowly(const ColumnStrip& strip, Missing missing, BitMatrix& out) {
  const bool two = out.book().scheme == Scheme::two_dither;
  const unsigned planes = out.book().planes();
  for (size_t base = 0; base < strip.count; base += 64) {
    std::array<uint64_t, 16> words{};
    uint64_t seen = 0;
    for (size_t i = base; i < std::min(strip.count, base + 64); ++i) {
      const double x = strip.x[i];
      if (!std::isfinite(x)) {
        if (std::isnan(x) && missing == Missing::mask) continue;
        fail(ErrorCode::input, "row ", out.place().first_row + strip.first_row + i, ", column ", strip.column,
             " is ",
             std::isnan(x) ? "NaN; treat it as missing (missing = mask) or remove it"
                           : "infinite; remove the row");
      }
      const size_t at = i - base;
      seen |= uint64_t{1} << at;
      const uint32_t w0 = strip.word0[i], w1 = strip.word1[i];
      const unsigned code = two ? code_of(strip.rule, x, w0, 0) << 1 | code_of(strip.rule, x, w1, 0)
                                : code_of(strip.rule, x, w0, w1);
      for (unsigned p = 0; p < planes; ++p) words[p] |= uint64_t{code >> (planes - 1 - p) & 1} << at;
    }
    const size_t word = (strip.first_row + base) / 64;
    for (unsigned p = 0; p < planes; ++p) out.plane(p, strip.column)[word] = words[p];
    if (out.has_mask()) out.mask(strip.column)[word] = seen;
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
    for (size_t j = 0; j < width; ++j) {
      double* of_column = &values[j * kStripRows];
      std::fill(of_column + count, of_column + (count + 7) / 8 * 8, 0.0);
      const ColumnStrip strip(of_column, count, row, column + j, out);
      if (!pack_quickly(strip, out)) pack_slowly(strip, missing, out);
    }
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
  return code_of(rule_of(book, column), x, words[dither], words[1]);
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
  if (!(corrupted >= 0 && corrupted < 0.5))
    fail(ErrorCode::usage, "corrupted = ", corrupted,
         ": give the share of rows that may hold anything, below 0.5");
  const double size = static_cast<double>(n);
  PilotRule rule{static_cast<size_t>(std::ceil((d > 1 ? 2 : 1) * std::sqrt(size))),
                 std::sqrt((d > 1 ? 9 : 2) / size)};
  if (corrupted > 0) rule.e = corrupted + 1 / std::sqrt(size);
  rule.count = std::min(rule.count, n);
  return rule;
}

}  // namespace trireme::stats
