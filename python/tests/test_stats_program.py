"""`trireme stats` as users call it: tables in, JSON and .npy out, bits kept and pooled, wrong calls answered in one line."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from trireme.stats import DitheredCovariance, OneBitLasso, arcsine_covariance

PROGRAM = os.environ.get("TRIREME_BIN", str(Path(__file__).resolve().parents[2] / "build" / "release" / "trireme"))


def stats(*args, code=0):
    done = subprocess.run([PROGRAM, "stats", *map(str, args)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr


@pytest.fixture
def data(tmp_path):
    X = np.random.default_rng(0).standard_normal((3000, 6))
    X[:, 1] += 0.5 * X[:, 0]
    np.save(tmp_path / "x.npy", X)
    np.savetxt(tmp_path / "x.csv", X, delimiter=",", header="a,b,c,d,e,f", comments="", fmt="%.17g")
    return X


def test_covariance_is_that_of_python(data, tmp_path):
    answer = stats("covariance", tmp_path / "x.npy", "--gamma", 3, "--seed", 7, "-o", tmp_path / "c.npy")
    expected = DitheredCovariance(gamma=3.0, random_state=7).fit(data).covariance_
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), expected)
    assert answer["n"] == 3000 and answer["bits"] == 2
    again = stats("covariance", tmp_path / "x.csv", "--gamma", 3, "--seed", 7, "--threads", 1)
    np.testing.assert_allclose(again["covariance"], expected, atol=1e-12)


def test_bits_are_kept_and_pooled(data, tmp_path):
    for part, rows in (("a", data[:1000]), ("b", data[1000:])):
        np.save(tmp_path / f"{part}.npy", rows)
        stats("covariance", tmp_path / f"{part}.npy", "--gamma", 3, "--stream", ord(part), "--bits-out", tmp_path / f"{part}.bits")
    pooled = stats("covariance", tmp_path / "a.bits", tmp_path / "b.bits")
    assert pooled["n"] == 3000
    assert np.abs(np.array(pooled["covariance"]) - np.cov(data.T)).max() < 0.6
    assert "not independent" in stats("covariance", tmp_path / "a.bits", tmp_path / "a.bits", code=2)


def test_mean_regression_and_completion(data, tmp_path):
    mean = stats("mean", tmp_path / "x.npy", "--gamma", "pilot")
    assert np.abs(np.array(mean["mean"])).max() < 5 * max(mean["standard_error"])
    y = data @ np.array([1, 0, 0, -1, 0, 0]) + 0.1
    np.save(tmp_path / "y.npy", y)
    fit = stats("regression", tmp_path / "x.npy", "--y", tmp_path / "y.npy", "--gamma", 4, "--alpha", 0.05, "--seed", 3)
    centred = OneBitLasso(4.0, 0.05, random_state=3).fit(data - data.mean(axis=0), y - y.mean())
    np.testing.assert_allclose(fit["coefficients"], centred.coef_, atol=1e-6)
    assert stats("regression", tmp_path / "x.npy", "--y", tmp_path / "y.npy", "--quantize-x", "--radius", 3)["path"] == "l1_ball"
    at = np.random.default_rng(1).integers(0, 8, (4000, 2))
    np.save(tmp_path / "e.npy", np.column_stack([at, 0.5 * np.ones(4000)]))
    answer = stats("complete", tmp_path / "e.npy", "--gamma", 1, "--shape", "8x8", "--bound", 1)
    assert answer["rank"] == 1 and np.abs(np.array(answer["matrix"]) - 0.5).mean() < 0.15


def test_thresholds_are_chosen_from_all_rows_and_bits_files(data, tmp_path):
    chosen = stats("covariance", tmp_path / "x.npy", "--gamma", 3, "--seed", 7, "--threshold", "hard", "-o", tmp_path / "c.npy",
                   "--bits-out", tmp_path / "x.bits")
    fit = DitheredCovariance(gamma=3.0, threshold="hard", random_state=7).fit(data)
    assert chosen["threshold_multiple"] == pytest.approx(fit.threshold_multiple_)
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), fit.covariance_)
    again = stats("covariance", tmp_path / "x.bits", "--threshold", "hard")
    assert again["threshold_multiple"] == chosen["threshold_multiple"]
    # Correlated only beyond the first block of 65,536 rows: a choice by that block alone would cut everything off.
    rng = np.random.default_rng(5)
    X = rng.standard_normal((300_000, 2), dtype=np.float32)
    X[65536:, 1] = 0.03 * X[65536:, 0] + X[65536:, 1]
    np.save(tmp_path / "long.npy", X)
    answer = stats("covariance", tmp_path / "long.npy", "--gamma", 3, "--threshold", "hard")
    assert answer["covariance"][0][1] != 0


def test_complex_samples_masks_and_toeplitz(tmp_path):
    rng = np.random.default_rng(3)
    source = rng.standard_normal((20000, 1)) + 1j * rng.standard_normal((20000, 1))
    X = source * np.exp(1j * np.arange(3)) + 0.1 * (rng.standard_normal((20000, 3)) + 1j * rng.standard_normal((20000, 3)))
    common = dict(gamma=4.0, allow_complex=True, random_state=2)
    for dtype in (np.complex64, np.complex128):
        np.save(tmp_path / "z.npy", X.astype(dtype))
        answer = stats("covariance", tmp_path / "z.npy", "--gamma", 4, "--seed", 2, "--toeplitz", "--psd", "project",
                       "--bits-out", tmp_path / "z.bits", "-o", tmp_path / "c.npy")
        fit = DitheredCovariance(toeplitz=True, psd="project", **common).fit(X.astype(dtype))
        np.testing.assert_allclose(np.load(tmp_path / "c.npy"), fit.covariance_, atol=1e-10)
        assert answer["smallest_eigenvalue"] == pytest.approx(fit.smallest_eigenvalue_)
    np.save(tmp_path / "parts.npy", np.hstack([X.real, X.imag]))
    np.save(tmp_path / "mask.npy", np.eye(3))
    for table, flag in (("parts.npy", ["--complex"]), ("z.bits", [])):
        answer = stats("covariance", tmp_path / table, "--gamma", 4, "--seed", 2, *flag)
        both = np.array(answer["covariance"]) + 1j * np.array(answer["covariance_imaginary"])
        np.testing.assert_allclose(both, DitheredCovariance(**common).fit(X).covariance_, atol=1e-10)
        masked = stats("covariance", tmp_path / table, "--gamma", 4, "--seed", 2, "--mask", tmp_path / "mask.npy", *flag)
        np.testing.assert_allclose(masked["covariance"], np.diag(np.diag(both.real)), atol=1e-10)
    mean = stats("mean", tmp_path / "z.npy", "--gamma", 4)
    assert len(mean["mean"]) == len(mean["mean_imaginary"]) == 3 and np.abs(mean["mean"]).max() < 0.2
    assert "only stats mean and stats covariance" in stats("complete", tmp_path / "z.npy", code=2)
    assert "psd project" in stats("covariance", tmp_path / "z.npy", "--psd", "shrink", code=2)


def test_more_bits_by_step_and_the_baselines(data, tmp_path):
    wide = stats("covariance", tmp_path / "x.npy", "--gamma", 6, "--step", 1)
    assert wide["bits"] == DitheredCovariance(gamma=6.0, step=1.0, bits=None).fit(data).bits_per_value_ == 4
    full = stats("covariance", tmp_path / "x.npy", "--method", "full_precision")
    np.testing.assert_allclose(full["covariance"], np.cov(data.T, bias=True), atol=1e-12)
    arcsine = stats("covariance", tmp_path / "x.npy", "--method", "arcsine", "--centred")
    np.testing.assert_allclose(arcsine["covariance"], arcsine_covariance(data), atol=1e-12)


def test_a_constant_column_is_named(tmp_path):
    np.save(tmp_path / "x.npy", np.column_stack([np.arange(9.0), np.full(9, 2.0)]))
    done = subprocess.run([PROGRAM, "stats", "covariance", str(tmp_path / "x.npy")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "column 1 is constant" in done.stderr


@pytest.mark.parametrize("args, message", [
    (("covariance", "none.npy"), "none.npy"),
    (("covariance", "x.txt"), ".npy or .csv"),
    (("covariance", "x.npy", "--gamma", "wide"), "neither a number"),
    (("covariance", "x.npy", "--gamma", "-1"), "must not be negative"),
    (("covariance", "nan.npy"), "row 0, column 0 is NaN"),
    (("covariance", "one.npy"), "at least 2"),
    (("regression", "x.npy", "--y", "one.npy"), "columns"),
    (("complete", "x.npy"), "row, column, value"),
    (("covariance", "empty.npy"), "0 rows; statistics need at least 2"),
    (("covariance", "object.npy"), "element type |O"),
    (("covariance", "x.npy", "--mask", "one.npy"), "the covariance is 6 x 6"),
    (("covariance", "odd.npy", "--complex"), "3 columns; --complex"),
    (("covariance", "x.npy", "--threshold", "hard", "--folds", "4000"), "4000 folds of 3000 rows"),
    (("covariance", "x.npy", "--method", "one_bit"), "known variances"),
    (("covariance", "x.npy", "--method", "arcsine", "--bits-out", "b.bits"), "is a baseline"),
    (("covariance", "x.npy", "--eta", "9", "--gamma", "3"), "truncation (eta)"),
    (("covariance", "x.npy", "--gamma", "nan"), "give a finite number"),
    (("regression", "constant.npy", "--y", "y3.npy"), "column 1 is constant"),
    (("complete", "negative.npy"), "whole numbers from 0"),
    (("complete", "far.npy", "--shape", "2x2"), "outside the 2 x 2 matrix"),
])
def test_wrong_calls_are_answered_in_one_line(data, tmp_path, args, message):
    np.save(tmp_path / "nan.npy", np.full((5, 2), np.nan))
    np.save(tmp_path / "one.npy", np.ones((1, 2)))
    np.save(tmp_path / "empty.npy", np.ones((0, 2)))
    np.save(tmp_path / "object.npy", np.array([[1, None]], dtype=object), allow_pickle=True)
    np.save(tmp_path / "odd.npy", np.ones((4, 3)))
    np.save(tmp_path / "constant.npy", np.array([[1.0, 2.0], [2.0, 2.0], [3.0, 2.0]]))
    np.save(tmp_path / "y3.npy", np.arange(3.0))
    np.save(tmp_path / "negative.npy", np.array([[-1.0, 0, 1], [0, 0, 1]]))
    np.save(tmp_path / "far.npy", np.array([[5.0, 0, 1], [0, 0, 1]]))
    (tmp_path / "x.txt").write_text("1\n")
    known = [str(tmp_path / a) if a.endswith((".npy", ".txt", ".bits")) else a for a in args]
    error = stats(*known, code=2)
    assert message in error and error.count("\n") == 1
