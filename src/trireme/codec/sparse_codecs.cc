// topk (Aji and Heafield, EMNLP'17; Stich et al., NeurIPS'18), graddrop (threshold from a sample; Aji and
// Heafield), dgc (Lin et al., ICLR'18), adacomp (Chen et al., AAAI'18).
#include <algorithm>
#include <cmath>

#include "trireme/base/rng.h"
#include "trireme/codec/block_codec.h"
#include "trireme/codec/built_in.h"
#include "trireme/codec/sparse.h"

namespace trireme::codec {
namespace {

using kernels::Kernels;

size_t share_of(double ratio, size_t elements) {
  if (elements == 0) return 0;
  return std::clamp<size_t>(static_cast<size_t>(std::ceil(ratio * static_cast<double>(elements))), 1,
                            elements);
}

// Places with a float each.
class SparseCodec : public Codec {
 public:
  SparseCodec(std::string name, WireId id, const Kernels& k) : k_(k), name_(std::move(name)), id_(id) {}
  std::string_view name() const override { return name_; }

  void decode(std::span<const std::byte> wire, std::span<float> out) const override {
    const auto [places, values] = read(wire, out.size());
    std::fill(out.begin(), out.end(), 0.0f);
    places.for_each(
        [&, v = values](size_t at, size_t index) { out[index] = load<float>(v + at * sizeof(float)); });
  }
  void decode_add(std::span<const std::byte> wire, std::span<float> out) const override {
    const auto [places, values] = read(wire, out.size());
    places.for_each(
        [&, v = values](size_t at, size_t index) { out[index] += load<float>(v + at * sizeof(float)); });
  }

 protected:
  void check_input(std::span<const float> in, std::span<std::byte> wire) const {
    check_length(name_, in.size());
    check_room(name_, wire, wire_bound(in.size()));
  }
  // Values that are not finite are the largest, so they are among the picks.
  void check_finite(std::span<const float> x, std::span<const uint32_t> picks) const {
    for (const uint32_t i : picks) {
      if (!std::isfinite(x[i])) refuse_not_finite(name_, x.data(), x.size(), 0);
    }
  }
  size_t write_picks(std::span<const uint32_t> picks, std::span<const float> x,
                     std::span<std::byte> wire) const {
    std::byte* values = write_sparse({id_, 0, x.size()}, picks, wire);
    for (size_t i = 0; i < picks.size(); ++i) store(values + i * sizeof(float), x[picks[i]]);
    return sparse_bytes(x.size(), picks.size()) + picks.size() * sizeof(float);
  }
  size_t bound(size_t elements, size_t k) const { return sparse_bytes(elements, k) + k * sizeof(float); }

  const Kernels& k_;

 private:
  std::pair<SparsePlaces, const std::byte*> read(std::span<const std::byte> wire, size_t elements) const {
    check_length(name_, elements);
    WireReader reader(name_, wire);
    const SparsePlaces places = read_sparse(reader, {id_, 0, elements});
    const auto values = reader.take(places.count * sizeof(float));
    reader.end();
    for (size_t i = 0; i < places.count; ++i) {
      if (!std::isfinite(load<float>(values.data() + i * sizeof(float))))
        reader.refuse("value ", i, " is not finite");
    }
    return {places, values.data()};
  }

  std::string name_;
  WireId id_;
};

// Residual += in, encode, then zero what was sent: exact, because values travel as they are.
template <typename Pick>
size_t encode_residual(std::span<const float> in, std::span<float> residual, const Kernels& k,
                       const Pick& encode) {
  for (size_t i = 0; i < in.size(); i += kernels::kChunk)
    k.sum(in.data() + i, residual.data() + i, std::min(kernels::kChunk, in.size() - i));
  const auto [used, picks] = encode(residual);
  for (const uint32_t i : picks) residual[i] = 0;
  return used;
}

// --- topk

struct TopkOptions {
  double ratio = 0.01;
  void list(OptionList& o) {
    o.add("ratio", ratio, "share of each payload's elements that is sent").above(0).at_most(1);
  }
};

class Topk final : public SparseCodec {
 public:
  Topk(const TopkOptions& o, const Kernels& k) : SparseCodec("topk", WireId::topk, k), ratio_(o.ratio) {}
  Traits traits() const override {
    return {.payload = Payload::gather_only, .contractive = true, .bits_per_element = 48 * ratio_};
  }
  size_t wire_bound(size_t elements) const override { return bound(elements, share_of(ratio_, elements)); }

