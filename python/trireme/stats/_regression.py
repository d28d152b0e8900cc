"""Sparse regression from dithered bits."""

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from trireme.stats import _stats
from trireme.stats._common import FLOATS, choose_gamma, root_mean_square, seed_of, threads_of, warn_unless_converged

MULTIPLES = [0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.4, 2.0]
BLOCK = 65536  # rows taken in double precision at a time
# lambda / (gamma_x gamma_y sqrt(log d / n)) that served in the reference runs of each method.
QUANTISED_MULTIPLE = {"triangular": 0.35, "all_pairs": 0.5, "raw": 0.7}


class OneBitLasso(RegressorMixin, BaseEstimator):
    """Lasso whose responses, and if wanted covariates, are seen only through dithered bits.

    Minimises ``1/2 w'Gw - b'w + alpha |w|_1`` where G and b estimate E xx' and E yx: scikit-learn's Lasso on the responses
    gamma * sign(y + U). Data is taken as centred; there is no intercept. arXiv 2202.13157, section IV.

    Parameters
    ----------
    gamma : float, "max" or None
        Range of y (one bit). None: root mean square times sqrt(log n).
    alpha : float, "cv" or None
        Penalty, scaled as in scikit-learn's Lasso. None: gamma sqrt(log d / n) times the covariates' root mean square
        (quantised: 0.35, 0.5, 0.7 gamma_x gamma sqrt(log d / n) for triangular, all_pairs, raw). "cv": by K folds of the
        held-out quadratic risk, which needs no full-precision y.
    quantize_x : bool
        Covariates from 2 bits a value. Their Gram matrix is not positive semidefinite: give `radius` >= |w|_1 for the
        l1-ball path, else it is projected with a warning.
    radius : float or None
        Of the l1 ball.
    gamma_x : float, array or None
        Range of X; None: `gamma` where that is a number, else root mean square times sqrt(log n) per column.
    method : {"triangular", "all_pairs", "raw"}
        For X, as in DitheredCovariance.
    threshold_multiple : float or None
        Hard threshold on the quantised Gram matrix, which makes it positive definite when the covariance is sparse.
    path : {"automatic", "convex", "l1_ball", "psd_projected"}
    truncation : float or None
        Full-precision X is clipped at +-truncation (heavy tails).

    Attributes
    ----------
    coef_ : (d,); alpha_, gamma_ : floats; n_iter_ : int; path_ : str; converged_ : bool; smallest_eigenvalue_ : float
    standard_errors_ : (d,), given the support, 0 off it (not after partial_fit); n_samples_seen_ : int
    """

    def __init__(self, gamma=None, alpha=None, quantize_x=False, radius=None, random_state=None, *, gamma_x=None,
                 method="triangular", threshold_multiple=None, path="automatic", truncation=None, folds=5, max_iter=20000,
                 tol=1e-6, n_jobs=None):
        self.gamma = gamma
        self.alpha = alpha
        self.quantize_x = quantize_x
        self.radius = radius
        self.random_state = random_state
        self.gamma_x = gamma_x
        self.method = method
        self.threshold_multiple = threshold_multiple
        self.path = path
        self.truncation = truncation
        self.folds = folds
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # no intercept, and one bit a response
        return tags

    def fit(self, X, y):
        """X of shape (n, d), y of shape (n,). With full-precision X the estimator keeps a reference to X, which partial_fit
        goes on from; it is not pickled."""
        X, y = validate_data(self, X, y, dtype=FLOATS, y_numeric=True, ensure_min_samples=2)
        self._refuse_constant(X)
        self._start(X, y)
        x_bits, y_bits = self._quantise(X, y)
        if self.quantize_x:
            self.counts_.add(x_bits, y_bits, threads_of(self.n_jobs))
            self.alpha_ = self._alpha(x_bits, y_bits)
            fit = self._fit_counts()
            errors = lambda c: _stats.lasso_errors_quantised(x_bits, y_bits, c)
        else:
            self.alpha_ = self._alpha(X, y_bits)
            fit = _stats.lasso_full(X, y_bits, self._truncation(), self._options())
            errors = lambda c: _stats.lasso_errors_full(X, y_bits, self._truncation(), c)
            self._pending = (X, y_bits)
        self._take(fit)
        self.standard_errors_ = errors(self.coef_.tolist())
        return self

    def partial_fit(self, X, y):
        """More rows of the same stream, after fit or partial_fit: their dithers go on where the last call stopped, and any
        split into calls gives the coefficients of one call (with an explicit gamma; else the first call sets it). An alpha
        that is not given follows n; "cv" needs fit. With full-precision X this keeps the (d, d) Gram matrix."""
        first = not hasattr(self, "n_samples_seen_")
        X, y = validate_data(self, X, y, dtype=FLOATS, y_numeric=True, reset=first)
        if self.alpha == "cv":
            raise ValueError('alpha="cv" needs all rows at once: use fit, or give alpha')
        if first:
            self._start(X, y)
        elif not self.quantize_x and self._sums is None and self._pending is None:
            raise ValueError("the rows of fit went when this estimator was pickled: begin with partial_fit, or fit again")
        x_bits, y_bits = self._quantise(X, y)
        if self.quantize_x:
            self.counts_.add(x_bits, y_bits, threads_of(self.n_jobs))
            self.alpha_ = self._alpha(x_bits, y_bits)
            fit = self._fit_counts()
        else:
            self._sum_up(X, y_bits)
            self.alpha_ = self._alpha(X, y_bits)
            gram, cross = (total / self.n_samples_seen_ for total in self._sums)
            fit = _stats.lasso_gram(gram, cross.tolist(), self._options())
        self._take(fit)
        if hasattr(self, "standard_errors_"):
            del self.standard_errors_  # they were those of fit's rows alone
        return self

    def _sum_up(self, X, y_bits):
        """Adds full-precision rows, and those that fit left, to the Gram matrix and the cross products."""
        if self._sums is None:
            self._sums = [np.zeros((X.shape[1], X.shape[1])), np.zeros(X.shape[1])]
        for rows, bits in [*([self._pending] if self._pending else []), (X, y_bits)]:
            decoded = bits.decode()[:, 0]
            for at in range(0, len(rows), BLOCK):
                part = np.clip(rows[at:at + BLOCK].astype(float), -self._truncation(), self._truncation())
                self._sums[0] += part.T @ part
                self._sums[1] += part.T @ decoded[at:at + BLOCK]
        self._pending = None

    def predict(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, dtype=FLOATS, reset=False)
        return X @ self.coef_

    def __getstate__(self):
        state = super().__getstate__().copy()
        if "_pending" in state:
            state["_pending"] = None  # whole data sets do not belong in a pickle
        if "counts_" in state:
            state["counts_"] = state["counts_"].state()
        return state

    def __setstate__(self, state):
        if "counts_" in state:
            state = dict(state, counts_=_stats.RegressionCounts.from_state(state["counts_"], state["y_book_"]))
        super().__setstate__(state)

    def _refuse_constant(self, X):
        constant = np.flatnonzero(np.ptp(X, axis=0) == 0)
        if constant.size and X.shape[0] > 1:
            raise ValueError(f"column {constant[0]} of X is constant: centred data has nothing in it; drop the column")

    def _pairing(self):
        return "raw" if self.method == "raw" else "all_pairs"

    def _truncation(self):
        return float("inf") if self.truncation is None else float(self.truncation)

    def _start(self, X, y):
        if self.method not in QUANTISED_MULTIPLE:
            raise ValueError(f'method="{self.method}": one of {", ".join(QUANTISED_MULTIPLE)}')
        gamma, _ = choose_gamma(self.gamma, y.reshape(-1, 1).astype(float), "regression", None)
        self.gamma_ = float(gamma[0])
        self.y_book_ = _stats.CodeBook("one_bit", 1, gamma)
        if self.quantize_x:
            numeric = self.gamma is not None and not isinstance(self.gamma, str)
            given = self.gamma_x if self.gamma_x is not None else (float(self.gamma_) if numeric else None)
            gamma_x, _ = choose_gamma(given, X, "regression_quantised", None)
            self.gamma_x_ = np.asarray(gamma_x)
            scheme = "triangular" if self.method == "triangular" else "two_dither"
            self.x_book_ = _stats.CodeBook(scheme, 2 if scheme == "triangular" else 1, gamma_x)
            self.counts_ = _stats.RegressionCounts(self.x_book_, self.y_book_, self._pairing())
        elif hasattr(self, "counts_"):
            del self.counts_
        self._sums = self._pending = None  # full-precision X: of x x^T and y x over the rows; rows of fit not yet in them
        self._squares = 0.0
        self.seed_ = seed_of(self.random_state)
        self.n_samples_seen_ = 0

    def _quantise(self, X, y):
        first, threads = self.n_samples_seen_, threads_of(self.n_jobs)
        column = np.ascontiguousarray(y, dtype=y.dtype if y.dtype in FLOATS else float).reshape(-1, 1)
        y_bits = _stats.quantise(column, self.y_book_, self.seed_, 1, first, False, threads)
        x_bits = _stats.quantise(X, self.x_book_, self.seed_, 0, first, False, threads) if self.quantize_x else None
        self.n_samples_seen_ += X.shape[0]
        self._squares += float(np.sum(root_mean_square(X) ** 2)) * X.shape[0]
        return x_bits, y_bits

    def _alpha(self, x, y_bits):
        """The penalty; x is the rows, or their bits, for cross-validation."""
        if isinstance(self.alpha, (int, float, np.number)):
            return float(self.alpha)
        n, d = self.n_samples_seen_, self.n_features_in_
        scale = self.gamma_ * (float(np.mean(self.gamma_x_)) if self.quantize_x else 1.0)
        unit = scale * np.sqrt(np.log(max(2, d)) / n)
        spread = float(np.sqrt(self._squares / (n * d)))  # root mean square of the covariates
        if self.alpha is None:
            return unit * (QUANTISED_MULTIPLE[self.method] if self.quantize_x else spread)
        if self.alpha != "cv":
            raise ValueError(f'alpha={self.alpha!r}: a number, "cv" or None')
        folds = min(self.folds, n)
        self.alpha_ = 0.0
        if self.quantize_x:
            multiple, self.cv_criterion_ = _stats.choose_lambda_quantised(x, y_bits, self._pairing(), MULTIPLES, folds,
                                                                          self._options())
        else:
            candidates = [m * spread for m in MULTIPLES]
            multiple, self.cv_criterion_ = _stats.choose_lambda_full(x, y_bits, self._truncation(), candidates, folds,
                                                                     self._options())
        return unit * multiple

    def _options(self):
        radius = float("inf") if self.radius is None or not self.quantize_x else float(self.radius)
        path = self.path if self.quantize_x else "automatic"
        return _stats.LassoOptions(getattr(self, "alpha_", 0.0), radius, path, int(self.max_iter), float(self.tol),
                                   threads_of(self.n_jobs))

    def _fit_counts(self):
        if self.threshold_multiple is None:
            return _stats.lasso_counts(self.counts_, self._options())
        gram = _stats.threshold(self.counts_.gram(), "hard", float(self.threshold_multiple), self.gamma_x_.tolist(),
                                self.counts_.rows)
        return _stats.lasso_gram(gram, self.counts_.cross().tolist(), self._options())

    def _take(self, fit):
        self.coef_ = fit.coefficients
        self.n_iter_ = max(1, fit.iterations)
        self.path_, self.converged_ = fit.path, fit.converged
        self.smallest_eigenvalue_ = fit.smallest_eigenvalue
        warn_unless_converged(fit.warning)
