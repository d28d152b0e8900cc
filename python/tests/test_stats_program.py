"""`trireme stats` as users call it: tables in, JSON and .npy out, bits kept and pooled, wrong calls answered in one line."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from trireme.stats import DitheredCovariance, OneBitLasso

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


@pytest.mark.parametrize("args, message", [
    (("covariance", "none.npy"), "none.npy"),
    (("covariance", "x.txt"), ".npy or .csv"),
    (("covariance", "x.npy", "--gamma", "wide"), "neither a number"),
    (("covariance", "x.npy", "--gamma", "-1"), "must not be negative"),
    (("covariance", "nan.npy"), "row 0, column 0 is NaN"),
    (("covariance", "one.npy"), "at least 2"),
    (("regression", "x.npy", "--y", "one.npy"), "columns"),
    (("complete", "x.npy"), "row, column, value"),
])
def test_wrong_calls_are_answered_in_one_line(data, tmp_path, args, message):
    np.save(tmp_path / "nan.npy", np.full((5, 2), np.nan))
    np.save(tmp_path / "one.npy", np.ones((1, 2)))
    (tmp_path / "x.txt").write_text("1\n")
    known = [str(tmp_path / a) if a.endswith((".npy", ".txt")) else a for a in args]
    error = stats(*known, code=2)
    assert message in error and error.count("\n") == 1
