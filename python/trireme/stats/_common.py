"""What the estimators share: seeds, ranges, warnings."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from trireme.stats import _stats

# More rows than this at a time would only raise the peak memory.
FLOATS = (np.float64, np.float32)


def seed_of(random_state):
    """A seed of 64 bits: the integer itself, or one drawn from the generator."""
    if isinstance(random_state, (int, np.integer)) and random_state >= 0:
        if random_state >= 2**64:
            raise ValueError(f"random_state={random_state}: give an integer below 2**64")
        return int(random_state)
    return int(check_random_state(random_state).randint(0, 2**31 - 1))


def threads_of(n_jobs):
    """scikit-learn's n_jobs as a thread count; None and -1 mean one per processor (0 for the library)."""
    return 0 if n_jobs is None or n_jobs < 0 else int(n_jobs)


def per_column(value, columns, what):
    """A scalar or an array as one float per column."""
    values = np.asarray(value, dtype=float)
    if values.ndim == 0:
        values = np.full(columns, float(values))
    if values.shape != (columns,):
        raise ValueError(f"{what} has shape {values.shape}; give a number or one for each of the {columns} columns")
    return values.tolist()


def root_mean_square(X):
    """Per column, NaN left out; column sums in double precision without a copy of X in double."""
    seen = np.maximum(1, np.count_nonzero(~np.isnan(X), axis=0)) if np.isnan(X).any() else X.shape[0]
    return np.sqrt(np.nansum(np.square(X), axis=0, dtype=float) / seen)


def choose_gamma(gamma, X, problem, moment_order, n=None):
    """Ranges and centres per column by the documented rules (docs/guides/one-bit-statistics.md, Choosing the range)."""
    n, d = n or X.shape[0], X.shape[1]
    if gamma is None and moment_order is None:
        return [_stats.light_tail_range(s, n) for s in root_mean_square(X)], []
    if gamma is None:
        moments = np.nanmean(np.abs(X.astype(float)) ** moment_order, axis=0)
        return [_stats.moment_range(problem, m, moment_order, n, d) for m in moments], []
    if isinstance(gamma, str):
        if gamma == "max":
            return np.nanmax(np.abs(X), axis=0).astype(float).tolist(), []
        if gamma == "pilot":
            book, _ = _stats.pilot_book(X, n, 0.0)
            return book.range, book.centre
        raise ValueError(f'gamma="{gamma}": give a number, one per column, "max", "pilot" or None')
    return per_column(gamma, d, "gamma"), []


def warn_of_constants(X):
    """A constant column has no variance; whoever estimates one should know. Most columns differ within the first rows."""
    suspects = np.flatnonzero(np.ptp(X[:100], axis=0) == 0)
    constant = [j for j in suspects if X.shape[0] > 1 and np.ptp(X[:, j]) == 0]
    if constant:
        warnings.warn(f"column {constant[0]} of X is constant ({len(constant)} such): its variance is 0 and what is estimated of it "
                      "is noise", UserWarning, stacklevel=4)


def check_mergeable(mine, other):
    """merge() of two fitted estimators of one kind."""
    if type(other) is not type(mine):
        raise ValueError(f"{type(mine).__name__} merges another {type(mine).__name__}, not {type(other).__name__}")
    check_is_fitted(mine)
    check_is_fitted(other)


def warn_unless_converged(message):
    if message:
        warnings.warn(message, ConvergenceWarning if "not converged" in message else UserWarning, stacklevel=3)
