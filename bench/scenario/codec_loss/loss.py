#!/usr/bin/env python3
"""Loss of training with each codec against float32, over paired seeds (equal initial weights and batches).

  .venv/bin/python bench/scenario/codec_loss/loss.py [--job mlp|gpt] [--seeds 5] [--ranks 2] [--codec NAME]... [--out FOLDER]

A seed's initial weights come from torch at that seed, its batches from train.seed. The target is float32's median loss at
80 % of the run, losses being means over the last tenth of it; what counts is the number of steps to the target relative to
float32 with the same seed: median and 95 % interval (of the mean of logarithms, by Student's t). A run that does not get there
counts as the run's length, and the table says how often. Writes FOLDER/loss_JOB.json and .md.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Limits on the upper end: 4 bits and up; one or two bits, and sparse.
WIDE, NARROW = 1.10, 1.25
LIMITS = {"none": WIDE, "bf16": WIDE, "fp16": WIDE, "fp8": WIDE, "int8": WIDE, "int4": WIDE, "qsgd": WIDE, "lossless": WIDE}
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}

JOBS = {
    "mlp": {"model": ["mlp", "--width", "256"], "steps": 300, "batch": 32, "data": f'''kind = "idx"
images = "{ROOT}/data/mnist10k-train-images-idx3-ubyte.gz"
labels = "{ROOT}/data/mnist10k-train-labels-idx1-ubyte.gz"''', "optim": 'kind = "sgd"\nlr = 0.05\nmomentum = 0.9'},
    "gpt": {"model": ["gpt", "--layers", "2", "--width", "64", "--heads", "2", "--context", "64"], "steps": 400, "batch": 8,
            "data": f'kind = "bytes"\npath = "{ROOT}/data/moby-dick.txt.gz"\ncontext = 64', "optim": 'kind = "adamw"\nlr = 2e-3\nwarmup = 20'},
}


def smoothed(losses):
    window = max(1, len(losses) // 10)
    return [statistics.mean(losses[max(0, i + 1 - window):i + 1]) for i in range(len(losses))]


def steps_to(losses, target):
    for step, loss in enumerate(smoothed(losses), 1):
        if loss <= target:
            return step
    return None


def interval(ratios):
    """Median and 95 % interval of the ratios."""
    logs = [math.log(r) for r in ratios]
    half = STUDENT[min(len(logs) - 1, 9)] * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    middle = statistics.mean(logs)
    return statistics.median(ratios), math.exp(middle - half), math.exp(middle + half)


class Bench:
    def __init__(self, job, ranks, program, folder):
        self.job, self.ranks, self.program, self.folder = JOBS[job], ranks, program, folder

    def graph(self, seed):
        path = self.folder / f"seed{seed}.pt2"
        if not path.exists():
            subprocess.run([sys.executable, "-m", "trireme.export", *self.job["model"], "--seed", str(seed), "-o", str(path)], check=True,
                           capture_output=True, env=dict(os.environ, PYTHONPATH=str(ROOT / "python")))
        return path

    def losses(self, codec, seed):
        out = self.folder / f"{codec}_{seed}"
        config = self.folder / "job.toml"
        config.write_text(f'''[model]
graph = "{self.graph(seed)}"
[data]
{self.job["data"]}
[optim]
{self.job["optim"]}
[train]
steps = {self.job["steps"]}
batch_per_rank = {self.job["batch"]}
seed = {seed}
device = "cpu"
threads = 1
check_replicas = true
[sync]
codec = "{codec}"
''')
        done = subprocess.run([self.program, "train", config, "--nproc", str(self.ranks), "--out", out], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"{codec}, seed {seed}: {done.stderr.splitlines()[-1]}", file=sys.stderr)
            return None
        summary = json.loads((out / "summary.json").read_text())
        rows = [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]
        return rows, summary["bytes_sent_per_step"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", choices=JOBS, default="mlp")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--codec", action="append")
    parser.add_argument("--out", default=str(ROOT / "bench/results"))
    parser.add_argument("--program", default=str(ROOT / "build/release/trireme"))
    args = parser.parse_args()
    listed = json.loads(subprocess.run([args.program, "codec", "list", "--json"], capture_output=True, text=True, check=True).stdout)
    names = [c["name"] for c in listed if c["name"] != "none" and (not args.codec or c["name"] in args.codec)]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.job, args.ranks, args.program, Path(folder))
        plain = [bench.losses("none", seed) for seed in range(args.seeds)]
        at = int(0.8 * bench.job["steps"])
        target = statistics.median(smoothed(losses)[at - 1] for losses, _ in plain)
        needed = [steps_to(losses, target) or len(losses) for losses, _ in plain]
        bytes_plain = plain[0][1]
        for name in names:
            ratios, missed, failed, sent, final = [], 0, 0, 0, []
            for seed in range(args.seeds):
                run = bench.losses(name, seed)
                if run is None:
                    failed += 1
                    continue
                losses, sent = run
                steps = steps_to(losses, target)
                missed += steps is None
                ratios.append((steps or len(losses)) / needed[seed])
                final.append(smoothed(losses)[-1])
            limit = LIMITS.get(name, NARROW)
            middle, low, high = interval(ratios) if ratios else (math.inf,) * 3
            results.append({"codec": name, "median": middle, "low": low, "high": high, "limit": limit, "missed": missed, "failed": failed,
                            "met": failed == 0 and missed == 0 and high <= limit, "bytes_ratio": sent / bytes_plain,
                            "final_loss": statistics.median(final) if final else None})
            print(f"{name}: {middle:.3f} [{low:.3f}, {high:.3f}] limit {limit}, {missed} missed, {failed} failed", flush=True)
    final_plain = statistics.median(smoothed(losses)[-1] for losses, _ in plain)
    out = Path(args.out)
    facts = {"job": args.job, "steps": bench.job["steps"], "ranks": args.ranks, "seeds": args.seeds, "target": target,
             "fp32_steps": needed, "fp32_final_loss": final_plain, "codecs": results}
    (out / f"loss_{args.job}.json").write_text(json.dumps(facts, indent=1) + "\n")
    lines = [f"Steps to fp32's loss at 80 % of {facts['steps']} steps ({target:.4f}), relative to fp32; {args.job}, {args.ranks} ranks, "
             f"{args.seeds} paired seeds. Written by bench/scenario/codec_loss/loss.py.", "",
             "| codec | bytes / fp32's | median | 95 % interval | limit | met | final loss |", "| --- | --- | --- | --- | --- | --- | --- |",
             f"| none | 1 | 1 | | | | {final_plain:.4f} |"]
    for r in results:
        trouble = "".join(f", {r[key]} {word}" for key, word in (("missed", "did not get there"), ("failed", "failed")) if r[key])
        lines.append(f"| {r['codec']} | {r['bytes_ratio']:.3g} | {r['median']:.3f} | {r['low']:.3f} to {r['high']:.3f} | {r['limit']} | "
                     f"{'yes' if r['met'] else 'no'}{trouble} | {r['final_loss']:.4f} |" if r["final_loss"] is not None else
                     f"| {r['codec']} | | | | {r['limit']} | no{trouble} | |")
    (out / f"loss_{args.job}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
