#include "trireme/stats/covariance.h"

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>
#include <numbers>

#include "trireme/base/error.h"
#include "trireme/stats/parallel.h"

namespace trireme::stats {
namespace {

constexpr size_t kTile = 16;  // columns: two tiles of two planes of kTileWords lie in the second-level cache
constexpr size_t kTileWords = 512;  // words of a column, 4 KiB: two columns lie in the first-level cache

constexpr size_t kLeastForProducts = 24;  // columns; below, most of a vector of columns would be empty
constexpr size_t kLeastPieceWords = 64;   // of an item, so that its sums are worth adding up
constexpr size_t kEnoughItems = 16;       // to keep the threads evenly busy

size_t triangle(size_t d) {
  return d * (d + 1) / 2;
}

// Planes of 2-bit codes, by columns.
struct CodePlanes {
  std::vector<const uint64_t*> high, low;
};

// For all i <= j (upper triangle by rows): sum over 64 * words rows of code_i code_j.
std::vector<int64_t> code_products(const CodePlanes& codes, size_t words, unsigned threads,
                                   const Kernels& k) {
  const size_t d = codes.high.size(), blocks = (d + kCodeBlock - 1) / kCodeBlock;
  const size_t width = ((d + blocks - 1) / blocks + 63) / 64 * 64;  // whole vectors of every kernel
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t row = 0; row < d; row += width)
    for (size_t column = row; column < d; column += width) pairs.emplace_back(row, column);
  // Few columns are shared out to the threads by rows.
  const size_t pieces =
      std::clamp<size_t>(words / kLeastPieceWords, 1, (kEnoughItems + pairs.size() - 1) / pairs.size());
  const size_t piece = std::min(kMostCodeWords, (words / pieces + kWordAlign) / kWordAlign * kWordAlign);
  std::vector<int64_t> sums(triangle(d));
  std::mutex adding;
  parallel_for(pairs.size() * ((words + piece - 1) / piece), threads, [&](size_t item) {
    const auto [row, column] = pairs[item % pairs.size()];
    const size_t first = item / pairs.size() * piece;
    const size_t i_end = std::min(row + width, d), j_end = std::min(column + width, d);
    const uint64_t* planes[4][kCodeBlock];
    for (size_t c = 0; c < kCodeBlock; ++c) {
      const size_t i = std::min(row + c, i_end - 1), j = std::min(column + c, j_end - 1);
      planes[0][c] = codes.high[i] + first, planes[1][c] = codes.low[i] + first;
      planes[2][c] = codes.high[j] + first, planes[3][c] = codes.low[j] + first;
    }
    const CodeBlock rows{planes[0], planes[1], i_end - row}, columns{planes[2], planes[3], j_end - column};
    std::vector<uint32_t> out(kCodeBlock * kCodeBlock);
    k.code_products(rows, row == column ? rows : columns, std::min(piece, words - first), out.data());
    const std::lock_guard lock(adding);
    for (size_t i = row; i < i_end; ++i)
      for (size_t j = std::max(i, column); j < j_end; ++j)
        sums[i * (2 * d - i + 1) / 2 + j - i] += out[(j - column) * kCodeBlock + i - row];
  });
  return sums;
}

// One block's planes with what is derived from them once per column, and the count of one pair of columns.
class BlockPlanes {
 public:
  BlockPlanes(const BitMatrix& block, Pairing pairing, const Kernels& k) : block_(block), k_(k) {
    const Scheme scheme = block.book().scheme;
    two_ = scheme == Scheme::two_dither;
    all_pairs_ = two_ && pairing == Pairing::all_pairs;
    quaternary_ = !two_ && block.book().bits == 2 && !block.has_mask();
    if (two_ || quaternary_) derive_equal();
  }

