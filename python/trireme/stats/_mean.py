"""Means from one dithered bit a value."""

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from trireme.stats import _stats
from trireme.stats._common import FLOATS, check_mergeable, choose_gamma, seed_of, threads_of

LEAST_FOR_PILOT = 64  # below, the pilot would eat most of the rows


class OneBitMean(BaseEstimator):
    """Mean of each column of X from one dithered bit a value.

    ``mean_ = centre + gamma / n sum sign(x - centre + U)`` with standard error ``sqrt((gamma^2 - mean^2) / n)``.

    Parameters
    ----------
    gamma : float, array of shape (d,), "max" or None
        None: the pilot rule (junrenchen58/one-bit-mean): the first ceil(sqrt n) rows (ceil(2 sqrt n) for d > 1) stay
        unquantised; their quantiles at e and 1 - e, e = sqrt(2/n) (sqrt(9/n)), give centre and gamma.
    corrupted : float
        Share of the rows that may hold anything; widens e to corrupted + 1/sqrt(n).
    missing : {"error", "mask"}
        "mask": NaN are left out.

    Attributes
    ----------
    mean_, standard_error_, gamma_, centre_ : arrays of shape (d,); n_pilot_ : rows of the pilot, which are looked at in full and
    not counted again; n_samples_seen_ : int
    """

    def __init__(self, gamma=None, *, corrupted=0.0, missing="error", n_jobs=None, random_state=None):
        self.gamma = gamma
        self.corrupted = corrupted
        self.missing = missing
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "mask"
        return tags

    def fit(self, X, y=None):
        """X of shape (n, d), float32 or float64 in any memory order, is read without a copy."""
        X = self._checked(X, reset=True)
        self._start(X)
        self._add(X)
        return self

    def partial_fit(self, X, y=None):
        """More rows; with gamma=None the first call is the one that holds the pilot."""
        first = not hasattr(self, "counts_")
        X = self._checked(X, reset=first, least=1)
        if first:
            self._start(X)
        self._add(X)
        return self

    def merge(self, other):
        """Takes in another estimator's counts (same gamma and centre)."""
        check_mergeable(self, other)
        self.counts_.merge(other.counts_)
        self.n_samples_seen_ += other.n_samples_seen_
        self._finish()
        return self

    def _checked(self, X, reset, least=2):
        if self.missing not in ("error", "mask"):
            raise ValueError(f'missing="{self.missing}": "error" or "mask"')
        nan = "allow-nan" if self.missing == "mask" else True
        return validate_data(self, X, dtype=FLOATS, ensure_all_finite=nan, ensure_min_samples=least, reset=reset)

    def _start(self, X):
        self.n_pilot_ = 0
        if self.gamma is None and X.shape[0] >= LEAST_FOR_PILOT:
            book, self.n_pilot_ = _stats.pilot_book(X, X.shape[0], self.corrupted)
        elif self.gamma is None:
            if np.isnan(X).all(axis=0).any():
                raise ValueError("a column of X has no value at all: remove it")
            centre = np.nanmean(X, axis=0, dtype=float)
            book = _stats.CodeBook("one_bit", 1, np.nanmax(np.abs(X - centre), axis=0).tolist(), [], centre.tolist())
        else:
            gamma, centre = choose_gamma(self.gamma, X, "mean", None)
            book = _stats.CodeBook("one_bit", 1, gamma, [], centre)
        self.gamma_ = np.asarray(book.range)
        self.centre_ = np.asarray(book.centre) if book.centre else np.zeros(X.shape[1])
        self.book_ = book
        self.counts_ = _stats.MeanCounts(book)
        self.seed_ = seed_of(self.random_state)
        self.n_samples_seen_ = self._next_row = 0  # of all that was merged; of the own stream

    def _add(self, X):
        skip = self.n_pilot_ if self._next_row == 0 else 0
        first = self._next_row + skip
        self.counts_.add(_stats.quantise(X[skip:], self.book_, self.seed_, 0, first, self.missing == "mask",
                                         threads_of(self.n_jobs)))
        self.n_samples_seen_ += X.shape[0]
        self._next_row += X.shape[0]
        self._finish()

    def _finish(self):
        self.mean_ = self.counts_.mean()
        self.standard_error_ = self.counts_.standard_errors()
