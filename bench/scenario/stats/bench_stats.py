#!/usr/bin/env python3
"""One-bit statistics beside NumPy, in one run on the same threads; writes bench/results/stats.json and stats.md.

  python bench/scenario/stats/bench_stats.py [--threads 2] [--quick]

Every side's answer is checked. Ratios are medians over alternating pairs with the interval of the middle two thirds.
"""
import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python"))


def timed(call):
    begin = time.perf_counter()
    result = call()
    return time.perf_counter() - begin, result


def paired(ours, rival, pairs):
    """Median ratio rival / ours with the range that holds the middle two thirds of the pairs."""
    rows = []
    for k in range(pairs):
        order = (ours, rival) if k % 2 else (rival, ours)
        seconds = {call: timed(call)[0] for call in order}
        rows.append((seconds[ours], seconds[rival]))
    ratios = sorted(b / a for a, b in rows)
    cut = pairs // 6
    middle = ratios[cut:pairs - cut]
    return {"ours_s": sorted(a for a, _ in rows)[pairs // 2], "rival_s": sorted(b for _, b in rows)[pairs // 2],
            "ratio": ratios[pairs // 2], "low": middle[0], "high": middle[-1], "pairs": pairs}


def data(n, d, seed=0):
    import numpy as np
    X = np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)
    X[:, 1::4] = 0.6 * X[:, 0::4][:, : X[:, 1::4].shape[1]] + 0.8 * X[:, 1::4]
    return X


def covariance(n, d, threads, pairs, methods):
    import numpy as np
    from trireme.stats import _stats
    X = data(n, d)
    exact = X.T @ X / n
    out = {"n": n, "d": d, "float32_bytes": X.nbytes}
    for method in methods:
        scheme = {"triangular": "triangular", "one_bit": "one_bit"}.get(method, "two_dither")
        book = _stats.CodeBook(scheme, 2 if scheme == "triangular" else 1, [4.0] * d)
        quantise_s, bits = timed(lambda: _stats.quantise(X, book, 1, threads=threads))
        pairing = "raw" if method == "raw" else "all_pairs"

        def ours():
            counts = _stats.CovarianceCounts(book, pairing)
            counts.add(bits, threads)
            return counts

        estimate = ours().second_moment([1.0] * d if scheme == "one_bit" else [])
        off = ~np.eye(d, dtype=bool)
        error = float(np.sqrt(np.mean((estimate - exact)[off] ** 2)))
        limit = {"triangular": 1.1 + 4.9, "all_pairs": 8.9, "raw": 11.4, "one_bit": 16.1}[method] / np.sqrt(n)
        if not error < limit:
            raise SystemExit(f"{method}: off-diagonal error {error} is above {limit}: the answer is wrong")
        row = paired(ours, lambda: X.T @ X, pairs)
        row.update(quantise_s=quantise_s, bytes=bits.nbytes, memory_ratio=X.nbytes / bits.nbytes, off_diagonal_rms=error)
        out[method] = row
        print(f"covariance n={n} d={d} {method}: {row['ours_s']:.3f} s, NumPy {row['rival_s']:.3f} s, "
              f"x{row['ratio']:.2f} [{row['low']:.2f}, {row['high']:.2f}], memory 1/{row['memory_ratio']:.1f}", flush=True)
    return out


def uses_half(n=20000, d=1000):
    """Time of X.T @ X over X.T @ Y: about a half where BLAS knows the product is symmetric."""
    X, Y = data(n, d), data(n, d, 1)
    share = paired(lambda: X.T @ Y, lambda: X.T @ X, 7)["ratio"]
    return {"time_of_xtx_over_xty": share, "symmetric_half": share < 0.8}


def regression(d, n, s, quantize):
    import numpy as np
    from trireme.stats import OneBitLasso
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, d), dtype=np.float32)
    theta = np.zeros(d)
    theta[rng.choice(d, s, replace=False)] = rng.choice([-1, 1], s) / np.sqrt(s)
    y = (X @ theta.astype(np.float32) + 0.5 * rng.standard_normal(n)).astype(np.float32)
    model = OneBitLasso(quantize_x=quantize, radius=1.5 * np.abs(theta).sum() if quantize else None, random_state=0)
    seconds, fit = timed(lambda: model.fit(X, y))
    row = {"n": n, "d": d, "s": s, "quantize_x": quantize, "seconds": seconds, "converged": bool(fit.converged_),
           "error": float(np.linalg.norm(fit.coef_ - theta)), "path": fit.path_,
           "support_found": int(np.sum((fit.coef_ != 0) & (theta != 0))), "support_size": int(np.sum(fit.coef_ != 0))}
    print("regression", row, flush=True)
    return row


def factors(size, rank, kind, rng):
    """Truth within +-1. "signs": sums of products of signs, as strong as the bound lets a matrix be. "gaussian": products of normal
    factors scaled to a largest entry of 1, so that most entries are small, as in real ratings."""
    import numpy as np
    if kind == "signs":
        return rng.choice([-1.0, 1.0], (size, rank)) @ rng.choice([-1.0, 1.0], (rank, size)) / rank
    truth = rng.standard_normal((size, rank)) @ rng.standard_normal((rank, size))
    return truth / np.abs(truth).max()