  // Sum of the pair's terms over words [first, first + words) up to the constant n-terms of offset().
  int64_t sum(size_t i, size_t j, size_t first, size_t words) const {
    if (block_.has_mask()) return masked_sum(i, j, first, words);
    const auto x = [&](unsigned p, unsigned q) { return xor_count(p, i, q, j, first, words); };
    if (all_pairs_ && i != j) {
      const MaskedCount c = k_.masked_count(plane(0, i) + first, equal(i) + first, plane(0, j) + first,
                                            equal(j) + first, words);
      return 4 * (signed_of(c.both) - 2 * signed_of(c.differ));
    }
    if (all_pairs_) return -8 * x(0, 1);
    if (two_) return -2 * (x(0, 1) + x(1, 0));
    if (quaternary_) {
      const TriangularCount c = k_.triangular_count(plane(0, i) + first, equal(i) + first,
                                                    plane(0, j) + first, equal(j) + first, words);
      return -10 * signed_of(c.differ) + 6 * signed_of(c.differ_and) + 2 * signed_of(c.differ_or);
    }
    return coded_sum([&](unsigned p, unsigned q) { return -2 * x(p, q); });
  }

  int64_t offset(size_t i, size_t j) const {
    if (block_.has_mask()) return 0;
    const auto n = static_cast<int64_t>(block_.rows());
    if (all_pairs_) return i == j ? 4 * n : 0;
    if (two_) return 2 * n;
    if (quaternary_) return n;
    return coded_sum([&](unsigned, unsigned) { return n; });
  }

  // Sum of squared terms; the whole pair. Only where it is a matter of counting: see squares_by_product.
  int64_t squares(size_t i, size_t j) const {
    const size_t words = block_.words();
    const int64_t n = seen_pairs(i, j);
    if (!quaternary_ && !two_) return n;  // one bit
    if (two_ && i == j) return (all_pairs_ ? 16 : 4) * n;
    const auto equals = [&](size_t a, size_t b) {
      return signed_of(k_.and_count(equal(a), equal(b), words));
    };
    if (all_pairs_) return 16 * equals(i, j);
    if (two_ && block_.has_mask())
      return 4 * (n - signed_of(
                          k_.masked_count(equal(i), block_.mask(i), equal(j), block_.mask(j), words).differ));
    if (two_) return 4 * (n - signed_of(k_.xor_count(equal(i), equal(j), words)));
    const int64_t both = equals(i, j), single = equals(i, i) + equals(j, j) - 2 * both;
    return 81 * both + 9 * single + (n - single - both);
  }
  bool products_count() const {
    return (quaternary_ || (two_ && !block_.has_mask())) && k_.code_products != nullptr &&
           block_.columns() >= kLeastForProducts;
  }
  // sum() + offset() of all pairs i <= j by products of codes. Where products_count().
  std::vector<int64_t> sums_by_products(unsigned threads) const {
    const size_t d = block_.columns();
    CodePlanes codes;
    if (quaternary_) {  // A = 2 c - 3
      for (size_t j = 0; j < d; ++j) codes.high.push_back(plane(0, j)), codes.low.push_back(plane(1, j));
      return centred_products(codes, 2, 3, threads);
    }
    // (s1 + s2) / 2 = c - 1 with c = 2 where both bits are set and 1 where one is.
    std::vector<uint64_t> both = combine([](uint64_t a, uint64_t b) { return a & b; });
    std::vector<uint64_t> one = combine([](uint64_t a, uint64_t b) { return a ^ b; });
    for (size_t j = 0; j < d; ++j)
      codes.high.push_back(&both[j * block_.words()]), codes.low.push_back(&one[j * block_.words()]);
    std::vector<int64_t> sums = centred_products(codes, 2, 2, threads);
    if (all_pairs_) {
      for (size_t j = 0; j < d; ++j)
        sums[j * (2 * d - j + 1) / 2] = sum(j, j, 0, block_.words()) + offset(j, j);
      return sums;
    }
    // raw: s1 s2' + s2 s1' is half the difference of (s1 + s2)(s1' + s2') and (s1 - s2)(s1' - s2').
    both = combine([](uint64_t a, uint64_t b) { return a & ~b; });
    for (size_t j = 0; j < d; ++j) codes.high[j] = &both[j * block_.words()], codes.low[j] = equal(j);
    const std::vector<int64_t> differences = centred_products(codes, 2, 2, threads);
    for (size_t k = 0; k < sums.size(); ++k) sums[k] = (sums[k] - differences[k]) / 2;
    return sums;
  }
  bool squares_by_counting() const { return two_ || block_.book().bits == 1 || quaternary_; }

