#include "trireme/codec/block_codec.h"

#include <algorithm>
#include <cmath>

namespace trireme::codec {

using kernels::Into;
using kernels::kChunk;
using kernels::Kernels;

float norm(const Kernels& k, const float* x, size_t n, float largest, double divisor) {
  if (largest == 0) return 0;
  const auto power = [](int exponent) {
    return kernels::float_of(static_cast<uint32_t>(127 + exponent) << 23);
  };
  const int exponent = std::clamp(static_cast<int>(kernels::bits_of(largest) >> 23) - 127, -126, 126);
  const float scale = power(-exponent);
  double sum = 0;
  for (size_t i = 0; i < n; i += kChunk) sum += k.square_sum(x + i, std::min(kChunk, n - i), scale);
  return static_cast<float>(std::sqrt(sum / divisor) * double{power(exponent)});
}

size_t checked_block(const std::string& codec, int64_t block) {
  if (block % static_cast<int64_t>(kernels::kTile) != 0)
    fail(ErrorCode::usage, codec, ".block = ", block, ": must be a multiple of ", kernels::kTile, ", or 0");
  return static_cast<size_t>(block);
}

double number_bits(const Scheme& s) {
  return s.block == 0 ? 0 : 32.0 * s.numbers / static_cast<double>(s.block);
}

void refuse_not_finite(std::string_view codec, const float* x, size_t n, size_t first) {
  size_t i = 0;
  while (i < n && std::isfinite(x[i])) ++i;
  if (i == n)
    fail(ErrorCode::diverged, "codec ", codec, ": the values from element ", first,
         " on are too large to add up");
  fail(ErrorCode::diverged, "codec ", codec, ": element ", first + i, " is ",
       std::isnan(x[i]) ? "NaN" : "infinite");
}

namespace {

class BlockCodec final : public Codec {
 public:
  BlockCodec(Scheme scheme, const Kernels& k) : scheme_(std::move(scheme)), k_(k) {}

  std::string_view name() const override { return scheme_.name; }
  Traits traits() const override { return scheme_.traits; }

  size_t wire_bound(size_t elements) const override {
    return codes_at(elements) + kernels::code_bytes(scheme_.quantiser.bits, elements);
  }

  size_t encode(std::span<const float> in, std::span<std::byte> wire, const Call& call,
                State) const override {
    const Writer to = begin(in.size(), wire, call);
    for_blocks(in.size(), [&](size_t at, size_t n) { write_block(to, in.data() + at, at, n); });
    return wire_bound(in.size());
  }

  size_t encode_with_feedback(std::span<const float> in, std::span<float> residual, std::span<std::byte> wire,
                              const Call& call, State) const override {
    const Writer to = begin(in.size(), wire, call);
    for_blocks(in.size(), [&](size_t at, size_t n) {
      float* r = residual.data() + at;
      const BlockNumbers numbers = measure_block(to, r, at, n, first_of_sum(in.data() + at, r, n));
      for_chunks(n, [&](size_t i, size_t m) {
        k_.quantise_with_feedback(to.quantiser, r + i, m, numbers.a, numbers.b, numbers.wire[0],
                                  gap(to.quantiser, numbers.wire), at + i, codes_of(to, at + i));
      });
    });
    return wire_bound(in.size());
  }

  void decode(std::span<const std::byte> wire, std::span<float> out) const override {
    read(wire, out, Into::set);
  }
  void decode_add(std::span<const std::byte> wire, std::span<float> out) const override {
    read(wire, out, Into::add);
  }

 private:
  using Quantiser = kernels::Quantiser;
  struct Writer {
    Quantiser quantiser;
    std::byte* numbers;
    uint8_t* codes;
  };
  static constexpr size_t kDitherBytes = 24;  // u64 seed, u64 shared seed, u32 worker, u32 workers
  static constexpr size_t kHipressTernGradBytes = 10;

  size_t blocks(size_t elements) const {
    return scheme_.block == 0 ? (elements > 0 ? 1 : 0) : (elements + scheme_.block - 1) / scheme_.block;
  }
  size_t numbers_at() const {
    if (scheme_.layout == Scheme::Layout::hipress_tbq) return 0;
    if (scheme_.layout == Scheme::Layout::hipress_terngrad) return 2;
    return Header::kBytes + (scheme_.quantiser.subtractive ? kDitherBytes : 0);
  }
  size_t codes_at(size_t elements) const {
    if (scheme_.layout == Scheme::Layout::hipress_terngrad) return kHipressTernGradBytes;
    return numbers_at() + blocks(elements) * static_cast<size_t>(scheme_.numbers) * sizeof(float);
  }
  Header header(size_t elements) const { return {scheme_.id, scheme_.tag, elements}; }
  uint8_t missing_in_last_byte(size_t elements) const {
    const size_t per_byte = 8 / scheme_.quantiser.bits;
    return static_cast<uint8_t>((per_byte - elements % per_byte) % per_byte);
  }

