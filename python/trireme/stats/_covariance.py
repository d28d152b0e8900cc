"""Covariance from dithered bits."""

import numpy as np
from sklearn.covariance import EmpiricalCovariance
from sklearn.utils.validation import check_array, validate_data

from trireme.stats import _stats
from trireme.stats._common import FLOATS, check_mergeable, choose_gamma, per_column, seed_of, threads_of, warn_of_constants

METHODS = {"triangular": ("triangular", "all_pairs"), "all_pairs": ("two_dither", "all_pairs"),
           "raw": ("two_dither", "raw"), "one_bit": ("one_bit", "all_pairs")}
MULTIPLES = np.round(np.arange(0, 3.01, 0.1), 2).tolist()


class DitheredCovariance(EmpiricalCovariance):
    """Covariance of the columns of X from a few dithered bits a value.

    Parameters
    ----------
    method : {"triangular", "all_pairs", "raw", "one_bit"}
        "triangular" (default): `bits` bits, dither U1 + U2, step D = gamma / (2^(bits-1) - 1):
        ``step_i step_j / n sum Q_i Q_j - [i = j] D^2 / 4``; arXiv 2308.16059.
        "raw": two independent signs, ``gamma_i gamma_j / (2n) (S1'S2 + S2'S1)``; arXiv 2202.13157.
        "all_pairs": the same bits, off the diagonal ``gamma_i gamma_j / (4n) (S1+S2)'(S1+S2)``, less variance.
        "one_bit": one sign; needs `variances`, about which one dither tells nothing.
    gamma : float, array of shape (d,), "max", "pilot" or None
        Dither range. None: root mean square times sqrt(log n) per column (light tails), or by `moment_order`.
    threshold : None, "hard", "soft" or float
        Off-diagonal thresholding at ``multiple gamma_i gamma_j sqrt(log d / n)``; a float is a hard threshold's own level.
    threshold_multiple : float or None
        None: chosen by `folds`-fold cross-validation in fit, 1 in partial_fit.
    bits, step : int, float or None
        Of the triangular quantiser. With a step and bits=None the bits follow from the range.
    moment_order : float or None
        Heavy tails: gamma from the moment E|x|^p and n / log d.
    eta : float, array or None
        Truncation below gamma: each bit then is locally differentially private, see `privacy_epsilon_`.
    assume_centered : bool
        False: the mean is estimated from the same bits and subtracted.
    missing : {"error", "mask"}
        "mask": NaN are missing at random; entry (i, j) uses the rows that have both.
    psd : None, "project" or "shrink"
        Nearest positive semidefinite matrix, or the same zeros with off-diagonal entries scaled down.
    mask : array of shape (d, d) or None
        Multiplies the estimate entry by entry (banding, tapering).
    toeplitz : bool
        Averages along diagonals: stationary series, uniform line arrays.
    variances : array of shape (d,) or None
        The diagonal, where it is known; for complex data (2 d,), of the real parts and then the imaginary parts.
    standard_errors : bool
        Also `standard_errors_`, from the sample variance of the per-row products.
    allow_complex : bool
        Complex X of shape (n, d): real and imaginary part get a dither each, `covariance_` is Hermitian.

    Attributes
    ----------
    covariance_, precision_ : arrays of shape (d, d); location_ : (d,); gamma_ : (d,)
    smallest_eigenvalue_ : float, before `psd`; n_samples_seen_ : int; standard_errors_ : (d, d)
    pair_counts_ : (d, d) with missing="mask"; threshold_multiple_ : float; bits_per_value_ : int
    privacy_epsilon_ : (d,) per row and column, infinite unless eta < gamma and one bit a dither
    """

    def __init__(self, method="triangular", gamma=None, threshold=None, *, threshold_multiple=None, bits=2, step=None,
                 moment_order=None, eta=None, assume_centered=False, missing="error", psd=None, mask=None, toeplitz=False,
                 variances=None, standard_errors=False, allow_complex=False, folds=5, store_precision=True, n_jobs=None,
                 random_state=None):
        super().__init__(store_precision=store_precision, assume_centered=assume_centered)
        self.method = method
        self.gamma = gamma
        self.threshold = threshold
        self.threshold_multiple = threshold_multiple
        self.bits = bits
        self.step = step
        self.moment_order = moment_order
        self.eta = eta
        self.missing = missing
        self.psd = psd
        self.mask = mask
        self.toeplitz = toeplitz
        self.variances = variances
        self.standard_errors = standard_errors
        self.allow_complex = allow_complex
        self.folds = folds
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "mask"
        return tags

    def fit(self, X, y=None):
        """X of shape (n, d), float32 or float64 in any memory order, is read without a copy."""
        X = self._checked(X, reset=True)
        warn_of_constants(X)
        self._start(X)
        bits = self._add(X)
        multiple = self.threshold_multiple
        if self.threshold in ("hard", "soft") and multiple is None:
            scheme_pairing = METHODS[self.method][1]
            folds = min(self.folds, X.shape[0])
            multiple, self.threshold_criterion_ = _stats.choose_threshold(
                bits, scheme_pairing, self.threshold, MULTIPLES, folds, threads_of(self.n_jobs))
        self._finish(multiple)
        return self

    def partial_fit(self, X, y=None):
        """More rows of the same stream: their dithers go on where the last call stopped, so that any split into calls
        gives the counts of one call (with an explicit gamma; else the first call sets it)."""
        first = not hasattr(self, "counts_")
        X = self._checked(X, reset=first, least=1)
        if first:
            self._start(X)
        self._add(X)
        self._finish(self.threshold_multiple)
        return self

    def merge(self, other):
        """Takes in another estimator's counts: same gamma and method, another random_state or other rows."""
        check_mergeable(self, other)
        self.counts_.merge(other.counts_)
        self.n_samples_seen_ += other.n_samples_seen_
        self._finish(self.threshold_multiple)
        return self

    def _checked(self, X, reset, least=2):
        if self.method not in METHODS:
            raise ValueError(f'method="{self.method}": one of {", ".join(sorted(METHODS))}')
        if self.missing not in ("error", "mask"):
            raise ValueError(f'missing="{self.missing}": "error" or "mask"')
        nan = "allow-nan" if self.missing == "mask" else True
        if self.allow_complex and np.iscomplexobj(X):
            X = np.asarray(X)
            if X.ndim != 2 or X.shape[0] < least:
                raise ValueError(f"complex X of shape {X.shape}: give (n, d) with n of {least} or more")
            if not reset and X.shape[1] != self.n_features_in_:
                raise ValueError(f"X has {X.shape[1]} columns, but the first call had {self.n_features_in_}")
            self.n_features_in_ = X.shape[1]
            return check_array(np.concatenate([X.real, X.imag], axis=1), dtype=FLOATS, ensure_all_finite=nan)
        if not reset and self.complex_:
            raise ValueError("X is real, but the first call had complex data")
        return validate_data(self, X, dtype=FLOATS, ensure_all_finite=nan, ensure_min_samples=least, reset=reset)

    def _start(self, X):
        d = X.shape[1]
        scheme, pairing = METHODS[self.method]
        gamma, centre = choose_gamma(self.gamma, X, "covariance", self.moment_order)
        self.gamma_ = np.asarray(gamma)
        step = float(self.step or 0) if scheme == "triangular" else 0.0
        bits = 1 if scheme != "triangular" else self.bits
        if bits is None:
            bits = _stats.bits_for(scheme, float(max(gamma)), step) if step else 2
        eta = per_column(self.eta, d, "eta") if self.eta is not None else []
        self.complex_ = np.iscomplexobj(X) or (self.allow_complex and d == 2 * self.n_features_in_)
        if int(bits) != bits:
            raise ValueError(f"bits={bits}: give a whole number")
        book = _stats.CodeBook(scheme, int(bits), gamma, eta, centre, step, self.complex_)
        self.bits_per_value_ = 2 if scheme == "two_dither" else bits
        self.privacy_epsilon_ = np.array([book.privacy_epsilon(j) for j in range(d)])
        self.counts_ = _stats.CovarianceCounts(book, pairing, bool(self.standard_errors))
        self.seed_ = seed_of(self.random_state)
        self.n_samples_seen_ = self._next_row = 0  # of all that was merged; of the own stream

    def _add(self, X):
        threads = threads_of(self.n_jobs)
        bits = _stats.quantise(X, self.counts_.book, self.seed_, 0, self._next_row, self.missing == "mask", threads)
        self.counts_.add(bits, threads)
        self.n_samples_seen_ += X.shape[0]
        self._next_row += X.shape[0]
        return bits

    def _finish(self, multiple):
        counts = self.counts_
        variances = [] if self.variances is None else per_column(self.variances, len(self.gamma_), "variances")
        centre = np.asarray(counts.book.centre) if counts.book.centre else 0.0
        if self.assume_centered:
            covariance = counts.second_moment(variances)
            self.location_ = np.zeros(len(self.gamma_))
        else:
            covariance = counts.covariance(variances)
            self.location_ = counts.mean() + centre
        if self.standard_errors:
            self.standard_errors_ = counts.standard_errors()
        if self.missing == "mask":
            self.pair_counts_ = counts.pair_counts()
        if self.threshold in ("hard", "soft"):
            self.threshold_multiple_ = 1.0 if multiple is None else float(multiple)
            covariance = _stats.threshold(covariance, self.threshold, self.threshold_multiple_, self.gamma_.tolist(),
                                          counts.rows)
        elif isinstance(self.threshold, (int, float)) and self.threshold >= 0:
            keep = (np.abs(covariance) >= self.threshold) | np.eye(len(covariance), dtype=bool)
            covariance = np.where(keep, covariance, 0.0)
        elif self.threshold is not None:
            raise ValueError(f'threshold={self.threshold!r}: "hard", "soft", a number from 0 on or None')
        self.covariance_ = self._shaped(covariance)
        if self.store_precision:
            self.precision_ = np.linalg.pinv(self.covariance_, hermitian=True)

    def _shaped(self, covariance):
        if self.complex_:
            half = len(covariance) // 2
            a, b = slice(0, half), slice(half, None)
            covariance = (covariance[a, a] + covariance[b, b]) + 1j * (covariance[b, a] - covariance[a, b])
            covariance[np.diag_indices(half)] = covariance.diagonal().real
            self.location_ = self.location_[a] + 1j * self.location_[b]
        if self.mask is not None:
            if np.shape(self.mask) != covariance.shape:
                raise ValueError(f"mask has shape {np.shape(self.mask)}, the covariance {covariance.shape}")
            covariance = covariance * np.asarray(self.mask)
        if self.toeplitz:
            covariance = _along_diagonals(covariance)
        self.smallest_eigenvalue_ = float(np.linalg.eigvalsh(covariance)[0])
        if self.psd == "project":
            if not np.iscomplexobj(covariance):
                return _stats.project_psd(covariance)
            values, vectors = np.linalg.eigh(covariance)
            return (vectors * np.maximum(values, 0)) @ vectors.conj().T
        if self.psd == "shrink":
            if np.iscomplexobj(covariance):
                raise ValueError('psd="shrink" is for real data; take psd="project"')
            floor = 1e-6 * float(np.max(np.diag(covariance)))
            return _stats.shrink_to_definite(covariance, floor)
        if self.psd is not None:
            raise ValueError(f'psd={self.psd!r}: "project", "shrink" or None')
        return covariance


def _along_diagonals(matrix):
    """Means along the diagonals of a Hermitian matrix."""
    d = len(matrix)
    lags = np.array([np.mean(np.diagonal(matrix, -k)) for k in range(d)])
    i, j = np.indices((d, d))
    lower = lags[np.abs(i - j)]
    return np.where(i >= j, lower, lower.conj())


def arcsine_covariance(X):
    """Baseline: sin(pi/2 mean sign sign'), the correlation of Gaussian data from undithered signs (van Vleck and
    Middleton, 1966). The scale is lost, and non-Gaussian data gives another matrix. Complex X is taken as circular."""
    if np.iscomplexobj(X):
        X = np.asarray(X)
        if X.ndim != 2:
            raise ValueError(f"complex X of shape {X.shape}: give (n, d)")
        d = X.shape[1]
        R = _stats.arcsine_correlation(check_array(np.concatenate([X.real, X.imag], axis=1), dtype=FLOATS))
        return (R[:d, :d] + R[d:, d:]) / 2 + 1j * (R[d:, :d] - R[:d, d:]) / 2
    return _stats.arcsine_correlation(check_array(X, dtype=FLOATS))
