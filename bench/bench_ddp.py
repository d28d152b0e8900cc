"""Data-parallel training: ours beside PyTorch DDP, in network namespaces, in one go (bench/rivals/REGISTER.md).

    make bench-ddp                              everything, about 45 minutes
    python bench/bench_ddp.py --jobs mlp --links 1gbit --modes fp32
    python bench/bench_ddp.py --quick           one cell, to see that it works; no ratio worth quoting

Each pair launches both sides, in alternating order. A side's time is rank 0's median step, from fetching the batch to
the updated weights, in both. Both sides start from the weights in the same .pt2 file and train on the same batches;
their losses are compared before a time counts.
"""

import argparse
import datetime
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lab import INTERFACE, ROOT, BenchError, Lab, median, median_interval, rate_mbit, run_ranks

DATA = ROOT / "data"
RIVAL = ROOT / "bench/rivals/ddp_rival.py"
PYTHON = sys.executable
LINK_SHARE = 0.9  # of the rate; a link that delivers less gives no ratio

JOBS = {
    "gpt": {
        "title": "GPT, 10.89 M",
        "export": ["gpt", "--layers", "6", "--width", "384", "--heads", "6", "--context", "128"],
        "config": f"""
[data]
kind = "bytes"
path = "{DATA}/moby-dick.txt.gz"
context = 128
shuffle = false
[optim]
kind = "adamw"
lr = 1e-3
betas = [0.9, 0.95]
""",
        "batch": 2,
    },
    "mlp": {
        "title": "MLP, 5.82 M",
        "export": ["mlp"],
        "config": f"""
[data]
kind = "idx"
images = "{DATA}/mnist10k-train-images-idx3-ubyte.gz"
labels = "{DATA}/mnist10k-train-labels-idx1-ubyte.gz"
shuffle = false
[optim]
kind = "sgd"
lr = 0.02
momentum = 0.9
""",
        "batch": 256,
    },
}

# What is exchanged: our settings, the rival's candidates (the fastest of them counts), and how far losses may differ.
MODES = {
    "fp32": {"sync": "auto", "reduce": "fp32", "variants": ["fp32", "fp32@5"], "tolerance": 1e-3},
    "bf16": {"sync": "auto", "reduce": "bf16", "variants": ["bf16", "bf16@5"], "tolerance": 3e-2},
    "floor": {"sync": "off", "reduce": "fp32", "variants": ["noop"], "tolerance": None},
    "single": {"sync": "auto", "reduce": "fp32", "variants": ["eager"], "tolerance": 1e-3},
}

# Warm-up steps (DDP rebuilds its buckets after the first) and measured ones; slow links get fewer.
STEPS = {"single": (3, 8), "unlimited": (3, 8), "1gbit": (3, 6), "100mbit": (2, 3)}


