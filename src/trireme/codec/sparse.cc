#include "trireme/codec/sparse.h"

#include <algorithm>

#include "trireme/codec/kernels/element.h"

namespace trireme::codec {

std::byte* write_sparse(const Header& header, std::span<const uint32_t> picks, std::span<std::byte> wire) {
  write(header, wire.data());
  store(wire.data() + Header::kBytes, static_cast<uint32_t>(picks.size()));
  std::byte* run_counts = wire.data() + Header::kBytes + sizeof(uint32_t);
  std::byte* places = run_counts + runs_of(header.elements) * sizeof(uint32_t);
  size_t next = 0;
  for (size_t run = 0; run < runs_of(header.elements); ++run) {
    const size_t begin = next;
    for (; next < picks.size() && picks[next] / kRun == run; ++next)
      store(places + next * sizeof(uint16_t), static_cast<uint16_t>(picks[next] % kRun));
    store(run_counts + run * sizeof(uint32_t), static_cast<uint32_t>(next - begin));
  }
  return places + picks.size() * sizeof(uint16_t);
}

SparsePlaces read_sparse(WireReader& reader, const Header& header) {
  reader.header(header);
  SparsePlaces s;
  s.count = reader.number<uint32_t>();
  s.runs = reader.take(runs_of(header.elements) * sizeof(uint32_t));
  s.places = reader.take(s.count * sizeof(uint16_t));
  uint64_t listed = 0;
  for (size_t run = 0; run < runs_of(header.elements); ++run)
    listed += load<uint32_t>(s.runs.data() + run * sizeof(uint32_t));
  if (listed != s.count) reader.refuse("a payload of ", s.count, " places that lists ", listed);
  int64_t last = -1;
  s.for_each([&](size_t, size_t index) {
    if (static_cast<int64_t>(index) <= last || index >= header.elements)
      reader.refuse("place ", index, " after place ", last, " of ", header.elements);
    last = static_cast<int64_t>(index);
  });
  return s;
}

std::vector<uint32_t> largest_k_of(std::span<const float> x, std::vector<uint32_t> candidates, size_t k) {
  const auto before = [&](uint32_t a, uint32_t b) {
    const uint32_t left = kernels::bits_of(x[a]) & kernels::kMagnitude;
    const uint32_t right = kernels::bits_of(x[b]) & kernels::kMagnitude;
    return left != right ? left > right : a < b;
  };
  if (k < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(k),
                     candidates.end(), before);
    candidates.resize(k);
    std::sort(candidates.begin(), candidates.end());
  }
  return candidates;
}

std::vector<uint32_t> at_least(const kernels::Kernels& kernels, std::span<const float> x, uint32_t least) {
  std::vector<uint32_t> picks;
  uint32_t found[kernels::kChunk + 16];
  for (size_t i = 0; i < x.size(); i += kernels::kChunk) {
    const size_t n = std::min(kernels::kChunk, x.size() - i);
    const size_t count = kernels.select(x.data() + i, n, least, static_cast<uint32_t>(i), found);
    picks.insert(picks.end(), found, found + count);
  }
  return picks;
}

namespace {

// A magnitude's exponent and upper mantissa bits order it; the bins are few enough for the cache.
constexpr int kBinShift = 20;
constexpr size_t kBins = size_t{1} << (31 - kBinShift);

// The lowest bits of a bin such that it and those above hold at least k elements.
uint32_t bound_of_largest(std::span<const float> x, size_t k) {
  // Four tables by turns: a count is not read again right after it was written.
  std::vector<uint32_t> tables(4 * kBins);
  for (size_t i = 0; i < x.size(); ++i)
    ++tables[i % 4 * kBins + ((kernels::bits_of(x[i]) & kernels::kMagnitude) >> kBinShift)];
  size_t bin = kBins, held = 0;
  while (held < k && bin > 0) {
    --bin;
    for (size_t t = 0; t < 4; ++t) held += tables[t * kBins + bin];
  }
  return static_cast<uint32_t>(bin << kBinShift);
}

}  // namespace

std::vector<uint32_t> largest_k(const kernels::Kernels& kernels, std::span<const float> x, size_t k) {
  return largest_k_of(x, at_least(kernels, x, bound_of_largest(x, k)), k);
}

}  // namespace trireme::codec