  int64_t seen_pairs(size_t i, size_t j) const {
    return block_.has_mask() ? signed_of(k_.and_count(block_.mask(i), block_.mask(j), block_.words()))
                             : static_cast<int64_t>(block_.rows());
  }

  int64_t column_sum(size_t j) const {
    const auto ones = [&](unsigned p) {
      return signed_of(k_.and_count(plane(p, j), plane(p, j), block_.words()));
    };
    const int64_t n = seen_pairs(j, j);
    if (two_) return 2 * (ones(0) + ones(1) - n);
    int64_t sum = 0;
    for (unsigned p = 0; p < block_.book().bits; ++p)
      sum += (2 * ones(p) - n) << (block_.book().bits - 1 - p);
    return sum;
  }

 private:
  static int64_t signed_of(uint64_t count) { return static_cast<int64_t>(count); }
  const uint64_t* plane(unsigned p, size_t j) const { return block_.plane(p, j); }
  const uint64_t* equal(size_t j) const { return &equal_[j * block_.words()]; }
  int64_t xor_count(unsigned p, size_t i, unsigned q, size_t j, size_t first, size_t words) const {
    return signed_of(k_.xor_count(plane(p, i) + first, plane(q, j) + first, words));
  }

  template <typename Bits>
  std::vector<uint64_t> combine(Bits bits) const {
    std::vector<uint64_t> out(block_.columns() * block_.words());
    std::transform(plane(0, 0), plane(0, 0) + out.size(), plane(1, 0), out.begin(), bits);
    return out;
  }
  // Sums over the rows of (scale c_i - centre)(scale c_j - centre); codes of padding rows are 0.
  std::vector<int64_t> centred_products(const CodePlanes& codes, int64_t scale, int64_t centre,
                                        unsigned threads) const {
    std::vector<int64_t> sums = code_products(codes, block_.words(), threads, k_);
    const size_t d = block_.columns();
    std::vector<int64_t> totals(d);
    const auto count = [&](const uint64_t* words) {
      return signed_of(k_.and_count(words, words, block_.words()));
    };
    for (size_t j = 0; j < d; ++j) totals[j] = 2 * count(codes.high[j]) + count(codes.low[j]);
    const int64_t constant = centre * centre * static_cast<int64_t>(block_.rows());
    for (size_t i = 0, at = 0; i < d; ++i)
      for (size_t j = i; j < d; ++j, ++at)
        sums[at] = scale * scale * sums[at] - scale * centre * (totals[i] + totals[j]) + constant;
    return sums;
  }

  // A_i A_j = sum over planes of 2^(p+q) s_p s'_q.
  template <typename Term>
  int64_t coded_sum(Term term) const {
    const unsigned bits = block_.book().bits;
    int64_t sum = 0;
    for (unsigned p = 0; p < bits; ++p)
      for (unsigned q = 0; q < bits; ++q) sum += term(p, q) << (2 * (bits - 1) - p - q);
    return sum;
  }

  int64_t masked_sum(size_t i, size_t j, size_t first, size_t words) const {
    const auto product = [&](unsigned p, unsigned q) {
      const MaskedCount c = k_.masked_count(plane(p, i) + first, block_.mask(i) + first, plane(q, j) + first,
                                            block_.mask(j) + first, words);
      return signed_of(c.both) - 2 * signed_of(c.differ);
    };
    if (all_pairs_ && i == j) return 4 * product(0, 1);
    if (all_pairs_) return product(0, 0) + product(0, 1) + product(1, 0) + product(1, 1);
    if (two_) return product(0, 1) + product(1, 0);
    return coded_sum(product);
  }