class Bench:
    def __init__(self, args, folder):
        self.args = args
        self.folder = Path(folder)
        self.graphs = {}

    def graph(self, job):
        if job not in self.graphs:
            path = self.folder / f"{job}.pt2"
            command = [PYTHON, "-m", "trireme.export", *JOBS[job]["export"], "-o", str(path)]
            subprocess.run(command, env=self.environment(), check=True, stdout=subprocess.DEVNULL)
            self.graphs[job] = path
        return self.graphs[job]

    def environment(self, **more):
        path = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
        return dict(os.environ, PYTHONPATH=path, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", **more)

    def ours(self, lab, job, mode, total_steps):
        """Rank 0's rows of metrics.jsonl."""
        out = self.folder / "run"
        shutil.rmtree(out, ignore_errors=True)
        config = self.folder / "job.toml"
        config.write_text(
            f'[model]\ngraph = "{self.graph(job)}"\n{JOBS[job]["config"]}'
            f'[train]\nsteps = {total_steps}\nbatch_per_rank = {JOBS[job]["batch"]}\nthreads = 1\n'
            f'[sync]\nstrategy = "{MODES[mode]["sync"]}"\n[precision]\nreduce = "{MODES[mode]["reduce"]}"\n'
            + (f'[transport]\ninterface = "{INTERFACE}"\n' if lab else "")
        )
        command = [str(self.args.trireme), "train", str(config), "--out", str(out)]
        self.launch(lab, lambda rank: command, self.rank_environment)
        return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]

    @staticmethod
    def rank_environment(lab, rank, port):
        world = {"RANK": str(rank), "WORLD_SIZE": str(lab.hosts), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        return world | {"MASTER_ADDR": lab.address(0), "MASTER_PORT": str(port)}

    def theirs(self, lab, job, mode, steps):
        """For each variant: rank 0's result, with the loss averaged over ranks as ours is."""
        port = _free_port()
        warm, measured = steps

        def command(rank):
            world = ["--rank", str(rank), "--world", str(lab.hosts if lab else 1)]
            wire = ["--store", f"tcp://{lab.address(0)}:{port}", "--interface", INTERFACE] if lab else []
            return [PYTHON, str(RIVAL), "--job", job, "--graph", str(self.graph(job)), *world, *wire,
                    "--variants", ",".join(MODES[mode]["variants"]), "--warm", str(warm), "--steps", str(measured)]  # fmt: skip

        outputs = self.launch(lab, command, lambda lab, rank, port: {"GLOO_SOCKET_IFNAME": INTERFACE})
        ranks = [[json.loads(line) for line in output.splitlines()] for output in outputs]
        results = {}
        for of_ranks in zip(*ranks):
            losses = [sum(step) / len(step) for step in zip(*(rank["losses"] for rank in of_ranks))]
            results[of_ranks[0]["variant"]] = of_ranks[0] | {"losses": losses}
        return results

    def launch(self, lab, command, more_environment):
        """One process for each host, each on a core of its own; without a lab one process here."""
        cores = sorted(os.sched_getaffinity(0))
        if not lab:
            return run_ranks([["taskset", "-c", str(cores[-1]), *command(0)]], [self.environment()], 600)
        port = _free_port()
        commands, environments = [], []
        for rank in range(lab.hosts):
            pinned = ["taskset", "-c", str(cores[rank % len(cores)])]
            commands.append([*lab.inside(rank), *pinned, *command(rank)])
            environments.append(self.environment(**more_environment(lab, rank, port)))
        return run_ranks(commands, environments, 600)

    def cell(self, lab, job, link, mode):
        """All pairs of one cell, without a verdict on the link."""
        warm, measured = (1, 2) if self.args.quick else STEPS[link]
        pairs = []
        for number in range(self.args.pairs):
            pair = {}
            for side in ("ours", "theirs") if number % 2 == 0 else ("theirs", "ours"):
                if side == "ours":
                    sent = lab.sent_bytes(0) if lab else 0
                    rows = self.ours(lab, job, mode, warm + measured)
                    pair["sent"] = (lab.sent_bytes(0) if lab else 0) - sent
                    pair["ours_s"] = median([row["step_s"] for row in rows[warm:]])
                    pair["ours_loss"] = rows[-1]["loss"]
                else:
                    results = self.theirs(lab, job, mode, (warm, measured))
                    pair["theirs_s"] = {name: median(result["step_s"]) for name, result in results.items()}
                    pair["theirs_loss"] = {name: result["losses"][-1] for name, result in results.items()}
                    pair["theirs_sent"] = {name: result["tx_per_step"] for name, result in results.items()}
            self.check_losses(job, mode, pair)
            pairs.append(pair)
            self.progress(job, link, mode, number, pair)
        row = {"job": job, "link": link, "mode": mode, "warm": warm, "steps": measured, "pairs": pairs}
        return row | self.summarise(pairs, self.sent_per_step(lab, job, mode, warm + measured, pairs))

    def sent_per_step(self, lab, job, mode, total_steps, pairs):
        """From two run lengths, so that what a run sends once (the weights, the handshake) does not count."""
        if not lab:
            return 0
        before = lab.sent_bytes(0)
        self.ours(lab, job, mode, 1)
        return (median([pair["sent"] for pair in pairs]) - (lab.sent_bytes(0) - before)) / (total_steps - 1)

    @staticmethod
    def check_losses(job, mode, pair):
        tolerance = MODES[mode]["tolerance"]
        for variant, loss in pair["theirs_loss"].items():
            if tolerance is not None and abs(pair["ours_loss"] / loss - 1) > tolerance:
                raise BenchError(
                    f"{job} {mode}: our loss is {pair['ours_loss']}, that of {variant} is {loss}: the two sides do not "
                    "train the same model"
                )

    @staticmethod
    def summarise(pairs, sent):
        variants = pairs[0]["theirs_s"]
        best = min(variants, key=lambda name: median([pair["theirs_s"][name] for pair in pairs]))
        ratios = [pair["theirs_s"][best] / pair["ours_s"] for pair in pairs]
        return {
            "ours_s": median([pair["ours_s"] for pair in pairs]),
            "theirs_s": {name: median([pair["theirs_s"][name] for pair in pairs]) for name in variants},
            "best": best,
            "ratio": median(ratios),
            "ratio_interval": median_interval(ratios),
            "ours_sent_per_step": sent,
            "theirs_sent_per_step": median([pair["theirs_sent"][best] for pair in pairs]),
        }

    def progress(self, job, link, mode, number, pair):
        theirs = ", ".join(f"{name} {seconds * 1e3:.0f}" for name, seconds in pair["theirs_s"].items())
        print(
            f"{job} {link} {mode} pair {number + 1}/{self.args.pairs}: ours {pair['ours_s'] * 1e3:.0f} ms, {theirs} ms",
            file=sys.stderr,
            flush=True,
        )

    def link(self, lab, link):
        """Both jobs over one link, which is checked before and after each cell."""
        lab.set_rate(link)
        rate = rate_mbit(link)
        seconds = 2 if self.args.quick else 4
        before = lab.delivered_mbit(seconds)
        rows = []
        for job in self.args.jobs:
            for mode in self.args.modes:
                if mode == "single" or (mode == "floor" and link != "unlimited"):
                    continue
                row = self.cell(lab, job, link, mode)
                after = lab.delivered_mbit(seconds)
                row |= {"link_mbit": [before, after], "link_good": rate is None or min(before, after) >= LINK_SHARE * rate}
                if not row["link_good"]:
                    row |= {"ratio": None, "ratio_interval": None}
                rows.append(row)
                before = after
        return rows

    def run(self):
        rows = []
        if "single" in self.args.modes:
            rows += [self.cell(None, job, "single", "single") | {"link_good": True} for job in self.args.jobs]
        if set(self.args.modes) - {"single"}:
            with Lab(2) as lab:
                for link in self.args.links:
                    rows += self.link(lab, link)
        return rows


def _free_port():
    # Inside a namespace of our own nobody else listens; the number only has to differ between two launches in a row.
    return random.randint(20000, 40000)


def _milliseconds(seconds):
    return f"{seconds * 1e3:.0f}" if seconds >= 0.0995 else f"{seconds * 1e3:.1f}"


def _ratio(row):
    if not row["link_good"]:
        return "none: link under 90 % of its rate"
    interval = row["ratio_interval"]
    text = f"**{row['ratio']:.2f}**"
    return text + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else " (too few pairs for an interval)")


