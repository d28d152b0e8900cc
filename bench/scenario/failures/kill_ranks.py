#!/usr/bin/env python3
"""Kills ranks at random moments, resumes, and compares with a run that nobody disturbed.

  bench/scenario/failures/kill_ranks.py [--kills 50] [--ranks 2] [--seed 0] [--graph model.pt2]

Every third kill comes while a checkpoint is being written. After each one all other ranks must end with exit code 1
within 10 s and name the killed one. The run is then resumed from its newest checkpoint; when one has come to its end,
its losses must be those of the undisturbed run, bit for bit, and the next one begins. One JSON object with the figures
on standard output.
"""
import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ranks import KILL, ROOT, Ranks, losses

STEPS = 80
LIMIT_S = 10


def export(folder):
    graph = Path(folder) / "model.pt2"
    subprocess.run([ROOT / ".venv/bin/python", "-m", "trireme.export", "gpt", "--layers", "2", "--width", "128", "--heads",
                    "2", "--context", "32", "-o", graph], check=True, stdout=subprocess.DEVNULL)
    return graph


def write_config(folder, graph):
    config = Path(folder) / "job.toml"
    config.write_text(f"""[model]
graph = "{graph}"
[data]
kind = "bytes"
path = "{ROOT}/data/moby-dick.txt.gz"
context = 32
[optim]
kind = "adamw"
lr = 1e-3
[train]
steps = {STEPS}
batch_per_rank = 2
checkpoint_every = 5
device = "cpu"
threads = 1
[transport]
timeout = "8s"
""")
    return config


class Killer:
    def __init__(self, folder, ranks, seed):
        self.folder, self.count = Path(folder), ranks
        self.random = random.Random(seed)
        self.config = None
        self.seconds, self.while_writing = [], 0
        self.finished = 0

    def undisturbed(self):
        begin = time.monotonic()
        with Ranks(self.config, self.folder / "whole", self.count) as run:
            ends = run.ends(600)
        assert all(code == 0 for code, _ in ends.values()), ends
        self.whole_seconds = time.monotonic() - begin
        self.whole = losses(self.folder / "whole")
        assert sorted(self.whole) == list(range(1, STEPS + 1))

    def wait_for_the_moment(self, run, while_writing):
        end = time.monotonic() + self.random.uniform(0, self.whole_seconds)
        while time.monotonic() < end and len(run.running()) == self.count:
            time.sleep(0.001)
        while while_writing and len(run.running()) == self.count:
            if list(run.out.glob("checkpoints/.tmp-step_*")):
                return True
        return False

    def resume(self, out):
        """Words that continue the run; from its beginning where it has no checkpoint."""
        steps = [int(path.name[5:]) for path in out.glob("checkpoints/step_*")]
        if STEPS in steps:  # killed after its last step
            self.compare(out)
        elif steps:
            return ["--resume", out]
        shutil.rmtree(out, ignore_errors=True)
        return []

    def one(self, number):
        out = self.folder / "run"
        resume = self.resume(out)
        with Ranks(self.config, out, self.count, *resume) as run:
            writing = self.wait_for_the_moment(run, number % 3 == 2)
            if len(run.running()) < self.count:
                self.finish(run)
                return
            victim = self.random.randrange(self.count)
            run.signal(victim, KILL)
            begin = time.monotonic()
            others = [rank for rank in range(self.count) if rank != victim]
            ends = run.ends(LIMIT_S, others)
            took = time.monotonic() - begin
            if run.processes[victim].wait() != -KILL:  # it had just finished
                return
        for rank, (code, line) in ends.items():
            if code == 0:
                continue  # had done its work before it could notice
            assert code == 1 and f"rank {victim}" in line, (victim, rank, code, line)
        self.seconds.append(took)
        self.while_writing += writing

    def finish(self, run):
        ends = run.ends(60)
        assert all(code == 0 for code, _ in ends.values()), ends
        self.compare(run.out)
        shutil.rmtree(run.out)

    def compare(self, out):
        got = losses(out)
        assert got == self.whole, [(s, got.get(s), self.whole[s]) for s in self.whole if got.get(s) != self.whole[s]][:5]
        self.finished += 1

    def to_the_end(self):
        out = self.folder / "run"
        resume = self.resume(out)
        with Ranks(self.config, out, self.count, *resume) as run:
            self.finish(run)


def kill_ranks(folder, kills, ranks=2, seed=0, graph=None):
    """The figures; AssertionError says what went wrong."""
    killer = Killer(folder, ranks, seed)
    killer.config = write_config(folder, graph or export(folder))
    killer.undisturbed()
    while len(killer.seconds) < kills:
        killer.one(len(killer.seconds))
    killer.to_the_end()
    ordered = sorted(killer.seconds)
    return {"kills": len(ordered), "ranks": ranks, "while_writing_a_checkpoint": killer.while_writing,
            "named_within_s": {"median": ordered[len(ordered) // 2], "longest": ordered[-1]},
            "runs_finished_with_equal_losses": killer.finished}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--graph", help="a training graph of the byte-level GPT; default: a small one is exported")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(kill_ranks(folder, args.kills, args.ranks, args.seed, args.graph)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