def completion(size, share, kind, gamma, noise, alpha, rank=2):
    """One fit; the error over all entries is to be read beside the mean square of the truth, which a matrix of zeros would have."""
    import numpy as np
    from trireme.stats import OneBitMatrixCompletion, _stats
    rng = np.random.default_rng(2)
    truth = factors(size, rank, kind, rng)
    n = int(share * size * size)
    at = rng.integers(0, size, (n, 2))
    values = truth[at[:, 0], at[:, 1]] + noise * rng.standard_normal(n)
    penalty = "cv" if alpha == "cv" else alpha * _stats.completion_lambda(gamma, size, size, n)
    model = OneBitMatrixCompletion(gamma=gamma, bound=1.0, alpha=penalty, random_state=0)
    seconds, fit = timed(lambda: model.fit(at, values, (size, size)))
    row = {"size": size, "observed": n, "share": share, "kind": kind, "noise": noise, "gamma": gamma, "alpha": alpha, "seconds": seconds,
           "iterations": fit.n_iter_, "rank": fit.rank_, "converged": bool(fit.converged_),
           "mean_square_error": float(np.mean((fit.matrix_ - truth) ** 2)), "mean_square_of_truth": float(np.mean(truth**2))}
    print("completion", row, flush=True)
    return row


def write(results, folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stats.json").write_text(json.dumps(results, indent=1) + "\n")
    lines = ["# One-bit statistics beside NumPy", "",
             f"{results['machine']}, {results['threads']} threads, kernel {results['kernel']}, NumPy {results['numpy']} "
             f"(`X.T @ X` in float32 {'uses' if results['blas']['symmetric_half'] else 'does not use'} the symmetric half: "
             f"{results['blas']['time_of_xtx_over_xty']:.2f} of the time of `X.T @ Y`). Load at the start: {results['load']:.1f}.",
             "", "| n | d | method | bits, s | NumPy, s | ratio [middle 2/3] | input memory | quantising, s |",
             "|---|---|---|---|---|---|---|---|"]
    for block in [results["covariance"], *results["growth"]]:
        for method in ("triangular", "all_pairs", "raw", "one_bit"):
            if method in block:
                r = block[method]
                lines.append(f"| {block['n']} | {block['d']} | {method} | {r['ours_s']:.3f} | {r['rival_s']:.3f} | {r['ratio']:.2f} "
                             f"[{r['low']:.2f}, {r['high']:.2f}] | 1/{r['memory_ratio']:.1f} | {r['quantise_s']:.2f} |")
    lines += ["", "| regression | n | d | s | s to fit | l2 error | support found / size |", "|---|---|---|---|---|---|---|"]
    for r in results["regression"]:
        kind = "X and y quantised" if r["quantize_x"] else "y quantised"
        lines.append(f"| {kind} | {r['n']} | {r['d']} | {r['s']} | {r['seconds']:.1f} | {r['error']:.3f} | "
                     f"{r['support_found']} / {r['support_size']} |")
    lines += ["", "| completion | observed | s to fit | iterations | rank | mean square error (of truth) |", "|---|---|---|---|---|---|"]
    for r in results["completion"]:
        lines.append(f"| {r['size']} x {r['size']} | {r['observed']} | {r['seconds']:.1f} | {r['iterations']} | {r['rank']} | "
                     f"{r['mean_square_error']:.4f} ({r['mean_square_of_truth']:.4f}) |")
    (folder / "stats.md").write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    args = parser.parse_args()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    import numpy as np
    from trireme.stats import _stats
    scale = 10 if args.quick else 1
    results = {"machine": f"{platform.machine()}, {os.cpu_count()} processors", "threads": args.threads, "numpy": np.__version__,
               "kernel": _stats.kernel_name(), "load": os.getloadavg()[0], "blas": uses_half()}
    results["covariance"] = covariance(100_000 // scale, 1000, args.threads, 9, ["triangular", "all_pairs", "raw", "one_bit"])
    results["growth"] = [covariance(n // scale, d, args.threads, 7, ["triangular", "all_pairs"])
                         for n, d in [(25_000, 1000), (400_000, 250), (100_000, 250), (100_000, 500), (25_000, 2000)]]
    results["regression"] = [regression(10_000 // scale, 20_000 // scale, 20, False),
                             regression(10_000 // scale, 20_000 // scale, 20, True)]
    few = 4 if args.quick else 1
    results["completion"] = [completion(2000 // scale, 0.05 * few, "signs", 1.6, 0.3, 0.75),
                             completion(1000 // scale, 0.1 * few, "signs", 1.6, 0.3, 0.75),
                             completion(2000 // scale, 0.05 * few, "gaussian", 0.5, 0.05, 0.5),
                             completion(2000 // scale, 0.2 * few, "gaussian", 0.5, 0.05, 0.5)]
    if not args.quick:
        write(results, ROOT / "bench" / "results")


if __name__ == "__main__":
    main()