  size_t encode(std::span<const float> in, std::span<std::byte> wire, const Call&, State) const override {
    check_input(in, wire);
    return pick(in, wire).first;
  }
  size_t encode_with_feedback(std::span<const float> in, std::span<float> residual, std::span<std::byte> wire,
                              const Call&, State) const override {
    check_input(in, wire);
    return encode_residual(in, residual, k_, [&](std::span<const float> x) { return pick(x, wire); });
  }

 private:
  std::pair<size_t, std::vector<uint32_t>> pick(std::span<const float> x, std::span<std::byte> wire) const {
    auto picks = largest_k(k_, x, share_of(ratio_, x.size()));
    check_finite(x, picks);
    const size_t used = write_picks(picks, x, wire);
    return {used, std::move(picks)};
  }
  double ratio_;
};

// --- a threshold from a sample

// The bits of the magnitude that about `ratio` of x's elements reach, from `samples` of them, one at random
// of each equal stretch.
uint32_t sampled_threshold(std::span<const float> x, double ratio, size_t samples, uint64_t seed) {
  samples = std::min(samples, x.size());
  std::vector<uint32_t> magnitudes(samples);
  PhiloxStream rng(seed, 1);
  for (size_t i = 0; i < samples; ++i) {
    const size_t begin = i * x.size() / samples, end = (i + 1) * x.size() / samples;
    const size_t at = begin + (uint64_t{rng.next_u32()} * (end - begin) >> 32);
    magnitudes[i] = kernels::bits_of(x[at]) & kernels::kMagnitude;
  }
  const size_t rank = share_of(ratio, samples) - 1;
  std::nth_element(magnitudes.begin(), magnitudes.begin() + static_cast<std::ptrdiff_t>(rank),
                   magnitudes.end(), std::greater<>());
  return magnitudes[rank];
}

// Elements that reach a sampled threshold, at most `most` of them, the largest; at least one that is not
// zero, if there is any.
std::vector<uint32_t> sampled_picks(const Kernels& k, std::span<const float> x, double ratio, double sample,
                                    size_t most, uint64_t seed) {
  if (x.empty()) return {};
  constexpr size_t kFewest = 1024;  // below, the quantile of a sample says little
  const uint32_t threshold = sampled_threshold(x, ratio, std::max(kFewest, share_of(sample, x.size())), seed);
  auto picks = at_least(k, x, std::max(threshold, uint32_t{1}));
  return picks.empty() ? largest_k(k, x, 1) : largest_k_of(x, std::move(picks), most);
}

// --- graddrop

struct GraddropOptions {
  double ratio = 0.001, sample = 0.01;
  void list(OptionList& o) {
    o.add("ratio", ratio, "share of each payload's elements that is meant to be sent").above(0).at_most(1);
    o.add("sample", sample, "share of the elements that the threshold is read from, at least 1024")
        .above(0)
        .at_most(1);
  }
};

class Graddrop final : public SparseCodec {
 public:
  Graddrop(const GraddropOptions& o, const Kernels& k)
      : SparseCodec("graddrop", WireId::graddrop, k), ratio_(o.ratio), sample_(o.sample) {}
  Traits traits() const override {
    return {.payload = Payload::gather_only,
            .contractive = true,
            .fixed_size = false,
            .bits_per_element = 48 * ratio_};
  }
  size_t wire_bound(size_t elements) const override { return bound(elements, most(elements)); }
  size_t encode(std::span<const float> in, std::span<std::byte> wire, const Call& call,
                State) const override {
    check_input(in, wire);
    return pick(in, wire, call).first;
  }
  size_t encode_with_feedback(std::span<const float> in, std::span<float> residual, std::span<std::byte> wire,
                              const Call& call, State) const override {
    check_input(in, wire);
    return encode_residual(in, residual, k_, [&](std::span<const float> x) { return pick(x, wire, call); });
  }

