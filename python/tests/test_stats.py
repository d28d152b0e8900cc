"""trireme.stats: scikit-learn's contract, split independence, the reference tables in short, clear errors."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from trireme.stats import (CodeBook, DitheredCovariance, OneBitLasso, OneBitMatrixCompletion, OneBitMean, _stats, arcsine_covariance,
                           quantise)

# check name -> why it cannot hold. Everything else must pass.
COVARIANCE_EXCEPTIONS = {}
MEAN_EXCEPTIONS = {}
LASSO_EXCEPTIONS = {}


def blocks(n, d, rng):
    """Blocks of 4 columns with covariance 0.6^|i-j|."""
    X = rng.standard_normal((n, d))
    for j in range(d):
        if j % 4:
            X[:, j] = 0.6 * X[:, j - 1] + 0.8 * X[:, j]
    return X


def block_covariance(d):
    i, j = np.indices((d, d))
    return np.where(i // 4 == j // 4, 0.6 ** np.abs(i - j), 0.0)


def regression(n, d, rng, s=5):
    X = rng.standard_normal((n, d))
    theta = np.zeros(d)
    theta[:: d // s][:s] = np.where(np.arange(s) % 2, -1, 1) / np.sqrt(s)
    return X, X @ theta + 0.5 * rng.standard_normal(n), theta


@pytest.mark.parametrize("estimator, exceptions", [
    (DitheredCovariance(random_state=0), COVARIANCE_EXCEPTIONS),
    (DitheredCovariance(method="all_pairs", threshold="hard", psd="project", random_state=0), COVARIANCE_EXCEPTIONS),
    (OneBitMean(random_state=0), MEAN_EXCEPTIONS),
    (OneBitLasso(random_state=0), LASSO_EXCEPTIONS),
    (OneBitLasso(quantize_x=True, radius=5.0, random_state=0), LASSO_EXCEPTIONS),
])
def test_scikit_learn_contract(estimator, exceptions):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(estimator, expected_failed_checks=exceptions)


def test_imports_without_torch():
    code = """if True:
        import sys
        class NoTorch:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] == "torch":
                    raise ImportError("torch is not installed")
        sys.meta_path.insert(0, NoTorch())
        import trireme.stats
        trireme.stats.OneBitMean(gamma=1).fit([[0.5], [0.2]])
        assert "torch" not in sys.modules
        maps = open("/proc/self/maps").read()
        assert "libtorch" not in maps
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("method", ["triangular", "all_pairs", "raw"])
def test_parts_and_merged_machines_are_the_whole(method):
    X = blocks(3000, 12, np.random.default_rng(1))
    whole = DitheredCovariance(method, gamma=3.0, random_state=4).fit(X)
    stream = DitheredCovariance(method, gamma=3.0, random_state=4)
    for part in np.array_split(X, [1, 500, 1777]):
        stream.partial_fit(part)
    assert stream.counts_ == whole.counts_
    np.testing.assert_array_equal(stream.covariance_, whole.covariance_)
    np.testing.assert_array_equal(DitheredCovariance(method, gamma=3.0, random_state=4, n_jobs=1).fit(np.asfortranarray(X)).covariance_,
                                  whole.covariance_)
    other = DitheredCovariance(method, gamma=3.0, random_state=5).fit(X)
    n = whole.n_samples_seen_
    merged = pickle.loads(pickle.dumps(whole)).merge(other)
    assert merged.n_samples_seen_ == 2 * n
    second = (whole.counts_.second_moment() + other.counts_.second_moment()) / 2
    np.testing.assert_allclose(merged.counts_.second_moment(), second, atol=1e-12)
    with pytest.raises(ValueError, match="dithers are not independent"):
        clone(whole).fit(X).merge(whole)


def test_covariance_table():
    # d = 60, gamma 3, 64000 rows: operator errors 0.388 raw, 0.312 all pairs, 0.207 triangular, 8 %.
    rng, errors = np.random.default_rng(3), {"raw": [], "all_pairs": [], "triangular": []}
    truth = block_covariance(60)
    for trial in range(6):
        X = blocks(64000, 60, rng)
        for method, found in errors.items():
            fit = DitheredCovariance(method, gamma=3.0, assume_centered=True, store_precision=False, random_state=trial).fit(X)
            found.append(np.linalg.norm(fit.covariance_ - truth, 2))
    for method, expected in {"raw": 0.388, "all_pairs": 0.312, "triangular": 0.207}.items():
        assert np.mean(errors[method]) == pytest.approx(expected, rel=0.08), method


