#pragma once
// Sparse payloads: which elements, then something per element. After the header: u32 count k, then u32 counts
// of each run of 65536 elements, k x u16 places within their run (rising), and k values.
#include <vector>

#include "trireme/codec/codec.h"
#include "trireme/codec/kernels/kernels.h"
#include "trireme/codec/wire.h"

namespace trireme::codec {

constexpr size_t kRun = 65536;
inline size_t runs_of(size_t elements) {
  return (elements + kRun - 1) / kRun;
}
// Header, count, runs and places of k elements.
inline size_t sparse_bytes(size_t elements, size_t k) {
  return Header::kBytes + sizeof(uint32_t) * (1 + runs_of(elements)) + k * sizeof(uint16_t);
}

// `picks`: rising indices. Returns where the values belong.
std::byte* write_sparse(const Header& header, std::span<const uint32_t> picks, std::span<std::byte> wire);

// Checked: rising, within the payload's length.
struct SparsePlaces {
  size_t count = 0;
  std::span<const std::byte> runs, places;
  template <typename Body>
  void for_each(const Body& body) const {  // body(place among the picks, index)
    size_t next = 0;
    for (size_t run = 0; run < runs.size() / sizeof(uint32_t); ++run) {
      const auto end = next + load<uint32_t>(runs.data() + run * sizeof(uint32_t));
      for (; next < end; ++next)
        body(next, run * kRun + load<uint16_t>(places.data() + next * sizeof(uint16_t)));
    }
  }
};
SparsePlaces read_sparse(WireReader& reader, const Header& header);

// The k largest magnitudes of x (the earlier one where equal), rising indices; k <= x.size(). NaN and
// infinity count as the largest.
std::vector<uint32_t> largest_k(const kernels::Kernels& kernels, std::span<const float> x, size_t k);
// All whose magnitude's bits are at least `least`, rising.
std::vector<uint32_t> at_least(const kernels::Kernels& kernels, std::span<const float> x, uint32_t least);
// As above, among `candidates` (rising indices).
std::vector<uint32_t> largest_k_of(std::span<const float> x, std::vector<uint32_t> candidates, size_t k);

}  // namespace trireme::codec