 private:
  // The sample's threshold errs; what it would let through beyond this stays in the residual.
  size_t most(size_t elements) const { return std::min(elements, 2 * share_of(ratio_, elements)); }
  std::pair<size_t, std::vector<uint32_t>> pick(std::span<const float> x, std::span<std::byte> wire,
                                                const Call& call) const {
    auto picks = sampled_picks(k_, x, ratio_, sample_, most(x.size()), call.seed);
    check_finite(x, picks);
    const size_t used = write_picks(picks, x, wire);
    return {used, std::move(picks)};
  }
  double ratio_, sample_;
};

// --- dgc

struct DgcOptions {
  double ratio = 0.001, sample = 0.01, momentum = 0;
  bool nesterov = false;
  int64_t warmup = 0;
  void list(OptionList& o) {
    o.add("ratio", ratio, "share of each payload's elements that is sent at most").above(0).at_most(1);
    o.add("sample", sample, "share of the elements that the threshold is read from, at least 1024")
        .above(0)
        .at_most(1);
    o.add("momentum", momentum, "of the velocity that is accumulated; train puts optim.momentum here")
        .at_least(0);
    o.add("nesterov", nesterov, "look ahead along the velocity; train puts optim.nesterov here");
    o.add("warmup", warmup, "steps over which the share falls from 1/4 to ratio").at_least(0);
  }
};

class Dgc final : public SparseCodec {
 public:
  Dgc(const DgcOptions& o, const Kernels& k) : SparseCodec("dgc", WireId::dgc, k), o_(o) {}
  Traits traits() const override {
    return {.payload = Payload::gather_only,
            .stateful = true,
            .fixed_size = false,
            .bits_per_element = 48 * o_.ratio};
  }
  std::vector<std::string> state_names() const override { return {"velocity", "accumulated"}; }
  size_t wire_bound(size_t elements) const override { return bound(elements, share_of(ratio(1), elements)); }

  // u = momentum u + g; v += u; send the largest of v; both forget what was sent (momentum factor masking).
  size_t encode(std::span<const float> in, std::span<std::byte> wire, const Call& call,
                State state) const override {
    check_input(in, wire);
    std::vector<float> fresh(state.empty() ? 2 * in.size() : 0);
    const std::span<float> u = state.empty() ? std::span(fresh).first(in.size()) : state[0];
    const std::span<float> v = state.empty() ? std::span(fresh).last(in.size()) : state[1];
    const auto momentum = static_cast<float>(o_.momentum);
    k_.velocity(in.data(), u.data(), v.data(), in.size(), momentum, o_.nesterov);
    const double share = ratio(call.step);
    const auto picks = sampled_picks(k_, v, share, o_.sample, share_of(share, in.size()), call.seed);
    check_finite(v, picks);
    const size_t used = write_picks(picks, v, wire);
    for (const uint32_t i : picks) u[i] = v[i] = 0;
    return used;
  }

 private:
  double ratio(uint64_t step) const {
    constexpr double kStart = 0.25;
    const double done = static_cast<double>(std::max<uint64_t>(step, 1) - 1) /
                        static_cast<double>(std::max<int64_t>(o_.warmup, 1));
    if (o_.warmup == 0 || done >= 1 || o_.ratio >= kStart) return o_.ratio;
    return kStart * std::pow(o_.ratio / kStart, done);
  }
  DgcOptions o_;
};

// --- adacomp

struct AdacompOptions {
  int64_t bin = 500;
  void list(OptionList& o) {
    o.add("bin", bin, "elements that compete with each other").at_least(1).at_most(1 << 20);
  }
};

// In each bin the elements travel that the newest gradient would lift to the bin's largest accumulated
// magnitude, as their sign times one scale.
class Adacomp final : public Codec {
 public:
  Adacomp(const AdacompOptions& o, const Kernels& k) : bin_(static_cast<size_t>(o.bin)), k_(k) {}
  std::string_view name() const override { return "adacomp"; }
  Traits traits() const override {
    // A few of each bin travel; the number depends on the data.
    return {.payload = Payload::gather_only,
            .stateful = true,
            .fixed_size = false,
            .bits_per_element = 4 * 17.0 / static_cast<double>(bin_)};
  }
  std::vector<std::string> state_names() const override { return {"residual"}; }
  size_t wire_bound(size_t elements) const override { return used_bytes(elements, elements); }