  template <typename Body>
  void for_blocks(size_t elements, const Body& body) const {
    const size_t block = scheme_.block == 0 ? elements : scheme_.block;
    for (size_t at = 0; at < elements; at += block) body(at, std::min(block, elements - at));
  }
  template <typename Body>
  static void for_chunks(size_t n, const Body& body) {
    for (size_t i = 0; i < n; i += kChunk) body(i, std::min(kChunk, n - i));
  }

  static kernels::Random random(uint64_t seed, uint64_t shared, uint32_t worker, uint32_t workers) {
    return {{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
            {static_cast<uint32_t>(shared), static_cast<uint32_t>(shared >> 32)},
            worker,
            workers,
            1.0f / static_cast<float>(workers)};
  }

  Writer begin(size_t elements, std::span<std::byte> wire, const Call& call) const {
    check_length(name(), elements);
    check_room(name(), wire, wire_bound(elements));
    const bool stratified =
        scheme_.quantiser.random.strata == 0 && call.workers > 1;  // 0: as many as workers
    const uint32_t workers = stratified ? call.workers : 1, worker = stratified ? call.worker : 0;
    Writer to{scheme_.quantiser, wire.data() + numbers_at(),
              reinterpret_cast<uint8_t*>(wire.data() + codes_at(elements))};
    to.quantiser.random = random(call.seed, call.shared_seed, worker, workers);
    if (scheme_.layout == Scheme::Layout::hipress_tbq) return to;
    if (scheme_.layout == Scheme::Layout::hipress_terngrad) {
      std::memset(wire.data(), 0, kHipressTernGradBytes);
      store(wire.data(), static_cast<uint8_t>(scheme_.quantiser.bits));
      store(wire.data() + 1, missing_in_last_byte(elements));
      return to;
    }
    write(header(elements), wire.data());
    if (scheme_.quantiser.subtractive) {
      std::byte* dither = wire.data() + Header::kBytes;
      store(dither, call.seed);
      store(dither + 8, call.shared_seed);
      store(dither + 16, worker);
      store(dither + 20, workers);
    }
    return to;
  }

  static uint8_t* codes_of(const Writer& to, size_t element) {
    return to.codes + element * to.quantiser.bits / 8;
  }
  // The grid's step, for dequantise.
  static float gap(const Quantiser& q, const float* numbers) {
    if (q.coder == kernels::kMinMax) return (numbers[1] - numbers[0]) / q.levels;
    return q.coder == kernels::kMagnitudes ? numbers[0] / q.levels : 0;
  }

  // Joins what `largest` or `magnitudes` say of each chunk.
  template <typename Largest, typename Magnitudes>
  float joined(size_t n, const Largest& largest, const Magnitudes& magnitudes) const {
    if (scheme_.first == Scheme::First::largest) {
      uint32_t most = 0;
      for_chunks(n, [&](size_t i, size_t m) { most = std::max(most, largest(i, m)); });
      return kernels::float_of(most);
    }
    if (n <= kChunk) return magnitudes(0, n) / static_cast<float>(n);
    double sum = 0;
    for_chunks(n, [&](size_t i, size_t m) { sum += magnitudes(i, m); });
    return static_cast<float>(sum / static_cast<double>(n));
  }
  float first_of(const float* x, size_t n) const {
    if (scheme_.first == Scheme::First::nothing) return 0;
    return joined(
        n, [&](size_t i, size_t m) { return k_.largest(x + i, m); },
        [&](size_t i, size_t m) { return k_.magnitude_sum(x + i, m); });
  }
  // residual += in, and what is measured first of the sum.
  float first_of_sum(const float* in, float* residual, size_t n) const {
    if (scheme_.first == Scheme::First::nothing) {
      for_chunks(n, [&](size_t i, size_t m) { k_.sum(in + i, residual + i, m); });
      return 0;
    }
    return joined(
        n, [&](size_t i, size_t m) { return k_.sum_and_largest(in + i, residual + i, m); },
        [&](size_t i, size_t m) { return k_.sum_and_magnitudes(in + i, residual + i, m); });
  }

  // Writes the block's numbers.
  BlockNumbers measure_block(const Writer& to, const float* x, size_t at, size_t n, float first) const {
    BlockNumbers numbers;
    numbers.wire[0] = numbers.a = scheme_.fixed;
    if (scheme_.measure != nullptr) {
      numbers = scheme_.measure(k_, scheme_, x, n, first);
      if (!std::isfinite(numbers.wire[0]) || !std::isfinite(numbers.wire[1]))
        refuse_not_finite(name(), x, n, at);
    }
    const size_t block = scheme_.block == 0 ? 0 : at / scheme_.block;
    const auto count = static_cast<size_t>(scheme_.numbers);
    std::memcpy(to.numbers + block * count * sizeof(float), numbers.wire, count * sizeof(float));
    return numbers;
  }

  void write_block(const Writer& to, const float* x, size_t at, size_t n) const {
    const BlockNumbers numbers = measure_block(to, x, at, n, first_of(x, n));
    for_chunks(n, [&](size_t i, size_t m) {
      k_.quantise(to.quantiser, x + i, m, numbers.a, numbers.b, at + i, codes_of(to, at + i));
    });
  }

  void read_block(const Quantiser& q, const uint8_t* codes, const float* numbers, size_t at, size_t n,
                  float* out, Into into) const {
    for_chunks(n, [&](size_t i, size_t m) {
      k_.dequantise(q, codes + (at + i) * q.bits / 8, m, numbers[0], gap(q, numbers), at + i, out + i, into);
    });
  }

  Quantiser read_header(WireReader& reader, size_t elements) const {
    Quantiser q = scheme_.quantiser;
    if (scheme_.layout == Scheme::Layout::hipress_tbq) return q;
    if (scheme_.layout == Scheme::Layout::hipress_terngrad) {
      const auto bits = reader.number<uint8_t>(), tail = reader.number<uint8_t>();
      if (bits != q.bits) reader.refuse("a payload of ", int{bits}, "-bit codes where ", q.bits, " belong");
      if (tail != missing_in_last_byte(elements)) reader.refuse("a payload of another length");
      return q;
    }
    reader.header(header(elements));
    if (!q.subtractive) return q;
    const auto seed = reader.number<uint64_t>(), shared = reader.number<uint64_t>();
    const auto worker = reader.number<uint32_t>(), workers = reader.number<uint32_t>();
    if (workers == 0 || workers > UINT16_MAX || worker >= workers)
      reader.refuse("worker ", worker, " of ", workers);
    q.random = random(seed, shared, worker, workers);
    return q;
  }

  void check_numbers(const WireReader& reader, const float* numbers) const {
    const bool ordered = scheme_.numbers == 2 ? numbers[0] <= numbers[1] : numbers[0] >= 0;
    if (!std::isfinite(numbers[0]) || !std::isfinite(numbers[1]) || !ordered)
      reader.refuse("a block's numbers are ", numbers[0], ", ", numbers[1]);
  }

  void read(std::span<const std::byte> wire, std::span<float> out, Into into) const {
    check_length(name(), out.size());
    WireReader reader(name(), wire);
    const Quantiser q = read_header(reader, out.size());
    const auto count = static_cast<size_t>(scheme_.numbers);
    // HiPress's header has room for its two numbers even where there is no block.
    const size_t listed = scheme_.layout == Scheme::Layout::hipress_terngrad ? 1 : blocks(out.size());
    const auto listed_numbers = reader.take(listed * count * sizeof(float));
    const auto codes = reader.take(kernels::code_bytes(q.bits, out.size()));
    reader.end();
    const auto block_numbers = [&](size_t at, float* numbers) {
      const size_t block = scheme_.block == 0 ? 0 : at / scheme_.block;
      if (count > 0)
        std::memcpy(numbers, listed_numbers.data() + block * count * sizeof(float), count * sizeof(float));
    };
    for_blocks(out.size(), [&](size_t at, size_t) {  // all, before anything is written
      float numbers[2] = {scheme_.fixed, 0};
      block_numbers(at, numbers);
      check_numbers(reader, numbers);
    });
    for_blocks(out.size(), [&](size_t at, size_t n) {
      float numbers[2] = {scheme_.fixed, 0};
      block_numbers(at, numbers);
      read_block(q, reinterpret_cast<const uint8_t*>(codes.data()), numbers, at, n, out.data() + at, into);
    });
  }

  const Scheme scheme_;
  const Kernels& k_;
};

}  // namespace

CodecPtr make_block_codec(Scheme scheme, const Kernels& kernels) {
  TRIREME_CHECK(scheme.block % kernels::kTile == 0, scheme.name, ": blocks of ", scheme.block);
  return std::make_shared<BlockCodec>(std::move(scheme), kernels);
}

}  // namespace trireme::codec
