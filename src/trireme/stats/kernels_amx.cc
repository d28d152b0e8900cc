// Compiled with -mamx-tile -mamx-int8 and the flags of kernels_avx512.cc. Codes become bytes, and AMX's tiles
// multiply 16 columns i with 16 columns j over 64 rows an instruction.
#include <immintrin.h>

#include "trireme/stats/kernels.h"

namespace trireme::stats {
namespace {

constexpr size_t kTile = 16;  // columns of a tile, and 32-bit elements of a row of one
constexpr size_t kTiles = kCodeBlock / kTile;
constexpr size_t kChunkWords = 16;  // codes of both blocks, 200 KB each, lie in the second-level cache

// [tile][word]: a tile of the i side has a row for each column, its 64 codes in order; one of the j side is
// the same as a matrix of 32-bit elements, transposed.
struct Codes {
  alignas(64) uint8_t rows[kTiles][kChunkWords][kTile][64];
  alignas(64) uint8_t columns[kTiles][kChunkWords][kTile][64];
};

struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

__m512i codes_of(uint64_t high, uint64_t low) {
  return _mm512_or_si512(_mm512_maskz_set1_epi8(high, 2), _mm512_maskz_set1_epi8(low, 1));
}

// 16 x 16 elements of 32 bits.
void transpose(__m512i* r) {
  __m512i t[16];
  for (size_t k = 0; k < 8; ++k) {
    t[2 * k] = _mm512_unpacklo_epi32(r[2 * k], r[2 * k + 1]);
    t[2 * k + 1] = _mm512_unpackhi_epi32(r[2 * k], r[2 * k + 1]);
  }
  for (size_t k = 0; k < 4; ++k)
    for (size_t c = 0; c < 2; ++c) {
      r[4 * k + 2 * c] = _mm512_unpacklo_epi64(t[4 * k + c], t[4 * k + c + 2]);
      r[4 * k + 2 * c + 1] = _mm512_unpackhi_epi64(t[4 * k + c], t[4 * k + c + 2]);
    }
  // r[4 k + c]: elements c, 4 + c, 8 + c, 12 + c of rows 4 k to 4 k + 3, one quarter each.
  for (size_t c = 0; c < 4; ++c) {
    const __m512i a = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88),
                  b = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
    const __m512i d = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88),
                  e = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    t[c] = _mm512_shuffle_i32x4(a, d, 0x88);
    t[8 + c] = _mm512_shuffle_i32x4(a, d, 0xdd);
    t[4 + c] = _mm512_shuffle_i32x4(b, e, 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(b, e, 0xdd);
  }
  for (size_t k = 0; k < 16; ++k) r[k] = t[k];
}

void expand(const CodeBlock& block, size_t first, size_t words, bool transposed,
            uint8_t (*out)[kChunkWords][kTile][64]) {
  for (size_t tile = 0; tile < (block.columns + 2 * kTile - 1) / (2 * kTile) * 2;
       ++tile)  // add_tiles takes pairs
    for (size_t w = 0; w < words; ++w) {
      __m512i codes[kTile];
      for (size_t c = 0; c < kTile; ++c)
        codes[c] = codes_of(block.high[tile * kTile + c][first + w], block.low[tile * kTile + c][first + w]);
      if (transposed) transpose(codes);
      for (size_t c = 0; c < kTile; ++c) _mm512_store_si512(out[tile][w][c], codes[c]);
    }
}

// Two by two tiles; the tile registers need numbers known to the compiler.
void add_tiles(const uint8_t (*rows)[kChunkWords][kTile][64],
               const uint8_t (*columns)[kChunkWords][kTile][64], size_t words, uint32_t* out) {
  constexpr size_t kRowBytes = kCodeBlock * sizeof(uint32_t);
  uint32_t* next = out + kTile * kCodeBlock;
  _tile_loadd(0, out, kRowBytes);
  _tile_loadd(1, out + kTile, kRowBytes);
  _tile_loadd(2, next, kRowBytes);
  _tile_loadd(3, next + kTile, kRowBytes);
  for (size_t w = 0; w < words; ++w) {
    _tile_loadd(4, columns[0][w], 64);
    _tile_loadd(5, columns[1][w], 64);
    _tile_loadd(6, rows[0][w], 64);
    _tile_loadd(7, rows[1][w], 64);
    _tile_dpbuud(0, 4, 6);
    _tile_dpbuud(1, 4, 7);
    _tile_dpbuud(2, 5, 6);
    _tile_dpbuud(3, 5, 7);
  }
  _tile_stored(0, out, kRowBytes);
  _tile_stored(1, out + kTile, kRowBytes);
  _tile_stored(2, next, kRowBytes);
  _tile_stored(3, next + kTile, kRowBytes);
}

}  // namespace

void amx_code_products(const CodeBlock& rows, const CodeBlock& columns, size_t words, uint32_t* out) {
  TileShapes shapes;
  for (size_t t = 0; t < 8; ++t) shapes.rows[t] = kTile, shapes.bytes[t] = 64;
  auto* codes = static_cast<Codes*>(_mm_malloc(sizeof(Codes), 64));
  const bool same = rows.high == columns.high;
  _tile_loadconfig(&shapes);
  for (size_t first = 0; first < words; first += kChunkWords) {
    const size_t count = words - first < kChunkWords ? words - first : kChunkWords;
    expand(rows, first, count, true, codes->rows);
    expand(columns, first, count, false, codes->columns);
    for (size_t j = 0; j * kTile < columns.columns; j += 2)
      for (size_t i = 0; i * kTile < rows.columns && !(same && i > j); i += 2)
        add_tiles(&codes->rows[i], &codes->columns[j], count, &out[j * kTile * kCodeBlock + i * kTile]);
  }
  _tile_release();
  _mm_free(codes);
}

}  // namespace trireme::stats