  // Rows whose two planes agree: both dithers gave the same sign, or the 2-bit code is an outer one.
  void derive_equal() {
    const size_t words = block_.words();
    equal_.assign(block_.columns() * words, 0);
    for (size_t j = 0; j < block_.columns(); ++j)
      for (size_t w = 0; w * 64 < block_.rows(); ++w) {
        const size_t left = block_.rows() - w * 64;
        uint64_t valid = left >= 64 ? ~uint64_t{0} : (uint64_t{1} << left) - 1;
        if (block_.has_mask()) valid &= block_.mask(j)[w];
        equal_[j * words + w] = ~(plane(0, j)[w] ^ plane(1, j)[w]) & valid;
      }
  }

  const BitMatrix& block_;
  const Kernels& k_;
  bool two_, all_pairs_, quaternary_;
  std::vector<uint64_t> equal_;
};

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Sum over rows of (A_i A_j)^2 as a product of squared integers, exact below 2^53: many bits, or missing
// values.
RowMajor squares_by_product(const BitMatrix& block) {
  constexpr size_t kRows = 1024;
  const size_t d = block.columns();
  RowMajor total = RowMajor::Zero(static_cast<Eigen::Index>(d), static_cast<Eigen::Index>(d));
  for (size_t first = 0; first < block.rows(); first += kRows) {
    const size_t count = std::min(kRows, block.rows() - first);
    RowMajor a = RowMajor::Zero(static_cast<Eigen::Index>(count), static_cast<Eigen::Index>(d));
    for (size_t j = 0; j < d; ++j) {
      const double step = block.book().step_of(j);
      for (size_t k = 0; k < count; ++k)
        if (step > 0 && block.seen(first + k, j)) {
          const double odd = std::round(2 * block.value(first + k, j) / step);
          a(static_cast<Eigen::Index>(k), static_cast<Eigen::Index>(j)) = odd * odd;
        }
    }
    total.noalias() += a.transpose() * a;
  }
  return total;
}

// Calls body(i, j) for all i <= j < d, tile by tile, on several threads.
void for_tiles(size_t d, unsigned threads, const std::function<void(size_t, size_t)>& body) {
  const size_t tiles = (d + kTile - 1) / kTile;
  std::vector<std::pair<size_t, size_t>> order;
  for (size_t a = 0; a < tiles; ++a)
    for (size_t b = a; b < tiles; ++b) order.emplace_back(a, b);
  parallel_for(order.size(), threads,
               [&](size_t item) { body(order[item].first * kTile, order[item].second * kTile); });
}

}  // namespace

CovarianceCounts::CovarianceCounts(CodeBook book, Pairing pairing, bool with_errors)
    : book_(std::move(book)), pairing_(pairing) {
  book_.validate();
  sums_.assign(triangle(columns()), 0);
  if (with_errors) squares_.assign(triangle(columns()), 0);
  column_sums_.assign(columns(), 0);
}

size_t CovarianceCounts::at(size_t i, size_t j) const {
  if (i > j) std::swap(i, j);
  return i * (2 * columns() - i + 1) / 2 + j - i;
}

void CovarianceCounts::make_pairs() {
  if (pairs_.empty()) pairs_.assign(triangle(columns()), static_cast<int64_t>(rows_));
}

// Consecutive blocks of one stream are one place, so that a long stream needs no long list.
void CovarianceCounts::remember(const DitherPlace& place, size_t rows) {
  for (size_t p = 0; p < places_.size(); ++p)
    if (places_[p].seed == place.seed && places_[p].stream == place.stream &&
        places_[p].first_row + place_rows_[p] == place.first_row) {
      place_rows_[p] += rows;
      return;
    }
  places_.push_back(place);
  place_rows_.push_back(rows);
}

