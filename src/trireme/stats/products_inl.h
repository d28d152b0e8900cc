#pragma once
// Sums of products of 2-bit codes by byte shuffles, included once per instruction set (see kernels_inl.h).
//
// The codes of kGroupRows rows of a column make an index of 2 kGroupRows bits. With the index of column j
// fixed, the sum over those rows of code_i code_j depends on the index of column i alone: a table of
// 4^kGroupRows bytes, small enough for a register, and there are only 4^kGroupRows such tables, known
// beforehand. So one shuffle gives the sums of one column j with a vector of columns i, and one addition of
// bytes takes them in.
//
// Lanes: kBytes (columns i of a vector), kGroupRows, kBlock (columns j held in registers); zero, load, table
// (the one of a stored index), look_up, add (bytes), even and odd (bytes widened to 16 bits), add_to;
// index_rows and index_columns, which write kWordAlign words of `count` columns, a multiple of kBytes, in
// Indices' two layouts; the columns j's are shifted by kIndexShift, towards the address of a table.
#include "trireme/stats/kernels.h"

namespace trireme::stats {

// sums[a][b]: the sum over a group of the products of the codes in indices a and b. An index holds the low
// bits of its codes, then the high bits.
template <size_t kGroupRows>
struct ProductTables {
  static constexpr size_t kIndices = size_t{1} << (2 * kGroupRows);
  alignas(64) uint8_t sums[kIndices][kIndices] = {};
  static constexpr unsigned code(size_t index, size_t row) {
    return static_cast<unsigned>(2 * (index >> (kGroupRows + row) & 1) + (index >> row & 1));
  }
  constexpr ProductTables() {
    for (size_t a = 0; a < kIndices; ++a)
      for (size_t b = 0; b < kIndices; ++b)
        for (size_t row = 0; row < kGroupRows; ++row)
          sums[a][b] = static_cast<uint8_t>(sums[a][b] + code(a, row) * code(b, row));
  }
};

template <typename V>
struct CodeProducts {
  static constexpr size_t kChunkWords = kWordAlign;  // a panel's indices then fit the first-level cache
  static constexpr size_t kGroups = kChunkWords * ((64 + V::kGroupRows - 1) / V::kGroupRows);
  static constexpr size_t kPanel = 3 * V::kBytes;
  static constexpr size_t kPanels = kCodeBlock / kPanel;
  static constexpr size_t kBlocks = kCodeBlock / V::kBlock;
  static constexpr size_t kAdditions = 255 / (9 * V::kGroupRows);  // of a group's sums to a byte
  static_assert(kGroups / kAdditions + 1 < 65535 / 255, "sums of a chunk fit 16 bits");
  static_assert(kPanels * kPanel == kCodeBlock && kBlocks * V::kBlock == kCodeBlock);

  // By group: the columns i as vectors, the columns j in blocks.
  struct Indices {
    alignas(64) uint8_t rows[kPanels][kGroups][kPanel];
    alignas(64) uint8_t columns[kBlocks][kGroups][V::kBlock];
  };

  // Adds the sums of a chunk for N vectors of columns i and one block of columns j.
  template <size_t N>
  static void add_block(const uint8_t (*rows)[kPanel], const uint8_t (*columns)[V::kBlock], uint32_t* out) {
    constexpr size_t kHalf = N * V::kBytes / 2;
    alignas(64) uint16_t even[V::kBlock][kHalf] = {}, odd[V::kBlock][kHalf] = {};
    for (size_t group = 0; group < kGroups; group += kAdditions) {
      const size_t end = group + kAdditions < kGroups ? group + kAdditions : kGroups;
      V sums[V::kBlock][N];
      for (size_t j = 0; j < V::kBlock; ++j)
        for (size_t v = 0; v < N; ++v) sums[j][v] = V::zero();
      for (size_t g = group; g < end; ++g)
#pragma GCC unroll 8
        for (size_t j = 0; j < V::kBlock; ++j) {
          const V table = V::table(columns[g][j]);
#pragma GCC unroll 3
          for (size_t v = 0; v < N; ++v)
            sums[j][v] = V::add(sums[j][v], V::look_up(table, V::load(&rows[g][v * V::kBytes])));
        }
      for (size_t j = 0; j < V::kBlock; ++j)
        for (size_t v = 0; v < N; ++v) {
          sums[j][v].even().add_to(&even[j][v * V::kBytes / 2]);
          sums[j][v].odd().add_to(&odd[j][v * V::kBytes / 2]);
        }
    }
    for (size_t j = 0; j < V::kBlock; ++j)
      for (size_t k = 0; k < kHalf; ++k) {
        out[j * kCodeBlock + 2 * k] += even[j][k];
        out[j * kCodeBlock + 2 * k + 1] += odd[j][k];
      }
  }

  static size_t whole(size_t columns) {
    return (columns + V::kBytes - 1) / V::kBytes * V::kBytes;
  }

  static void run(const CodeBlock& rows, const CodeBlock& columns, size_t words, uint32_t* out) {
    auto* indices = static_cast<Indices*>(_mm_malloc(sizeof(Indices), 64));  // raw: see kernels_inl.h
    const bool same = rows.high == columns.high;
    for (size_t first = 0; first < words; first += kChunkWords) {
      V::index_rows(rows, first, whole(rows.columns), *indices);
      V::index_columns(columns, first, whole(columns.columns), *indices);
      for (size_t j = 0; j < columns.columns; j += V::kBlock) {
        const size_t end =
            same && j + V::kBlock < rows.columns ? j + V::kBlock : rows.columns;  // of the i <= j
        for (size_t i = 0; i < end; i += kPanel) {
          const auto* panel = indices->rows[i / kPanel];
          const auto* block = indices->columns[j / V::kBlock];
          uint32_t* to = &out[j * kCodeBlock + i];
          if (end - i <= V::kBytes)
            add_block<1>(panel, block, to);
          else if (end - i <= 2 * V::kBytes)
            add_block<2>(panel, block, to);
          else
            add_block<3>(panel, block, to);
        }
      }
    }
    _mm_free(indices);
  }
};

}  // namespace trireme::stats
