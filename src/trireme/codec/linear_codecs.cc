// randk (Stich et al., NeurIPS'18), powersgd (Vogels, Karimireddy, Jaggi, NeurIPS'19), acpsgd (Zhang, Wang,
// Shi, Chu, Li, ICDCS'23).
#include <algorithm>
#include <cmath>

#include "trireme/base/rng.h"
#include "trireme/codec/block_codec.h"
#include "trireme/codec/built_in.h"
#include "trireme/codec/linear.h"

namespace trireme::codec {
namespace {

size_t total(const Shapes& shapes) {
  int64_t n = 0;
  for (const Shape& s : shapes) n += s.elements();
  return static_cast<size_t>(n);
}

void check_finite(std::string_view codec, std::span<const float> data) {
  for (size_t i = 0; i < data.size(); ++i) {
    if (!std::isfinite(data[i])) refuse_not_finite(codec, data.data(), data.size(), 0);
  }
}

// --- randk

struct RandkOptions {
  double ratio = 0.01;
  bool scaled = true;
  void list(OptionList& o) {
    o.add("ratio", ratio, "share of the elements that is sent, one of each equal stretch")
        .above(0)
        .at_most(1);
    o.add("scaled", scaled, "what is sent is multiplied by the stretch's length: unbiased; else contractive");
  }
};

// The elements are cut into k stretches whose lengths differ by at most one; all ranks draw the same element
// of each, so that the numbers add up.
class RandkRounds final : public Rounds {
 public:
  RandkRounds(size_t elements, const RandkOptions& o) : elements_(elements), scaled_(o.scaled) {
    if (elements > 0)
      picks_ = std::clamp<size_t>(static_cast<size_t>(std::ceil(o.ratio * static_cast<double>(elements))), 1,
                                  elements);
  }
  int count() const override { return 1; }
  size_t elements(int) const override { return picks_; }
  void encode(int, std::span<const float> data, std::span<const std::span<const float>>, std::span<float> out,
              const Call& call) override {
    check_finite("randk", data);
    for_each_pick(call, [&](size_t pick, size_t index, float length) {
      out[pick] = data[index] * length;
      if (!std::isfinite(out[pick]))
        fail(ErrorCode::diverged, "codec randk: element ", index, " is ", data[index],
             ", too large to be scaled");
    });
  }
  void decode(std::span<const std::span<const float>> means, std::span<float> data,
              const Call& call) override {
    std::fill(data.begin(), data.end(), 0.0f);
    for_each_pick(call, [&](size_t pick, size_t index, float) { data[index] = means[0][pick]; });
  }
  void finish(std::span<const std::span<const float>>, const Call&) override {}
  std::map<std::string, std::vector<std::span<float>>> state() override { return {}; }

 private:
  template <typename Body>
  void for_each_pick(const Call& call, const Body& body) const {
    PhiloxStream rng(call.shared_seed, 2);
    for (size_t i = 0; i < picks_; ++i) {
      const size_t begin = i * elements_ / picks_, length = (i + 1) * elements_ / picks_ - begin;
      const size_t at = begin + (uint64_t{rng.next_u32()} * length >> 32);
      body(i, at, scaled_ ? static_cast<float>(length) : 1.0f);
    }
  }
  size_t elements_, picks_ = 0;
  bool scaled_;
};

class Randk final : public LinearCodec {
 public:
  explicit Randk(const RandkOptions& o) : o_(o) {}
  std::string_view name() const override { return "randk"; }
  Traits traits() const override {
    return {.payload = Payload::summable,
            .unbiased = o_.scaled,
            .contractive = !o_.scaled,
            .bits_per_element = 32 * o_.ratio};
  }
  std::unique_ptr<Rounds> rounds(const Shapes& shapes) const override {
    return std::make_unique<RandkRounds>(total(shapes), o_);
  }