void CovarianceCounts::add(const BitMatrix& block, unsigned threads, const Kernels& k) {
  check_poolable(book_, places_, place_rows_, block.book(), block.place(), block.rows());
  const BlockPlanes planes(block, pairing_, k);
  const bool masked = block.has_mask() || !pairs_.empty();
  if (masked) make_pairs();
  const bool count_squares = !squares_.empty() && planes.squares_by_counting();
  const bool by_products = planes.products_count();
  if (by_products) {
    const std::vector<int64_t> sums = planes.sums_by_products(threads);
    std::transform(sums_.begin(), sums_.end(), sums.begin(), sums_.begin(), std::plus<>());
  }
  if (!by_products || count_squares || masked)
    for_tiles(columns(), threads, [&](size_t row, size_t column) {
      const size_t i_end = std::min(row + kTile, columns()), j_end = std::min(column + kTile, columns());
      int64_t sums[kTile][kTile] = {};
      for (size_t first = 0; !by_products && first < block.words(); first += kTileWords)
        for (size_t i = row; i < i_end; ++i)
          for (size_t j = std::max(i, column); j < j_end; ++j)
            sums[i - row][j - column] += planes.sum(i, j, first, std::min(kTileWords, block.words() - first));
      for (size_t i = row; i < i_end; ++i)
        for (size_t j = std::max(i, column); j < j_end; ++j) {
          if (!by_products) sums_[at(i, j)] += sums[i - row][j - column] + planes.offset(i, j);
          if (count_squares) squares_[at(i, j)] += planes.squares(i, j);
          if (masked) pairs_[at(i, j)] += planes.seen_pairs(i, j);
        }
    });
  if (!squares_.empty() && !count_squares) {
    const RowMajor squares = squares_by_product(block);
    for (size_t i = 0; i < columns(); ++i)
      for (size_t j = i; j < columns(); ++j)
        squares_[at(i, j)] +=
            static_cast<int64_t>(squares(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)));
  }
  for (size_t j = 0; j < columns(); ++j) column_sums_[j] += planes.column_sum(j);
  rows_ += block.rows();
  remember(block.place(), block.rows());
}

void CovarianceCounts::merge(const CovarianceCounts& other) {
  if (pairing_ != other.pairing_ || squares_.empty() != other.squares_.empty())
    fail(ErrorCode::input, "counts of different pairing, or with and without errors, cannot be merged");
  for (size_t p = 0; p < other.places_.size(); ++p)
    check_poolable(book_, places_, place_rows_, other.book_, other.places_[p], other.place_rows_[p]);
  if (!pairs_.empty() || !other.pairs_.empty()) {
    make_pairs();
    for (size_t k = 0; k < pairs_.size(); ++k)
      pairs_[k] += other.pairs_.empty() ? static_cast<int64_t>(other.rows_) : other.pairs_[k];
  }
  const auto pool = [](std::vector<int64_t>& into, const std::vector<int64_t>& from) {
    std::transform(into.begin(), into.end(), from.begin(), into.begin(), std::plus<>());
  };
  pool(sums_, other.sums_);
  pool(squares_, other.squares_);
  pool(column_sums_, other.column_sums_);
  rows_ += other.rows_;
  for (size_t p = 0; p < other.places_.size(); ++p) remember(other.places_[p], other.place_rows_[p]);
}

CovarianceCounts CovarianceCounts::without(const CovarianceCounts& whole, const CovarianceCounts& part) {
  CovarianceCounts rest = whole;
  const auto take = [](std::vector<int64_t>& from, const std::vector<int64_t>& what) {
    std::transform(from.begin(), from.end(), what.begin(), from.begin(), std::minus<>());
  };
  if (!rest.pairs_.empty()) {
    CovarianceCounts other = part;
    other.make_pairs();
    take(rest.pairs_, other.pairs_);
  }
  take(rest.sums_, part.sums_);
  if (!part.squares_.empty()) take(rest.squares_, part.squares_);
  take(rest.column_sums_, part.column_sums_);
  rest.rows_ -= part.rows_;
  return rest;
}

uint64_t CovarianceCounts::pairs(size_t i, size_t j) const {
  return pairs_.empty() ? rows_ : static_cast<uint64_t>(pairs_[at(i, j)]);
}