  size_t encode(std::span<const float> in, std::span<std::byte> wire, const Call&,
                State state) const override {
    check_length(name(), in.size());
    check_room(name(), wire, wire_bound(in.size()));
    std::vector<float> fresh(state.empty() ? in.size() : 0);
    const std::span<float> total = state.empty() ? std::span(fresh) : state[0];
    for (size_t i = 0; i < in.size(); ++i) total[i] += in[i];
    if (!finite(total)) refuse_not_finite(name(), total.data(), total.size(), 0);
    const auto [picks, scale] = pick(in, total);
    std::byte* after = write_sparse({WireId::adacomp, 0, in.size()}, picks, wire);
    store(after, scale);
    std::fill_n(after + sizeof(float), (picks.size() + 7) / 8, std::byte{0});
    for (size_t i = 0; i < picks.size(); ++i) {
      float& v = total[picks[i]];
      if (v < 0) after[sizeof(float) + i / 8] |= std::byte{1} << (i % 8);
      v -= v < 0 ? -scale : scale;
    }
    return used_bytes(in.size(), picks.size());
  }
  void decode(std::span<const std::byte> wire, std::span<float> out) const override {
    const Read r = read(wire, out.size());
    std::fill(out.begin(), out.end(), 0.0f);
    r.places.for_each([&](size_t at, size_t index) { out[index] = r.value(at); });
  }
  void decode_add(std::span<const std::byte> wire, std::span<float> out) const override {
    const Read r = read(wire, out.size());
    r.places.for_each([&](size_t at, size_t index) { out[index] += r.value(at); });
  }

 private:
  struct Read {
    SparsePlaces places;
    float scale;
    const std::byte* signs;
    float value(size_t at) const {
      return (signs[at / 8] >> (at % 8) & std::byte{1}) != std::byte{0} ? -scale : scale;
    }
  };
  static size_t used_bytes(size_t elements, size_t k) {
    return sparse_bytes(elements, k) + sizeof(float) + (k + 7) / 8;
  }

  bool finite(std::span<const float> x) const {
    for (size_t i = 0; i < x.size(); i += kernels::kChunk) {
      const size_t n = std::min(kernels::kChunk, x.size() - i);
      if (k_.largest(x.data() + i, n) >= kernels::kInfinity) return false;
    }
    return true;
  }

  std::pair<std::vector<uint32_t>, float> pick(std::span<const float> in,
                                               std::span<const float> total) const {
    std::vector<uint32_t> picks;
    double sum = 0;
    for (size_t begin = 0; begin < in.size(); begin += bin_) {
      const size_t end = std::min(in.size(), begin + bin_);
      float most = 0;
      for (size_t i = begin; i < end; ++i) most = std::max(most, kernels::magnitude(total[i]));
      sum += most;
      for (size_t i = begin; i < end && most > 0; ++i) {
        if (kernels::magnitude(total[i] + in[i]) >= most) picks.push_back(static_cast<uint32_t>(i));
      }
    }
    const size_t bins = std::max<size_t>(1, (in.size() + bin_ - 1) / bin_);
    return {std::move(picks), static_cast<float>(sum / static_cast<double>(bins))};
  }

  Read read(std::span<const std::byte> wire, size_t elements) const {
    check_length(name(), elements);
    WireReader reader(name(), wire);
    Read r;
    r.places = read_sparse(reader, {WireId::adacomp, 0, elements});
    r.scale = reader.number<float>();
    r.signs = reader.take((r.places.count + 7) / 8).data();
    reader.end();
    if (!std::isfinite(r.scale) || r.scale < 0) reader.refuse("a scale of ", r.scale);
    return r;
  }

  size_t bin_;
  const Kernels& k_;
};

}  // namespace

std::vector<CodecKind> sparse_kinds(const Kernels& k) {
  auto topk = kind_of<TopkOptions>("topk", "the largest magnitudes of each payload",
                                   [&k](const TopkOptions& o) { return std::make_shared<Topk>(o, k); });
  auto graddrop =
      kind_of<GraddropOptions>("graddrop", "what reaches a threshold read from a sample",
                               [&k](const GraddropOptions& o) { return std::make_shared<Graddrop>(o, k); });
  auto dgc =
      kind_of<DgcOptions>("dgc", "deep gradient compression: sparse, with momentum correction and masking",
                          [&k](const DgcOptions& o) { return std::make_shared<Dgc>(o, k); });
  auto adacomp =
      kind_of<AdacompOptions>("adacomp", "signs of what stands out in its bin",
                              [&k](const AdacompOptions& o) { return std::make_shared<Adacomp>(o, k); });
  dgc.own_feedback = adacomp.own_feedback = true;
  return {topk, graddrop, dgc, adacomp};
}

}  // namespace trireme::codec