 private:
  RandkOptions o_;
};

// --- low rank

struct LowRankOptions {
  int64_t rank = 4;
  double min_rate = 2;
  void list(OptionList& o) {
    o.add("rank", rank, "columns of the two factors").at_least(1).at_most(1024);
    o.add("min_rate", min_rate, "tensors that factors would not make smaller by this travel as they are")
        .at_least(1);
  }
};

// Sums in 16 lanes, so that compilers may use vectors and every processor gives the same bits.
float dot(const float* a, const float* b, size_t n) {
  float lanes[16] = {};
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (size_t l = 0; l < 16; ++l) lanes[l] += a[i + l] * b[i + l];
  }
  for (size_t l = 0; i < n; ++i, ++l) lanes[l] += a[i] * b[i];
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

void add_scaled(const float* from, float factor, float* to, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

// A list of `rank` vectors of equal length, one after the other.
struct Factor {
  float* values;
  size_t rank, length;
  float* row(size_t k) const { return values + k * length; }
};

// Modified Gram-Schmidt, twice over, in double: what is (nearly) a sum of earlier vectors becomes zero.
void orthonormalise(const Factor& f) {
  std::vector<double> v(f.length);
  for (size_t k = 0; k < f.rank; ++k) {
    float* row = f.row(k);
    std::copy(row, row + f.length, v.begin());
    const auto length = [&] {
      double sum = 0;
      for (const double e : v) sum += e * e;
      return std::sqrt(sum);
    };
    const double before = length();
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t j = 0; j < k; ++j) {
        double along = 0;
        for (size_t i = 0; i < f.length; ++i) along += v[i] * f.row(j)[i];
        for (size_t i = 0; i < f.length; ++i) v[i] -= along * f.row(j)[i];
      }
    }
    const double after = length();
    const double inverse = after > 1e-6 * before && after > 0 ? 1 / after : 0;
    for (size_t i = 0; i < f.length; ++i) row[i] = static_cast<float>(v[i] * inverse);
  }
}

// p (rank x rows) = M q^T, q (rank x columns).
void times_columns(std::span<const float> m, const Factor& q, const Factor& p) {
  for (size_t i = 0; i < p.length; ++i) {
    for (size_t k = 0; k < p.rank; ++k) p.row(k)[i] = dot(m.data() + i * q.length, q.row(k), q.length);
  }
}
// q (rank x columns) = p M.
void times_rows(std::span<const float> m, const Factor& p, const Factor& q) {
  std::fill(q.values, q.values + q.rank * q.length, 0.0f);
  for (size_t i = 0; i < p.length; ++i) {
    for (size_t k = 0; k < p.rank; ++k) add_scaled(m.data() + i * q.length, p.row(k)[i], q.row(k), q.length);
  }
}
// m (rows x columns) = p^T q.
void product(const Factor& p, const Factor& q, std::span<float> m) {
  std::fill(m.begin(), m.end(), 0.0f);
  for (size_t i = 0; i < p.length; ++i) {
    for (size_t k = 0; k < p.rank; ++k) add_scaled(q.row(k), p.row(k)[i], m.data() + i * q.length, q.length);
  }
}

// Vectors that are zero, as at the start or after a gradient of zeros, become random ones, the same on all
// ranks.
void refill(const Factor& f, uint64_t seed, uint64_t stream) {
  for (size_t k = 0; k < f.rank; ++k) {
    float* row = f.row(k);
    if (std::any_of(row, row + f.length, [](float v) { return v != 0; })) continue;
    PhiloxStream rng(mix(seed, stream, k), 3);
    for (size_t i = 0; i < f.length; ++i) row[i] = uniform_float(rng.next_u32()) * 2 - 1;
  }
}

struct Matrix {
  size_t at = 0, rows = 0, columns = 0;  // in the data
  size_t rank = 0;                       // 0: travels as it is
  size_t elements() const { return rows * columns; }
};

std::vector<Matrix> plan(const Shapes& shapes, const LowRankOptions& o) {
  std::vector<Matrix> all;
  size_t at = 0;
  for (const Shape& s : shapes) {
    Matrix m{at, static_cast<size_t>(s.rows), static_cast<size_t>(s.columns), 0};
    const size_t rank = std::min({static_cast<size_t>(o.rank), m.rows, m.columns});
    const double sent = static_cast<double>((m.rows + m.columns) * rank);
    if (sent * o.min_rate < static_cast<double>(m.elements())) m.rank = rank;
    at += m.elements();
    all.push_back(m);
  }
  return all;
}

// Round 0: P = M Q of every matrix. Round 1: Q = M^T P with P's mean made orthonormal, and what travels as it
// is.
class PowerSgdRounds final : public Rounds {
 public:
  PowerSgdRounds(const Shapes& shapes, const LowRankOptions& o) : matrices_(plan(shapes, o)) {
    for (const Matrix& m : matrices_) q_.emplace_back(m.rank * m.columns);
  }
  int count() const override { return 2; }
  size_t elements(int round) const override {
    size_t sum = 0;
    for (const Matrix& m : matrices_)
      sum += m.rank > 0 ? m.rank * (round == 0 ? m.rows : m.columns) : (round == 0 ? 0 : m.elements());
    return sum;
  }
  void encode(int round, std::span<const float> data, std::span<const std::span<const float>> means,
              std::span<float> out, const Call& call) override {
    if (round == 0) check_finite("powersgd", data);
    std::vector<float> p_mean =
        round == 0 ? std::vector<float>() : std::vector<float>(means[0].begin(), means[0].end());
    size_t p_at = 0, at = 0;
    for (size_t i = 0; i < matrices_.size(); ++i) {
      const Matrix& m = matrices_[i];
      const auto values = data.subspan(m.at, m.elements());
      if (m.rank == 0) {
        if (round == 0) continue;
        std::copy(values.begin(), values.end(), out.begin() + static_cast<std::ptrdiff_t>(at));
        at += m.elements();
      } else if (round == 0) {
        const Factor q{q_[i].data(), m.rank, m.columns};
        refill(q, call.shared_seed, i);
        times_columns(values, q, {out.data() + at, m.rank, m.rows});
        at += m.rank * m.rows;
      } else {
        const Factor p{p_mean.data() + p_at, m.rank, m.rows};
        orthonormalise(p);
        times_rows(values, p, {out.data() + at, m.rank, m.columns});
        p_at += m.rank * m.rows;
        at += m.rank * m.columns;
      }
    }
  }
  void decode(std::span<const std::span<const float>> means, std::span<float> data, const Call&) override {
    std::vector<float> p_mean(means[0].begin(), means[0].end()), q_mean(means[1].begin(), means[1].end());
    size_t p_at = 0, at = 0;
    for (const Matrix& m : matrices_) {
      const auto values = data.subspan(m.at, m.elements());
      if (m.rank == 0) {
        std::copy_n(q_mean.begin() + static_cast<std::ptrdiff_t>(at), m.elements(), values.begin());
        at += m.elements();
        continue;
      }
      const Factor p{p_mean.data() + p_at, m.rank, m.rows};
      orthonormalise(p);
      product(p, {q_mean.data() + at, m.rank, m.columns}, values);
      p_at += m.rank * m.rows;
      at += m.rank * m.columns;
    }
  }
  void finish(std::span<const std::span<const float>> means, const Call&) override {
    size_t at = 0;
    for (size_t i = 0; i < matrices_.size(); ++i) {
      const Matrix& m = matrices_[i];
      std::copy_n(means[1].begin() + static_cast<std::ptrdiff_t>(at), q_[i].size(), q_[i].begin());
      at += m.rank > 0 ? q_[i].size() : m.elements();
    }
  }
  std::map<std::string, std::vector<std::span<float>>> state() override {
    std::map<std::string, std::vector<std::span<float>>> all;
    for (auto& q : q_) all["q"].push_back(q);
    return all;
  }

