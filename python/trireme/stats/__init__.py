"""Statistics from uniformly dithered one-bit data, as scikit-learn estimators.

Each value x is sent as the sign of x + U, U uniform on [-gamma, gamma); gamma times that sign has mean x, so means,
covariances, regressions and low-rank matrices can be estimated from the bits alone. By default two bits a value are used
with a triangular dither, which has about a quarter of the variance of two independent signs.

    from trireme.stats import DitheredCovariance
    DitheredCovariance(gamma=3.0, random_state=0).fit(X).covariance_

Sources: arXiv 2202.13157 (one bit, uniform dither), 2308.16059 (triangular dither, ranges per column). Guide:
docs/guides/one-bit-statistics.md. Needs NumPy and scikit-learn, not torch.
"""

try:
    from trireme.stats import _stats
except ImportError as error:  # the extension is built by `make build` or comes with the wheel
    raise ImportError(f"trireme.stats is not built for this Python: run `make build` ({error})") from error

from trireme.stats._bits import quantise, write_bits
from trireme.stats._completion import OneBitMatrixCompletion
from trireme.stats._covariance import DitheredCovariance, arcsine_covariance
from trireme.stats._mean import OneBitMean
from trireme.stats._regression import OneBitLasso

BitsReader = _stats.BitsReader
CodeBook = _stats.CodeBook

__all__ = ["BitsReader", "CodeBook", "DitheredCovariance", "OneBitLasso", "OneBitMatrixCompletion", "OneBitMean",
           "arcsine_covariance", "quantise", "write_bits"]