def test_regression_table():
    # d = 200, gamma 3, lambda gamma sqrt(log d / n): 0.273 at n = 4000, 12 %.
    rng, errors = np.random.default_rng(5), []
    for trial in range(12):
        X, y, theta = regression(4000, 200, rng)
        fit = OneBitLasso(gamma=3.0, alpha=3 * np.sqrt(np.log(200) / 4000), random_state=trial).fit(X, y)
        errors.append(np.linalg.norm(fit.coef_ - theta))
    assert np.mean(errors) == pytest.approx(0.273, rel=0.12)


def test_quantised_regression_table():
    # d = 100, gamma sqrt(log n), n = 8000: 0.289 triangular (lambda 0.35), 0.369 all pairs (0.5), radius 1.5 |theta|_1.
    rng, g = np.random.default_rng(6), np.sqrt(np.log(8000))
    for method, multiple, expected in [("triangular", 0.35, 0.289), ("all_pairs", 0.5, 0.369), ("raw", 0.7, 0.400)]:
        errors = []
        for trial in range(8):
            X, y, theta = regression(8000, 100, rng)
            fit = OneBitLasso(g, multiple * g * g * np.sqrt(np.log(100) / 8000), True, 1.5 * np.abs(theta).sum(), trial,
                              method=method).fit(X, y)
            errors.append(np.linalg.norm(fit.coef_ - theta))
        assert np.mean(errors) == pytest.approx(expected, rel=0.12), method


def test_completion_table():
    # 40 x 40, rank 2, n = 64000, gamma 2: mean square 0.0229, 10 %, rank 2.
    rng, errors = np.random.default_rng(7), []
    for trial in range(6):
        truth = rng.uniform(-1, 1, (40, 2)) @ rng.uniform(-1, 1, (2, 40))
        truth /= np.abs(truth).max()
        at = rng.integers(0, 40, (64000, 2))
        values = truth[at[:, 0], at[:, 1]] + 0.3 * rng.standard_normal(64000)
        fit = OneBitMatrixCompletion(gamma=2.0, bound=1.0, random_state=trial).fit(at, values, (40, 40))
        errors.append(np.mean((fit.matrix_ - truth) ** 2))
        assert fit.rank_ == 2 and fit.converged_
    assert np.mean(errors) == pytest.approx(0.0229, rel=0.1)


def test_mean_table():
    # mean 0.7, sd 1, n = 4000: RMSE 0.0342, mean gamma 1.88 (8 %), here 400 trials.
    rng, misses, ranges = np.random.default_rng(8), [], []
    for trial in range(400):
        fit = OneBitMean(random_state=trial).fit(0.7 + rng.standard_normal((4000, 1)))
        misses.append(fit.mean_[0] - 0.7)
        ranges.append(fit.gamma_[0])
    assert np.sqrt(np.mean(np.square(misses))) == pytest.approx(0.0342, rel=0.08)
    assert np.mean(ranges) == pytest.approx(1.88, rel=0.05)


def test_slope_with_a_fixed_range_is_a_half():
    # dither.md's measured -0.502 for the raw operator norm at gamma 3, within 0.05.
    rng, sizes, means = np.random.default_rng(9), [1000, 4000, 16000, 64000], []
    for n in sizes:
        errors = [np.linalg.norm(DitheredCovariance("raw", 3.0, assume_centered=True, store_precision=False, random_state=t)
                                 .fit(blocks(n, 60, rng)).covariance_ - block_covariance(60), 2) for t in range(8)]
        means.append(np.mean(errors))
    assert np.polyfit(np.log(sizes), np.log(means), 1)[0] == pytest.approx(-0.502, abs=0.05)


def test_standard_errors_are_those_seen():
    rng, truth = np.random.default_rng(2), block_covariance(4)
    pulls = []
    for trial in range(200):
        fit = DitheredCovariance(gamma=4.0, assume_centered=True, standard_errors=True, random_state=trial).fit(blocks(1000, 4, rng))
        pulls.append((fit.covariance_ - truth) / fit.standard_errors_)
    assert np.std(pulls, axis=0) == pytest.approx(np.ones((4, 4)), abs=0.25)