 private:
  std::vector<Matrix> matrices_;
  std::vector<std::vector<float>> q_;  // by tensor, rank x columns; empty for those that travel as they are
};

// One round: odd steps send P = M Q with Q made orthonormal, even ones Q = M^T P with P made orthonormal.
// Half of the matrices do it the other way round, so that both kinds of step send about as much.
class AcpSgdRounds final : public Rounds {
 public:
  AcpSgdRounds(const Shapes& shapes, const LowRankOptions& o) : matrices_(plan(shapes, o)) {
    size_t sent[2] = {0, 0};
    for (const Matrix& m : matrices_) {
      p_.emplace_back(m.rank * m.rows);
      q_.emplace_back(m.rank * m.columns);
      const size_t longer = std::max(m.rows, m.columns) * m.rank,
                   shorter = std::min(m.rows, m.columns) * m.rank;
      // On steps of parity 1 the longer factor travels where that side is the emptier one so far.
      const bool longer_on_odd = sent[1] <= sent[0];
      odd_sends_p_.push_back(longer_on_odd == (m.rows >= m.columns));
      sent[longer_on_odd ? 1 : 0] += longer;
      sent[longer_on_odd ? 0 : 1] += shorter;
      if (m.rank == 0) plain_ += m.elements();
    }
    elements_ = plain_ + std::max(sent[0], sent[1]);
  }
  int count() const override { return 1; }
  size_t elements(int) const override { return elements_; }
  void encode(int, std::span<const float> data, std::span<const std::span<const float>>, std::span<float> out,
              const Call& call) override {
    check_finite("acpsgd", data);
    std::fill(out.begin(), out.end(), 0.0f);
    for_each(out, call, [&](size_t i, const Matrix& m, bool sends_p, float* to) {
      const auto values = data.subspan(m.at, m.elements());
      if (m.rank == 0) {
        std::copy(values.begin(), values.end(), to);
        return;
      }
      const Factor p{p_[i].data(), m.rank, m.rows}, q{q_[i].data(), m.rank, m.columns};
      prepare(sends_p ? q : p, i, call);
      sends_p ? times_columns(values, q, {to, m.rank, m.rows})
              : times_rows(values, p, {to, m.rank, m.columns});
    });
  }
  void decode(std::span<const std::span<const float>> means, std::span<float> data,
              const Call& call) override {
    std::vector<float> mean(means[0].begin(), means[0].end());
    for_each(mean, call, [&](size_t i, const Matrix& m, bool sends_p, float* from) {
      const auto values = data.subspan(m.at, m.elements());
      if (m.rank == 0) {
        std::copy_n(from, m.elements(), values.begin());
        return;
      }
      const Factor p{p_[i].data(), m.rank, m.rows}, q{q_[i].data(), m.rank, m.columns};
      prepare(sends_p ? q : p, i, call);
      sends_p ? product({from, m.rank, m.rows}, q, values) : product(p, {from, m.rank, m.columns}, values);
    });
  }
  void finish(std::span<const std::span<const float>> means, const Call& call) override {
    std::vector<float> mean(means[0].begin(), means[0].end());
    for_each(mean, call, [&](size_t i, const Matrix& m, bool sends_p, float* from) {
      if (m.rank == 0) return;
      auto& mine = sends_p ? p_[i] : q_[i];
      std::copy_n(from, mine.size(), mine.begin());
    });
  }
  std::map<std::string, std::vector<std::span<float>>> state() override {
    std::map<std::string, std::vector<std::span<float>>> all;
    for (auto& p : p_) all["p"].push_back(p);
    for (auto& q : q_) all["q"].push_back(q);
    return all;
  }

