#!/usr/bin/env python3
"""A long run whose memory, threads and file descriptors must not grow.

  bench/scenario/failures/soak.py [--steps 1000] [--ranks 2] [--graph model.pt2] [--set section.key=value]…

Reads /proc of every rank ten times a second. After a tenth of the steps nothing may grow any more: threads and
descriptors not at all, memory by at most 2 % and 8 MiB, between the medians of the second and the last tenth. Prints
one JSON object for each of the two wires: "shared memory" (whatever UCX chooses between processes of one machine) and
"network" (TCP over the loopback interface). Exit code 1 when something grew.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from kill_ranks import export, write_config
from ranks import Ranks


def sample(pid):
    """Threads, descriptors, resident bytes; nothing when the process has gone."""
    try:
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
        return {"threads": int(status["Threads"]), "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
                "resident_bytes": int(status["VmRSS"].split()[0]) * 1024}
    except (FileNotFoundError, KeyError, ProcessLookupError):
        return None


def growth(samples, key):
    """Medians of the second and the last tenth."""
    tenth = max(1, len(samples) // 10)
    return tuple(statistics.median(s[key] for s in part) for part in (samples[tenth:2 * tenth], samples[-tenth:]))


def soak(config, out, ranks, steps, words):
    samples = [[] for _ in range(ranks)]
    begin = time.monotonic()
    with Ranks(config, out, ranks, "--set", f"train.steps={steps}", "--set", "train.checkpoint_every=50", *words) as run:
        while len(run.running()) == ranks:
            if 0 < run.steps() < steps:
                for rank, process in enumerate(run.processes):
                    found = sample(process.pid)
                    if found:
                        samples[rank].append(found)
            time.sleep(0.1)
        ends = run.ends(60)
    assert all(code == 0 for code, _ in ends.values()), ends
    result = {"ranks": ranks, "steps": steps, "seconds": round(time.monotonic() - begin, 1), "flat": True}
    for key, allowed in (("threads", 0), ("descriptors", 0), ("resident_bytes", 8 << 20)):
        pairs = [growth(s, key) for s in samples]
        result[key] = [{"early": early, "late": late} for early, late in pairs]
        share = 0.02 if key == "resident_bytes" else 0
        result["flat"] &= all(late - early <= max(allowed, share * early) for early, late in pairs)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--graph", help="a training graph of the byte-level GPT; default: a small one is exported")
    parser.add_argument("--set", action="append", default=[], dest="sets", help="a key of the configuration")
    args = parser.parse_args()
    sets = [word for assignment in args.sets for word in ("--set", assignment)]
    flat = True
    with tempfile.TemporaryDirectory() as folder:
        config = write_config(folder, args.graph or export(folder))
        for wire, words in (("shared memory", []), ("network", ["--set", "transport.interface=lo"])):
            result = soak(config, Path(folder) / wire, args.ranks, args.steps, sets + words)
            print(json.dumps({"wire": wire} | result), flush=True)
            flat &= result["flat"]
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
