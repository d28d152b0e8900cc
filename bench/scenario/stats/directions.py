#!/usr/bin/env python3
"""Directions of arrival by MUSIC from 2 bits a complex sample; prints the guide's table and draws its plots.

A uniform line array of 10 half-wavelength sensors hears three constant-modulus sources (a phase-modulated carrier each), two
strong and one 17 dB weaker. Compared are full precision, the arcsine law on undithered signs (2 bits a sample: one each for
real and imaginary part), one dithered bit for each part (2 bits a sample), and the triangular quantiser (4 bits a sample).
"""
import argparse
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(Path(__file__).parent))

SENSORS = 10
ANGLES = np.deg2rad([-12.0, 3.0, 25.0])
POWERS = np.array([1.0, 1.0, 0.02])
GRID = np.deg2rad(np.arange(-60, 60.01, 0.1))


def steering(angles):
    return np.exp(1j * np.pi * np.arange(SENSORS)[:, None] * np.sin(angles)[None, :])


def snapshots(n, rng, noise=0.03):
    phases = np.exp(2j * np.pi * rng.random((len(ANGLES), n)))
    field = steering(ANGLES) @ (np.sqrt(POWERS)[:, None] * phases)
    field += np.sqrt(noise / 2) * (rng.standard_normal(field.shape) + 1j * rng.standard_normal(field.shape))
    return field.T


def along_diagonals(R):
    lags = np.array([np.mean(np.diagonal(R, -k)) for k in range(len(R))])
    i, j = np.indices(R.shape)
    lower = lags[np.abs(i - j)]
    return np.where(i >= j, lower, lower.conj())


def spectrum(R):
    _, vectors = np.linalg.eigh(R)
    noise = vectors[:, : SENSORS - len(ANGLES)]
    return 1 / np.sum(np.abs(noise.conj().T @ steering(GRID)) ** 2, axis=0)


def peaks(values):
    inner = np.flatnonzero((values[1:-1] > values[:-2]) & (values[1:-1] > values[2:])) + 1
    best = inner[np.argsort(values[inner])[::-1][: len(ANGLES)]]
    return np.sort(np.rad2deg(GRID[best]))


def estimates(X, seed):
    from trireme.stats import DitheredCovariance, arcsine_covariance
    gamma = float(np.max(np.abs(np.concatenate([X.real, X.imag]))))  # a line array's sensors share one range
    common = dict(gamma=gamma, allow_complex=True, assume_centered=True, store_precision=False, toeplitz=True, random_state=seed)
    # MUSIC needs the diagonal only up to a multiple of the identity, so one bit a part will do: any equal variances serve.
    flat = [gamma**2] * (2 * SENSORS)
    return {"full precision": along_diagonals((X.T @ X.conj()) / len(X)),
            "arcsine law, 2 bits": along_diagonals(arcsine_covariance(X)),
            "one dithered bit a part, 2 bits": DitheredCovariance("one_bit", variances=flat, **common).fit(X).covariance_,
            "triangular, 4 bits": DitheredCovariance("triangular", **common).fit(X).covariance_}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--plots", type=Path, default=ROOT / "docs" / "guides" / "images")
    args = parser.parse_args()
    from svg import chart
    truth = np.rad2deg(ANGLES)
    sizes = [3000, 30_000, 300_000]
    rng = np.random.default_rng(0)
    found = {}
    for n in sizes:
        for trial in range(args.trials):
            for name, R in estimates(snapshots(n, rng), trial).items():
                got = peaks(spectrum(R))
                miss = np.abs(got - truth) if len(got) == len(truth) else np.full(len(truth), 90.0)
                found.setdefault(name, {}).setdefault(n, []).append(miss)
    print("| snapshots | " + " | ".join(found) + " |")
    print("|---|" + "---|" * len(found))
    for n in sizes:
        cells = []
        for name in found:
            misses = np.array(found[name][n])
            seen = np.mean(misses.max(axis=1) < 2)
            cells.append(f"{100 * seen:.0f} %, {np.median(misses[:, :2]):.2f}°, {np.median(misses[:, 2]):.2f}°")
        print(f"| {n} | " + " | ".join(cells) + " |")
    series = [(name, np.rad2deg(GRID).tolist(), (10 * np.log10(s / s.max())).tolist())
              for name, s in ((k, spectrum(R)) for k, R in estimates(snapshots(100_000, rng), 1).items())]
    chart(args.plots / "one-bit-directions.svg", "MUSIC spectra, 100,000 snapshots; dashed: true directions", "degrees",
          "dB below the peak", series, marks=truth)


if __name__ == "__main__":
    main()