 private:
  // The factor that stays home: random where it is zero, orthonormal. Doing it again changes next to nothing,
  // and all ranks do the same.
  static void prepare(const Factor& f, size_t stream, const Call& call) {
    refill(f, call.shared_seed, stream);
    orthonormalise(f);
  }
  // body(tensor, matrix, does it send P in this step, its numbers)
  template <typename Body>
  void for_each(std::span<float> numbers, const Call& call, const Body& body) {
    size_t at = 0;
    for (size_t i = 0; i < matrices_.size(); ++i) {
      const Matrix& m = matrices_[i];
      const bool sends_p = odd_sends_p_[i] == (call.step % 2 == 1);
      body(i, m, sends_p, numbers.data() + at);
      at += m.rank == 0 ? m.elements() : m.rank * (sends_p ? m.rows : m.columns);
    }
  }
  std::vector<Matrix> matrices_;
  std::vector<std::vector<float>> p_, q_;
  std::vector<bool> odd_sends_p_;
  size_t plain_ = 0, elements_ = 0;
};

template <typename R>
class LowRank final : public LinearCodec {
 public:
  LowRank(std::string name, int rounds, const LowRankOptions& o)
      : name_(std::move(name)), rounds_(rounds), o_(o) {}
  std::string_view name() const override { return name_; }
  Traits traits() const override {
    // Bits: of a square matrix of 1024 rows.
    return {.payload = Payload::summable,
            .contractive = true,
            .stateful = true,
            .rounds = rounds_,
            .bits_per_element = 32.0 * static_cast<double>(o_.rank * rounds_) / 1024};
  }
  std::unique_ptr<Rounds> rounds(const Shapes& shapes) const override {
    return std::make_unique<R>(shapes, o_);
  }

 private:
  std::string name_;
  int rounds_;
  LowRankOptions o_;
};

}  // namespace

std::vector<CodecKind> linear_kinds() {
  auto randk = kind_of<RandkOptions>("randk", "random elements, the same on all ranks",
                                     [](const RandkOptions& o) { return std::make_shared<Randk>(o); });
  randk.contractive = {{"scaled", false}};
  randk.contractive_note = "scaled = false (scaled numbers would let the residual explode)";
  auto powersgd = kind_of<LowRankOptions>(
      "powersgd", "matrices as products of two thin ones, in two rounds",
      [](const LowRankOptions& o) { return std::make_shared<LowRank<PowerSgdRounds>>("powersgd", 2, o); });
  auto acpsgd = kind_of<LowRankOptions>(
      "acpsgd", "as powersgd, one factor a step by turns: one round",
      [](const LowRankOptions& o) { return std::make_shared<LowRank<AcpSgdRounds>>("acpsgd", 1, o); });
  return {randk, powersgd, acpsgd};
}

}  // namespace trireme::codec
