"""Low-rank matrices from one dithered bit per observed entry."""

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_is_fitted

from trireme.stats import _stats
from trireme.stats._common import FLOATS, choose_gamma, seed_of, threads_of, warn_unless_converged

MULTIPLES = [0.2, 0.3, 0.45, 0.7, 1.0, 1.5]


class OneBitMatrixCompletion(BaseEstimator):
    """Low-rank matrix from noisy entries of which one dithered bit each is kept; no noise law is assumed.

    Minimises ``1/(2n) sum (Theta[i, j] - gamma q)^2 + alpha |Theta|_*`` subject to ``|Theta[i, j]| <= bound`` by ADMM.
    arXiv 2202.13157, section V.

    Parameters
    ----------
    gamma : float, "max" or None
        Range of the values. None: root mean square times sqrt(log n), halved (the reference runs' rule).
    alpha : float, "cv" or None
        Nuclear-norm penalty. None: gamma sqrt(log(d1 + d2) / (n min(d1, d2))).
    bound : float or None
        Largest absolute entry; None: the largest observed |value|.

    Attributes
    ----------
    matrix_ : (d1, d2); rank_, n_iter_ : int; converged_ : bool; alpha_, gamma_, bound_ : float
    """

    def __init__(self, gamma=None, alpha=None, bound=None, random_state=None, *, folds=5, max_iter=500, tol=1e-6, n_jobs=None):
        self.gamma = gamma
        self.alpha = alpha
        self.bound = bound
        self.random_state = random_state
        self.folds = folds
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs

    def fit(self, indices, values, shape=None):
        """indices: (n, 2) row and column numbers from 0, repetition allowed; values: (n,); shape: (d1, d2), by default
        one more than the largest numbers."""
        if hasattr(self, "counts_"):
            del self.counts_
        return self._add(indices, values, shape, cross_validate=True)

    def partial_fit(self, indices, values, shape=None):
        """More observations; the first call sets gamma, bound and shape where they are not given."""
        return self._add(indices, values, shape, cross_validate=False)

    def predict(self, indices):
        """Entries of matrix_ at (n, 2) indices."""
        check_is_fitted(self)
        indices = self._indices(indices)
        outside = np.flatnonzero(((indices < 0) | (indices >= self.matrix_.shape)).any(axis=1))
        if outside.size:
            raise ValueError(f"index {outside[0]} is at {tuple(indices[outside[0]].tolist())}, outside the {self.matrix_.shape[0]} x "
                             f"{self.matrix_.shape[1]} matrix")
        return self.matrix_[indices[:, 0], indices[:, 1]]

    def _indices(self, indices):
        indices = check_array(indices, dtype=None)
        if indices.shape[1] != 2:
            raise ValueError(f"indices of shape {indices.shape}: give (n, 2), row and column numbers")
        whole = indices.astype(np.int64)
        if not np.array_equal(whole, indices):
            raise ValueError("indices must be whole numbers: row and column of each value")
        return whole

    def _start(self, indices, values, shape):
        if shape is None:
            shape = tuple(int(m) + 1 for m in indices.max(axis=0))
        if len(shape) != 2 or min(shape) < 1 or any(int(m) != m for m in shape):
            raise ValueError(f"shape={shape}: give (rows, columns)")
        gamma, _ = choose_gamma(self.gamma, values, "completion", None)
        self.gamma_ = float(gamma[0]) if self.gamma is not None else float(gamma[0]) / 2
        self.bound_ = float(np.max(np.abs(values))) or 1.0 if self.bound is None else float(self.bound)
        self.shape_ = (int(shape[0]), int(shape[1]))
        self.book_ = _stats.CodeBook("one_bit", 1, [self.gamma_])
        self.counts_ = _stats.CompletionCounts(*self.shape_, self.book_)
        self.seed_ = seed_of(self.random_state)
        self.n_samples_seen_ = 0

    def _add(self, indices, values, shape, cross_validate):
        indices = self._indices(indices)
        values = check_array(np.asarray(values).reshape(-1, 1), dtype=FLOATS)
        if len(values) != len(indices):
            raise ValueError(f"{len(indices)} indices and {len(values)} values: give as many of each")
        if not hasattr(self, "counts_"):
            self._start(indices, values, shape)
        elif shape is not None and tuple(shape) != self.shape_:
            raise ValueError(f"shape={tuple(shape)}, but the first call had {self.shape_}")
        rows, cols = np.ascontiguousarray(indices[:, 0]), np.ascontiguousarray(indices[:, 1])
        bits = _stats.quantise(values, self.book_, self.seed_, 0, self.n_samples_seen_, False, threads_of(self.n_jobs))
        self.counts_.add(rows, cols, bits)
        self.n_samples_seen_ += len(values)
        unit = _stats.completion_lambda(self.gamma_, *self.shape_, self.n_samples_seen_)
        if self.alpha is None:
            self.alpha_ = unit
        elif isinstance(self.alpha, str) and self.alpha != "cv":
            raise ValueError(f'alpha={self.alpha!r}: a number, "cv" or None')
        elif self.alpha == "cv":
            if not cross_validate:
                raise ValueError('alpha="cv" needs all observations at once: use fit, or give alpha')
            order = np.random.RandomState(self.seed_ % 2**32).permutation(len(values))  # folds of consecutive entries
            shuffled = _stats.quantise(values[order], self.book_, self.seed_, 0, 0, False, 0)
            multiple, self.cv_criterion_ = _stats.choose_completion_lambda(
                rows[order], cols[order], shuffled, *self.shape_, MULTIPLES, min(self.folds, len(values)), self._options(0.0))
            self.alpha_ = unit * multiple
        else:
            self.alpha_ = float(self.alpha)
        self.matrix_, self.rank_, self.n_iter_, self.converged_, self.residual_, warning = _stats.complete(
            self.counts_, self._options(self.alpha_))
        warn_unless_converged(warning)
        return self

    def _options(self, alpha):
        return _stats.CompletionOptions(alpha, self.bound_, int(self.max_iter), float(self.tol), threads_of(self.n_jobs))
