#include "trireme/stats/mean.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/stats/quantiser.h"

namespace trireme::stats {
namespace {

// Sum over the seen rows of the products of planes p and q as signs; p == q gives their number.
int64_t sign_products(const BitMatrix& block, unsigned p, unsigned q, size_t column, int64_t seen) {
  if (p == q) return seen;
  const auto differ = static_cast<int64_t>(
      kernels().xor_count(block.plane(p, column), block.plane(q, column), block.words()));
  return seen - 2 * differ;  // unseen rows have equal (zero) planes
}

}  // namespace

MeanCounts::MeanCounts(CodeBook book) : book_(std::move(book)) {
  book_.validate();
  seen_.assign(book_.columns(), 0);
  sums_.assign(book_.columns(), 0);
  squares_.assign(book_.columns(), 0);
}

void MeanCounts::add(const BitMatrix& block) {
  check_poolable(book_, places_, place_rows_, block.book(), block.place(), block.rows());
  const Kernels& k = kernels();
  const bool two = book_.scheme == Scheme::two_dither;
  const unsigned planes = book_.planes();
  for (size_t j = 0; j < book_.columns(); ++j) {
    const auto count = [&](const uint64_t* words) {
      return static_cast<int64_t>(k.and_count(words, words, block.words()));
    };
    const int64_t seen = block.has_mask() ? count(block.mask(j)) : static_cast<int64_t>(block.rows());
    const auto weight = [&](unsigned p) { return two ? int64_t{1} : int64_t{1} << (planes - 1 - p); };
    for (unsigned p = 0; p < planes; ++p) {
      sums_[j] += weight(p) * (2 * count(block.plane(p, j)) - seen);
      for (unsigned q = 0; q < planes; ++q)
        squares_[j] += weight(p) * weight(q) * sign_products(block, p, q, j, seen);
    }
    seen_[j] += static_cast<uint64_t>(seen);
  }
  if (!places_.empty() && places_.back().seed == block.place().seed &&
      places_.back().stream == block.place().stream &&
      places_.back().first_row + place_rows_.back() == block.place().first_row) {
    place_rows_.back() += block.rows();
  } else {
    places_.push_back(block.place());
    place_rows_.push_back(block.rows());
  }
}

void MeanCounts::merge(const MeanCounts& other) {
  for (size_t p = 0; p < other.places_.size(); ++p)
    check_poolable(book_, places_, place_rows_, other.book_, other.places_[p], other.place_rows_[p]);
  for (size_t j = 0; j < book_.columns(); ++j) {
    seen_[j] += other.seen_[j];
    sums_[j] += other.sums_[j];
    squares_[j] += other.squares_[j];
  }
  places_.insert(places_.end(), other.places_.begin(), other.places_.end());
  place_rows_.insert(place_rows_.end(), other.place_rows_.begin(), other.place_rows_.end());
}

std::vector<double> MeanCounts::mean() const {
  std::vector<double> out(book_.columns());
  for (size_t j = 0; j < out.size(); ++j) {
    if (seen_[j] == 0) fail(ErrorCode::input, "column ", j, " has no values");
    const double unit = book_.step_of(j) / (book_.scheme == Scheme::two_dither ? 4 : 2);
    out[j] = book_.centre_of(j) + unit * static_cast<double>(sums_[j]) / static_cast<double>(seen_[j]);
  }
  return out;
}

std::vector<double> MeanCounts::standard_errors() const {
  std::vector<double> out(book_.columns());
  for (size_t j = 0; j < out.size(); ++j) {
    const double n = static_cast<double>(seen_[j]), mean = static_cast<double>(sums_[j]) / n;
    const double unit = book_.step_of(j) / (book_.scheme == Scheme::two_dither ? 4 : 2);
    const double variance = std::max(0.0, static_cast<double>(squares_[j]) / n - mean * mean);
    out[j] = unit * std::sqrt(variance / std::max(1.0, n - 1));
  }
  return out;
}

MeanCounts MeanCounts::from_state(State s) {
  MeanCounts out(std::move(s.book));
  const size_t d = out.book_.columns();
  if (s.seen.size() != d || s.sums.size() != d || s.squares.size() != d ||
      s.places.size() != s.place_rows.size())
    fail(ErrorCode::input, "these counts do not fit their ", d, " columns");
  out.seen_ = std::move(s.seen);
  out.sums_ = std::move(s.sums);
  out.squares_ = std::move(s.squares);
  out.places_ = std::move(s.places);
  out.place_rows_ = std::move(s.place_rows);
  return out;
}

PilotBook pilot_book(const Matrix& x, size_t total_rows, double corrupted) {
  const size_t d = cols(x);
  const PilotRule rule = pilot_rule(total_rows, d, corrupted);
  PilotBook out;
  out.rows = std::min(rule.count, rows(x));
  out.book.scheme = Scheme::one_bit;
  out.book.bits = 1;
  for (size_t j = 0; j < d; ++j) {
    std::vector<double> pilot;
    std::visit(
        [&](const auto& v) {
          for (size_t i = 0; i < out.rows; ++i)
            if (std::isfinite(v(i, j))) pilot.push_back(static_cast<double>(v(i, j)));
        },
        x);
    if (pilot.empty())
      fail(ErrorCode::input, "column ", j, " has no value in the ", out.rows, " rows of the pilot");
    const PilotRange range = pilot_range(std::move(pilot), rule.e);
    out.book.centre.push_back(range.centre);
    out.book.range.push_back(range.range);
  }
  return out;
}

}  // namespace trireme::stats