// What one unit of a pair's sum stands for.
double CovarianceCounts::unit(size_t i, size_t j) const {
  const double scale = book_.step_of(i) * book_.step_of(j) / 4;  // two dithers: step / 2 = gamma
  if (book_.scheme != Scheme::two_dither) return scale;
  return scale / (pairing_ == Pairing::raw ? 2 : 4);
}

Dense CovarianceCounts::second_moment(const std::vector<double>& variances) const {
  const size_t d = columns();
  const bool known_diagonal = book_.scheme == Scheme::two_dither || book_.scheme == Scheme::triangular;
  if (!known_diagonal && variances.size() != d)
    fail(ErrorCode::usage, "scheme ", name(book_.scheme), " tells nothing about the variances: give them (",
         d, " values), or quantise with triangular or two_dither");
  Dense out(d, d);
  for (size_t i = 0; i < d; ++i)
    for (size_t j = i; j < d; ++j) {
      if (pairs(i, j) == 0)
        fail(ErrorCode::input, "columns ", i, " and ", j, " were never seen together: no estimate for them");
      double value = unit(i, j) * static_cast<double>(sums_[at(i, j)]) / static_cast<double>(pairs(i, j));
      if (i == j && book_.scheme == Scheme::triangular) value -= book_.step_of(i) * book_.step_of(i) / 4;
      if (i == j && variances.size() == d) value = variances[i];
      out(i, j) = out(j, i) = value;
    }
  return out;
}

std::vector<double> CovarianceCounts::mean() const {
  std::vector<double> out(columns());
  const double share = book_.scheme == Scheme::two_dither ? 0.25 : 0.5;
  for (size_t j = 0; j < columns(); ++j) {
    if (pairs(j, j) == 0) fail(ErrorCode::input, "column ", j, " was never seen");
    out[j] =
        share * book_.step_of(j) * static_cast<double>(column_sums_[j]) / static_cast<double>(pairs(j, j));
  }
  return out;
}

Dense CovarianceCounts::covariance(const std::vector<double>& variances) const {
  Dense out = second_moment(variances);
  const std::vector<double> m = mean();
  for (size_t i = 0; i < columns(); ++i)
    for (size_t j = 0; j < columns(); ++j)
      if (i != j || variances.empty()) out(i, j) -= m[i] * m[j];
  return out;
}

Dense CovarianceCounts::standard_errors() const {
  if (squares_.empty()) fail(ErrorCode::usage, "these counts were taken without errors");
  Dense out(columns(), columns());
  for (size_t i = 0; i < columns(); ++i)
    for (size_t j = i; j < columns(); ++j) {
      const double n = static_cast<double>(pairs(i, j));
      const double mean = static_cast<double>(sums_[at(i, j)]) / n,
                   square = static_cast<double>(squares_[at(i, j)]) / n;
      out(i, j) = out(j, i) =
          unit(i, j) * std::sqrt(std::max(0.0, square - mean * mean) / std::max(1.0, n - 1));
    }
  return out;
}

CovarianceCounts::State CovarianceCounts::state() const {
  return {book_, pairing_, rows_, sums_, squares_, pairs_, column_sums_, places_, place_rows_};
}

CovarianceCounts CovarianceCounts::from_state(State s) {
  CovarianceCounts out(std::move(s.book), s.pairing, !s.squares.empty());
  const size_t size = triangle(out.columns());
  if (s.sums.size() != size || s.column_sums.size() != out.columns() ||
      (!s.squares.empty() && s.squares.size() != size) || (!s.pairs.empty() && s.pairs.size() != size) ||
      s.places.size() != s.place_rows.size())
    fail(ErrorCode::input, "these counts do not fit their ", out.columns(), " columns");
  out.rows_ = s.rows;
  out.sums_ = std::move(s.sums);
  out.squares_ = std::move(s.squares);
  out.pairs_ = std::move(s.pairs);
  out.column_sums_ = std::move(s.column_sums);
  out.places_ = std::move(s.places);
  out.place_rows_ = std::move(s.place_rows);
  return out;
}

}  // namespace trireme::stats