def test_missing_values_are_left_out_pair_by_pair():
    rng = np.random.default_rng(4)
    X = blocks(60000, 8, rng)
    X[rng.random(X.shape) < 0.3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        DitheredCovariance(gamma=4.0).fit(X)
    fit = DitheredCovariance(gamma=4.0, missing="mask", random_state=0).fit(X)
    assert np.abs(fit.covariance_ - block_covariance(8)).max() < 0.15
    assert fit.pair_counts_[0, 1] == np.sum(~np.isnan(X[:, 0]) & ~np.isnan(X[:, 1]))


def test_threshold_and_definiteness():
    X = blocks(4000, 40, np.random.default_rng(4))
    truth = block_covariance(40)
    plain = DitheredCovariance("all_pairs", gamma=3.0, random_state=0).fit(X)
    cut = DitheredCovariance("all_pairs", gamma=3.0, threshold="hard", random_state=0).fit(X)
    assert np.linalg.norm(cut.covariance_ - truth) < 0.7 * np.linalg.norm(plain.covariance_ - truth)
    assert 0.5 < cut.threshold_multiple_ < 2
    thin = DitheredCovariance("raw", gamma=3.0, threshold="soft", threshold_multiple=0.8, psd="shrink", random_state=0).fit(X[:500])
    assert thin.smallest_eigenvalue_ < 0 < np.linalg.eigvalsh(thin.covariance_)[0]


def test_indefinite_gram_is_switched_with_a_warning_or_bounded():
    X, y, theta = regression(1000, 100, np.random.default_rng(1))
    with pytest.warns(UserWarning, match="negative eigenvalue"):
        projected = OneBitLasso(2.6, quantize_x=True, random_state=0).fit(X, y)
    assert projected.path_ == "psd_projected"
    with pytest.raises(ValueError, match="give a radius"):
        OneBitLasso(2.6, quantize_x=True, path="convex", random_state=0).fit(X, y)
    ball = OneBitLasso(2.6, 0.05, quantize_x=True, radius=2.0, random_state=0).fit(X, y)
    assert ball.path_ == "l1_ball" and np.abs(ball.coef_).sum() <= 2.0 + 1e-9
    with pytest.warns(UserWarning, match="not converged"):
        OneBitLasso(2.6, 0.05, quantize_x=True, radius=2.0, max_iter=2, random_state=0).fit(X, y)


@pytest.mark.parametrize("quantize_x", [False, True])
def test_lasso_parts_are_the_whole(quantize_x):
    X, y, _ = regression(2000, 30, np.random.default_rng(1))
    whole = OneBitLasso(3.0, 0.1, quantize_x, 4.0, 3).fit(X, y)
    parts = OneBitLasso(3.0, 0.1, quantize_x, 4.0, 3)
    for a, b in [(0, 7), (7, 900), (900, 2000)]:
        parts.partial_fit(X[a:b], y[a:b])
    np.testing.assert_allclose(parts.coef_, whole.coef_, atol=1e-5)
    onwards = OneBitLasso(3.0, 0.1, quantize_x, 4.0, 3).fit(X[:900], y[:900]).partial_fit(X[900:], y[900:])
    np.testing.assert_allclose(onwards.coef_, whole.coef_, atol=1e-5)
    assert onwards.n_samples_seen_ == 2000
    if not quantize_x:
        with pytest.raises(ValueError, match="went when this estimator was pickled"):
            pickle.loads(pickle.dumps(whole)).partial_fit(X, y)
    rule = OneBitLasso(3.0, None, quantize_x, 4.0, 3)
    for a, b in [(0, 700), (700, 2000)]:
        rule.partial_fit(X[a:b] * (1 + a), y[a:b])  # columns that grow: the rule goes by all rows
    assert rule.alpha_ == pytest.approx(clone(rule).fit(np.vstack([X[:700], X[700:] * 701]), y).alpha_)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(whole)).predict(X), whole.predict(X))


