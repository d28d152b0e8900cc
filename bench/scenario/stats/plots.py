#!/usr/bin/env python3
"""Draws docs/guides/images/one-bit-covariance.svg: operator-norm error of the covariance against n for each method."""
import argparse
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(Path(__file__).parent))


def main():
    from svg import chart
    from tables import block_covariance, blocks, fit_covariance
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=8)
    args = parser.parse_args()
    rng, truth, sizes = np.random.default_rng(0), block_covariance(60), [1000 * 2**k for k in range(7)]
    errors = {name: [] for name in ("raw, 2 bits", "all pairs, 2 bits", "triangular, 2 bits", "triangular, 4 bits", "full precision")}
    for n in sizes:
        found = {name: [] for name in errors}
        for t in range(args.trials):
            X = blocks(n, 60, rng)
            fits = [fit_covariance(X, "raw", 3.0, t), fit_covariance(X, "all_pairs", 3.0, t), fit_covariance(X, "triangular", 3.0, t),
                    fit_covariance(X, "triangular", 4.0, t, bits=4), X.T @ X / n]
            for name, A in zip(errors, fits):
                found[name].append(np.linalg.norm(A - truth, 2))
        for name in errors:
            errors[name].append(float(np.mean(found[name])))
    chart(ROOT / "docs" / "guides" / "images" / "one-bit-covariance.svg", "Covariance of 60 columns, gamma 3 (4 bits: gamma 4)",
          "rows n", "operator-norm error", [(name, sizes, ys) for name, ys in errors.items()], log_x=True, log_y=True)
    print({name: [round(y, 3) for y in ys] for name, ys in errors.items()})


if __name__ == "__main__":
    main()
