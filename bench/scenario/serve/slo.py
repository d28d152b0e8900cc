#!/usr/bin/env python3
"""Above capacity: what `trireme serve` takes keeps its SLO, the rest is refused at once.  slo.py [--seconds 20] [--over 1.5]

Finds the capacity by offering far too much, then offers `--over` times that. Writes bench/results/serve_slo.json.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/multi"), str(ROOT / "python")]
from conftest import program  # noqa: E402
from serving import serving  # noqa: E402


def load(server, rate, seconds, slo_ms, **words):
    extra = [w for key, value in words.items() for w in (f"--{key}", str(value))]
    done = subprocess.run([program(), "load", "--url", f"http://{server.url}", "--model", "mlp", "--rate", str(rate), "--duration",
                           f"{seconds}s", "--slo-ms", str(slo_ms), "--connections", "2000", "--json", *extra],
                          capture_output=True, text=True, check=True, timeout=seconds + 60)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--over", type=float, default=1.5)
    parser.add_argument("--slo-ms", type=float, default=100)
    parser.add_argument("--width", type=int, default=2048)
    args = parser.parse_args()
    os.environ.setdefault("TRIREME_BIN", str(ROOT / "build/release/trireme"))
    import torch

    from trireme import export, models

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.manual_seed(0)
        export.inference_graph(models.MLP(3, args.width).eval(), models.digits(2)[:1], folder / "mlp.pt2")
        toml = f'[[model]]\nname = "mlp"\npath = "mlp.pt2"\nmax_batch = 8\nthreads = 1\nslo_ms = {args.slo_ms}\n'
        with serving(folder, toml, "max_connections = 4000") as server:
            capacity = load(server, 3000, args.seconds / 2, args.slo_ms)["ok_per_s"]
            over = load(server, round(args.over * capacity), args.seconds, args.slo_ms)
    kept = over["p99_ms"] <= args.slo_ms and over["failed"] == 0 and over["rejected_p99_ms"] <= 5
    result = {"slo_ms": args.slo_ms, "capacity_per_s": capacity, "offered_over_capacity": args.over, "load": over, "passed": kept}
    (ROOT / "bench/results/serve_slo.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"capacity {capacity:.0f}/s; at {args.over} times that: {over['ok']} ok with p99 {over['p99_ms']:.1f} ms (SLO {args.slo_ms:.0f}), "
          f"{over['rejected']} refused with p99 {over['rejected_p99_ms']:.2f} ms, {over['failed']} failed")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