def test_completion_parts_clone_and_prediction():
    rng = np.random.default_rng(1)
    at, values = rng.integers(0, 20, (5000, 2)), rng.standard_normal(5000)
    whole = OneBitMatrixCompletion(2.0, 0.01, 1.0, 0).fit(at, values, (20, 20))
    parts = clone(whole)
    parts.partial_fit(at[:100], values[:100], (20, 20)).partial_fit(at[100:], values[100:])
    np.testing.assert_array_equal(parts.matrix_, whole.matrix_)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(whole)).predict(at[:5]), whole.matrix_[at[:5, 0], at[:5, 1]])
    with pytest.raises(ValueError, match="outside the 20 x 20"):
        whole.fit([[0, 20]] * 2, [1.0, 1.0], (20, 20))
    with pytest.raises(ValueError, match="whole numbers"):
        whole.fit([[0.5, 2]] * 2, [1.0, 1.0])


def test_grid_search_and_pipelines():
    X, y, theta = regression(3000, 20, np.random.default_rng(1))
    grid = GridSearchCV(make_pipeline(StandardScaler(), OneBitLasso(3.0, random_state=0)),
                        {"onebitlasso__alpha": [0.01, 0.1, 3.0]}, cv=3).fit(X, y)
    assert grid.best_params_["onebitlasso__alpha"] < 3
    grid = GridSearchCV(DitheredCovariance(random_state=0, psd="project"), {"gamma": [3.0, 30.0]}, cv=3).fit(X)
    assert grid.best_params_ == {"gamma": 3.0}


def test_cross_validated_alpha_is_near_the_best():
    X, y, theta = regression(4000, 60, np.random.default_rng(11))
    chosen = OneBitLasso(3.0, "cv", random_state=0).fit(X, y)
    grid = [np.linalg.norm(OneBitLasso(3.0, m * 3 * np.sqrt(np.log(60) / 4000), random_state=0).fit(X, y).coef_ - theta)
            for m in (0.3, 0.5, 0.7, 1.0)]
    assert np.linalg.norm(chosen.coef_ - theta) < 1.25 * min(grid)


def test_no_copy_of_numpy_arrays():
    X = np.random.default_rng(0).standard_normal((100, 8)).astype(np.float32)
    book = _stats.CodeBook("triangular", 2, [2.0] * 8)
    a = _stats.quantise(X, book)
    assert a == _stats.quantise(np.asfortranarray(X), book) == _stats.quantise(np.repeat(X, 2, axis=1)[:, ::2], book)
    assert a == _stats.quantise(X.astype(float), book)


def test_bits_file_round_trip(tmp_path):
    X = blocks(500, 6, np.random.default_rng(0))
    book = _stats.CodeBook("triangular", 2, [3.0] * 6)
    _stats.write_bits(str(tmp_path / "x.bits"), [_stats.quantise(X[:300], book), _stats.quantise(X[300:], book, first_row=300)])
    counts = _stats.CovarianceCounts(book)
    for block in _stats.BitsReader(str(tmp_path / "x.bits")):
        counts.add(block)
    assert counts == DitheredCovariance(gamma=3.0, random_state=0).fit(X).counts_


