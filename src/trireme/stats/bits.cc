#include "trireme/stats/bits.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "trireme/base/error.h"

namespace trireme::stats {
namespace {

constexpr std::pair<Scheme, std::string_view> kSchemes[] = {{Scheme::one_bit, "one_bit"},
                                                            {Scheme::two_dither, "two_dither"},
                                                            {Scheme::triangular, "triangular"},
                                                            {Scheme::multi_bit, "multi_bit"}};
constexpr unsigned kMaxBits = 16;

void check_column_values(const std::vector<double>& values, size_t columns, const char* what) {
  if (!values.empty() && values.size() != columns)
    fail(ErrorCode::usage, what, " has ", values.size(), " entries for ", columns, " columns");
  for (size_t j = 0; j < values.size(); ++j)
    if (!std::isfinite(values[j]))
      fail(ErrorCode::usage, what, " of column ", j, " is ", values[j], "; give a finite number");
}

}  // namespace

std::string_view name(Scheme scheme) {
  for (const auto& [value, text] : kSchemes)
    if (value == scheme) return text;
  return "?";
}

Scheme scheme_of(std::string_view text) {
  for (const auto& [value, known] : kSchemes)
    if (known == text) return value;
  fail(ErrorCode::usage, "unknown scheme \"", text, "\": one of one_bit, two_dither, triangular, multi_bit");
}

double CodeBook::step_of(size_t column) const {
  if (scheme == Scheme::one_bit || scheme == Scheme::two_dither) return 2 * range[column];
  if (step > 0 && range[column] > 0) return step;
  const double half_levels = std::ldexp(1.0, static_cast<int>(bits) - 1);
  // x + dither must stay inside the outer cells: |x| <= range, |dither| <= step (triangular) or step / 2
  // (uniform).
  return range[column] / (half_levels - (scheme == Scheme::triangular ? 1.0 : 0.5));
}

unsigned bits_for(Scheme scheme, double range, double step) {
  if (scheme == Scheme::one_bit || scheme == Scheme::two_dither) return 1;
  const double reach = range / step + (scheme == Scheme::triangular ? 1.0 : 0.5);
  unsigned bits = scheme == Scheme::triangular ? 2 : 1;
  while (std::ldexp(1.0, static_cast<int>(bits) - 1) < reach * (1 - 1e-12) && bits <= kMaxBits) ++bits;
  return bits;
}

void CodeBook::validate() const {
  if (range.empty()) fail(ErrorCode::usage, "no columns: the data is empty");
  check_column_values(range, columns(), "range (gamma)");
  check_column_values(truncation, columns(), "truncation (eta)");
  check_column_values(centre, columns(), "centre");
  for (size_t j = 0; j < columns(); ++j) {
    if (range[j] < 0)
      fail(ErrorCode::usage, "range (gamma) of column ", j, " is ", range[j], "; it must not be negative");
    if (truncation_of(j) < 0 || truncation_of(j) > range[j])
      fail(ErrorCode::usage, "truncation (eta) of column ", j, " is ", truncation_of(j),
           "; it must lie in [0, range = ", range[j], "]");
  }
  const bool coded = scheme == Scheme::triangular || scheme == Scheme::multi_bit;
  const unsigned least = scheme == Scheme::triangular ? 2 : 1;
  if (!coded && (bits != 1 || step != 0))
    fail(ErrorCode::usage, "scheme ", name(scheme), " has one bit a dither and takes no step");
  if (bits < least || bits > kMaxBits)
    fail(ErrorCode::usage, "bits = ", bits, "; scheme ", name(scheme), " takes ", least, " to ", kMaxBits);
  if (!(step >= 0) || !std::isfinite(step))
    fail(ErrorCode::usage, "step = ", step, "; give a positive number, or 0");
  for (size_t j = 0; step > 0 && j < columns(); ++j)
    if (bits_for(scheme, truncation_of(j), step) > bits)
      fail(ErrorCode::usage, bits, " bits of step ", step, " do not hold column ", j, "'s range ",
           truncation_of(j), "; give ", bits_for(scheme, truncation_of(j), step), " bits");
  if (complex && columns() % 2)
    fail(ErrorCode::usage, "complex data needs an even number of columns, not ", columns());
}

BitMatrix::BitMatrix(CodeBook book, DitherPlace place, size_t rows, bool with_mask)
    : book_(std::move(book)), place_(place), rows_(rows) {
  words_ = ((rows + 63) / 64 + kWordAlign - 1) / kWordAlign * kWordAlign;
  data_.assign(book_.planes() * columns() * words_, 0);
  if (with_mask) mask_.assign(columns() * words_, 0);
}

double BitMatrix::value(size_t row, size_t column, unsigned p) const {
  const auto bit = [&](unsigned k) { return static_cast<int>(plane(k, column)[row / 64] >> (row % 64) & 1); };
  if (book_.scheme == Scheme::two_dither) return book_.range[column] * (2 * bit(p) - 1);
  int code = 0;
  for (unsigned k = 0; k < book_.bits; ++k) code = 2 * code + bit(k);
  return book_.step_of(column) / 2 * (2 * code - ((1 << book_.bits) - 1));
}

bool BitMatrix::seen(size_t row, size_t column) const {
  return mask_.empty() || (mask(column)[row / 64] >> (row % 64) & 1);
}

BitMatrix BitMatrix::slice(size_t first, size_t count) const {
  TRIREME_CHECK(first + count <= rows_, "slice of rows ", first, " + ", count, " of ", rows_);
  BitMatrix part(book_, {place_.seed, place_.stream, place_.first_row + first}, count, has_mask());
  const size_t shift = first % 64, used = (count + 63) / 64;
  const auto copy = [&](const uint64_t* from, uint64_t* to) {
    from += first / 64;
    const size_t available = words_ - first / 64;
    for (size_t w = 0; w < used; ++w) {
      to[w] = from[w] >> shift;
      if (shift > 0 && w + 1 < available) to[w] |= from[w + 1] << (64 - shift);
    }
    if (count % 64) to[used - 1] &= (uint64_t{1} << count % 64) - 1;
  };
  for (size_t j = 0; j < columns(); ++j) {
    for (unsigned p = 0; p < book_.planes(); ++p) copy(plane(p, j), part.plane(p, j));
    if (has_mask()) copy(mask(j), part.mask(j));
  }
  return part;
}

void check_poolable(const CodeBook& book, const std::vector<DitherPlace>& places,
                    const std::vector<size_t>& rows, const CodeBook& next_book, const DitherPlace& next,
                    size_t next_rows) {
  if (!(book == next_book))
    fail(ErrorCode::input,
         "these bits were taken with another scheme, range or column count; only equal ones can be pooled");
  for (size_t i = 0; i < places.size(); ++i) {
    const bool same_stream = places[i].seed == next.seed && places[i].stream == next.stream;
    if (same_stream && next.first_row < places[i].first_row + rows[i] &&
        places[i].first_row < next.first_row + next_rows)
      fail(ErrorCode::input, "rows ", next.first_row, " to ", next.first_row + next_rows - 1, " of seed ",
           next.seed, " stream ", next.stream,
           " are in already: their dithers are not independent; give each device its own stream");
  }
}

}  // namespace trireme::stats