def markdown(report):
    lines = [
        "# Data-parallel training, ours beside PyTorch DDP",
        "",
        f"Written by `bench/bench_ddp.py` on {report['date']}: torch {report['torch']}, {report['machine']}, "
        f"commit {report['commit']}. Two ranks, one core and one thread each; setting and rules: "
        "[REGISTER.md](../rivals/REGISTER.md). Times are milliseconds per step (batch, forward, backward, exchange, "
        "update), medians over pairs; the ratio is theirs / ours, median of the pairs with its 95 % interval, so above 1 "
        "ours is faster. MB per step and rank by the interface's counter.",
        "",
        "| job | link | exchange | ours | PyTorch, best setting | others | theirs / ours | MB ours | MB theirs | link, Mbit/s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in report["rows"]:
        best = row["best"]
        others = ", ".join(f"{n} {_milliseconds(s)}" for n, s in row["theirs_s"].items() if n != best)
        network = row["mode"] not in ("floor", "single")
        sent = [f"{row[key] / 1e6:.2f}" if network else "" for key in ("ours_sent_per_step", "theirs_sent_per_step")]
        link = ", ".join(f"{mbit:.0f}" for mbit in row.get("link_mbit", []))
        lines.append(
            f"| {JOBS[row['job']]['title']} | {row['link']} | {row['mode']} | {_milliseconds(row['ours_s'])} "
            f"| {_milliseconds(row['theirs_s'][best])} ({best}) | {others} | {_ratio(row)} | {sent[0]} | {sent[1]} | {link} |"
        )
    lines += [
        "",
        "`single`: one process without network against PyTorch eager. `floor`: the machinery without an exchange. "
        "`@5`: 5 MB buckets. Link: TCP payload in both directions at once, before and after, the slower direction; "
        "unlimited links have no rate to check.",
        "",
    ]
    return "\n".join(lines)


def describe(rows):
    def output(*command):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    models = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    import torch

    return {
        "version": 1,
        "kind": "bench_ddp",
        "date": datetime.date.today().isoformat(),
        "commit": output("git", "rev-parse", "--short", "HEAD") or "unknown",
        "torch": torch.__version__,
        "machine": f"{len(models)} cores {models[0] if models else platform.machine()}",
        "load": os.getloadavg()[0],
        "rows": rows,
    }


def choices(allowed):
    def parse(text):
        names = text.split(",")
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(allowed)}")
        return names

    return parse


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    links = [name for name in STEPS if name != "single"]
    parser.add_argument("--jobs", type=choices(JOBS), default=list(JOBS), help="comma separated")
    parser.add_argument("--links", type=choices(links), default=links, help="comma separated")
    parser.add_argument("--modes", type=choices(MODES), default=list(MODES), help="comma separated")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--trireme", type=Path, default=ROOT / "build/release/trireme")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results", help="folder of ddp.json and ddp.md")
    parser.add_argument("--quick", action="store_true", help="MLP over 1 Gbit/s in fp32, two pairs; writes bench/out")
    args = parser.parse_args(argv)
    if args.quick:
        args.jobs, args.links, args.modes, args.pairs = ["mlp"], ["1gbit"], ["fp32"], 2
        if args.out == parser.get_default("out"):
            args.out = ROOT / "bench/out"
    elif args.pairs < 7:
        parser.error("--pairs: at least 7, or --quick")
    if not args.trireme.exists():
        parser.error(f"--trireme {args.trireme}: no such program; run `make`")
    return args


def main(argv=None):
    args = arguments(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-ddp-") as folder:
            report = describe(Bench(args, folder).run())
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "ddp.json").write_text(json.dumps(report, indent=1) + "\n")
    text = markdown(report)
    (args.out / "ddp.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
