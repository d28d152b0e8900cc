"""Bits without an estimator: quantise on a device, keep in a file, count elsewhere."""

from sklearn.utils.validation import check_array

from trireme.stats import _stats
from trireme.stats._common import FLOATS


def quantise(x, book, seed=0, stream=0, first_row=0, mask=False, threads=0):
    """Bits of the (n, d) array x by a CodeBook.

    The dither of row r and column c is a function of (seed, stream, first_row + r, c) alone, so any chunking and any number
    of threads give the same bits; two devices take two streams. mask=True: NaN are missing values, else they are refused.
    ``E[value | x] = clip(x, range)``; arXiv 2202.13157, section II. float32 and float64 are read without a copy."""
    return _stats.quantise(check_array(x, dtype=FLOATS, ensure_all_finite=False), book, seed, stream, first_row, mask, threads)


def write_bits(path, blocks):
    """Writes the Bits in `blocks`, all of one CodeBook, to a file (docs/reference/bits.md), which BitsReader and
    ``trireme stats mean|covariance`` read. It has its name only when it is whole."""
    _stats.write_bits(str(path), blocks)