@pytest.mark.parametrize("call, message", [
    (lambda: DitheredCovariance(gamma=1.0).fit(np.zeros((0, 3))), "0 sample"),
    (lambda: DitheredCovariance(gamma=1.0).fit(np.zeros((1, 3))), "minimum of 2"),
    (lambda: DitheredCovariance(gamma=-1.0).fit(np.ones((5, 3))), "must not be negative"),
    (lambda: DitheredCovariance(gamma=[1.0, 2.0]).fit(np.ones((5, 3))), "each of the 3 columns"),
    (lambda: DitheredCovariance("one_bit", gamma=1.0).fit(np.ones((5, 3))), "give them"),
    (lambda: DitheredCovariance("twice").fit(np.ones((5, 3))), "one of"),
    (lambda: DitheredCovariance(gamma=1.0).fit(np.array([[1.0, np.inf], [0, 0]])), "infinity"),
    (lambda: OneBitLasso().fit(np.ones((5, 3)), np.arange(5.0)), "column 0 of X is constant"),
    (lambda: OneBitLasso().fit(np.ones((5, 3)), np.arange(4.0)), "inconsistent"),
    (lambda: OneBitLasso(alpha=-1.0).fit(np.eye(5), np.arange(5.0)), "not negative"),
    (lambda: OneBitLasso(alpha=np.nan).fit(np.eye(5), np.arange(5.0)), "not negative"),
    (lambda: OneBitMean(corrupted=-1.0).fit(np.ones((100, 2))), "share of rows"),
    (lambda: OneBitMean(missing="drop").fit(np.ones((100, 2))), "error"),
    (lambda: OneBitMean(missing="mask").fit([[np.nan, 1.0]] * 9), "no value at all"),
    (lambda: DitheredCovariance(random_state=2**64).fit(np.eye(5)), "below 2"),
    (lambda: DitheredCovariance(bits=2.5).fit(np.eye(5)), "whole number"),
    (lambda: DitheredCovariance(threshold=-1.0).fit(np.eye(5)), "from 0 on"),
    (lambda: DitheredCovariance(mask=np.eye(3)).fit(np.eye(5)), "mask has shape"),
    (lambda: DitheredCovariance(gamma=1.0).fit(np.eye(5)).merge(DitheredCovariance()), "not fitted"),
    (lambda: DitheredCovariance(gamma=1.0).fit(np.eye(5)).merge(3), "merges another"),
    (lambda: DitheredCovariance(gamma=1.0, allow_complex=True).fit(1j * np.eye(5)).partial_fit(np.eye(5)), "first call had complex"),
    (lambda: DitheredCovariance(gamma=1.0, allow_complex=True).fit(1j * np.eye(5)).partial_fit(1j * np.eye(4)), "first call had 5"),
    (lambda: arcsine_covariance(np.full((3, 2), np.nan + 1j)), "NaN"),
    (lambda: OneBitMatrixCompletion().fit([[10**12, 0]], [1.0]), "does not fit this machine"),
    (lambda: OneBitMatrixCompletion().fit([[0, 0]], [1.0], (1.5, 2)), "give \\(rows, columns\\)"),
    (lambda: OneBitMatrixCompletion().fit([[0, 0]], [1.0]).predict([[-1, 0]]), "outside the 1 x 1"),
    (lambda: OneBitMatrixCompletion(alpha="x").fit([[0, 0]], [1.0]), "cv"),
])
def test_wrong_calls_are_answered_clearly(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_indices_outside_bits_are_refused_not_read():
    bits = quantise([[1.0], [2.0]], CodeBook("one_bit", 1, [2.0]))
    for call in (lambda: bits.slice(1, 5), lambda: bits.decode(1), lambda: bits.book.step_of(1), lambda: bits.book.privacy_epsilon(9),
                 lambda: OneBitMean(gamma=1.0).fit(np.eye(5)).counts_.rows(5)):
        with pytest.raises(IndexError):
            call()
    assert bits.slice(1, 1).rows == 1


def test_constant_columns_are_named():
    X = np.random.default_rng(0).standard_normal((300, 3))
    X[:, 2] = 5
    with pytest.warns(UserWarning, match="column 2 of X is constant"):
        DitheredCovariance(random_state=0).fit(X)


def test_missing_complex_values_are_left_out():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((20000, 2)) + 1j * rng.standard_normal((20000, 2))
    X[rng.random(X.shape) < 0.3] = np.nan
    fit = DitheredCovariance(gamma=4.0, allow_complex=True, missing="mask", random_state=0).fit(X)
    np.testing.assert_allclose(fit.covariance_, 2 * np.eye(2), atol=0.4)


def test_privacy_follows_truncation():
    X = np.random.default_rng(0).standard_normal((100, 2))
    fit = DitheredCovariance("all_pairs", gamma=4.0, eta=2.0, random_state=0).fit(X)
    np.testing.assert_allclose(fit.privacy_epsilon_, 2 * np.log(3))
    assert np.isinf(DitheredCovariance(gamma=4.0, eta=2.0, random_state=0).fit(X).privacy_epsilon_).all()


def test_complex_covariance_and_arcsine_law():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((100000, 2)) @ np.array([[1], [1j]])
    X = np.hstack([z, 1j * z])
    fit = DitheredCovariance(gamma=4.0, allow_complex=True, assume_centered=True, random_state=0).fit(X)
    np.testing.assert_allclose(fit.covariance_, [[2, -2j], [2j, 2]], atol=0.15)
    np.testing.assert_allclose(arcsine_covariance(X), [[1, -1j], [1j, 1]], atol=0.05)


def test_constant_columns_have_no_variance():
    X = np.random.default_rng(0).standard_normal((4000, 2))
    X[:, 1] = 0
    fit = DitheredCovariance(random_state=0).fit(X)
    assert fit.covariance_[1, 1] == 0 and fit.covariance_[0, 1] == 0
