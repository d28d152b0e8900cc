"""All-reduce of 40 MB between two hosts: our transports beside gloo and Open MPI, in one go (bench/rivals/REGISTER.md).

    make bench-transport                                  everything, about 30 minutes
    python bench/bench_transport.py --links 1gbit --pairs 3 --sides tcp,ucx,gloo

Links: tools/netlab.sh (veth, token buckets), and bench/delay_line.py for those with a delay. One core for each rank.
Every side checks its sums. Processor seconds are those of the rank's process between start and end of the calls.
"""

import argparse
import datetime
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from delay_line import DelayedLab
from lab import INTERFACE, ROOT, BenchError, Lab, median, median_interval, rate_mbit, run_ranks

RIVAL = str(ROOT / "bench/rivals/all_reduce_rival.py")
ELEMENTS = 10_000_000
GIGABYTES = ELEMENTS * 4e-9  # that a rank sends in a call: 2 (N - 1) / N of the data, N = 2
LINK_SHARE = 0.9
LINKS = ["unlimited", "1gbit", "100mbit", "1gbit+20ms", "1gbit+80ms"]
OURS = {f"tcp x{n}" if n > 1 else "tcp": ["--kind", "tcp", "--connections", str(n)] for n in (1, 2, 4, 8)}
OURS["ucx"] = ["--kind", "ucx"]
SIDES = [*OURS, "gloo", "mpi"]
TITLES = {"gloo": "gloo (PyTorch)", "mpi": "Open MPI, ring"}


def repeats(link):
    """Calls in one launch: slow links get fewer."""
    return {"unlimited": 15, "100mbit": 2}.get(link, 5)


class Bench:
    def __init__(self, args):
        self.args = args
        self.cores = sorted(os.sched_getaffinity(0))

    def lab(self, link):
        rate, _, delay = link.partition("+")
        return DelayedLab(float(delay[:-2]) / 1e3, rate) if delay else Lab(2, rate)

    def pinned(self, lab, rank):
        return [*lab.inside(rank), "taskset", "-c", str(self.cores[rank % len(self.cores)])]

    def measure(self, lab, side, elements, repeat):
        """The slower rank's median, and both ranks' processor seconds, averaged."""
        port = random.randint(20000, 32000)  # below the range from which the kernel takes ports
        size = ["--elements", str(elements), "--repeat", str(repeat)]
        if side == "mpi":
            outputs = self.mpirun(lab, size)
        else:
            commands = [[*self.pinned(lab, rank), *self.command(lab, side, rank, port), *size] for rank in range(2)]
            environment = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME=INTERFACE)
            outputs = run_ranks(commands, [environment] * 2, 300)
        ranks = [json.loads(output) for output in outputs]
        if not all(rank.get("right", True) for rank in ranks):
            raise BenchError(f"{side}: wrong sums")
        return max(rank["median_s"] for rank in ranks), sum(rank["cpu_s"] for rank in ranks) / 2

    def command(self, lab, side, rank, port):
        if side == "gloo":
            store = f"tcp://{lab.address(0)}:{port}"
            return [sys.executable, RIVAL, "gloo", "--rank", str(rank), "--world", "2", "--store", store]
        return [str(self.args.comm_run), "--mode", "bench", "--rank", str(rank), "--size", "2", "--host", lab.address(0),
                "--port", str(port), "--interface", INTERFACE, *OURS[side]]  # fmt: skip

    def mpirun(self, lab, size):
        """Starts the second rank through a remote shell that enters its namespace."""
        with tempfile.TemporaryDirectory() as folder:
            agent = Path(folder) / "agent"
            enter = " ".join(lab.inside(1))
            agent.write_text(f'#!/bin/sh\nshift\nexec {enter} unshare -u sh -c "hostname host1; $*"\n')
            agent.chmod(0o755)
            command = [*lab.inside(0), "mpirun", "--allow-run-as-root", "-np", "2", "--host",
                       f"{lab.address(0)},{lab.address(1)}", "--bind-to", "none", "--mca", "plm_rsh_agent", str(agent),
                       "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", INTERFACE,
                       "--mca", "oob_tcp_if_include", INTERFACE, "--mca", "mpi_yield_when_idle", "1",
                       "--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "4",
                       "sh", "-c", f'exec taskset -c $((OMPI_COMM_WORLD_RANK % {len(self.cores)})) "$@"', "sh",
                       sys.executable, RIVAL, "mpi", *size]  # fmt: skip
            return [line for line in run_ranks([command], [dict(os.environ)], 300)[0].splitlines() if line.startswith("{")]

    def link(self, link):
        """Every side in alternating order, `pairs` times; a side that cannot run here is left out and says why."""
        sides, absent = list(self.args.sides), {}
        runs = {side: [] for side in sides}
        with self.lab(link) as lab:
            before = lab.delivered_mbit(3)
            for number in range(self.args.pairs):
                for side in sides if number % 2 == 0 else reversed(sides):
                    if side in absent:
                        continue
                    try:
                        seconds, cpu = self.measure(lab, side, ELEMENTS, repeats(link))
                        latency = self.measure(lab, side, 1, 50 if "ms" in link else 500)[0]
                    except BenchError as error:
                        if side != "mpi":
                            raise
                        absent[side] = str(error).strip().splitlines()[-1]
                        continue
                    runs[side].append({"seconds": seconds, "cpu_s_per_gb": cpu / GIGABYTES, "latency_s": latency})
                    print(f"{link} {number + 1}/{self.args.pairs} {side}: {seconds * 1e3:.1f} ms, "
                          f"{cpu / GIGABYTES:.2f} CPU s/GB, 4 bytes {latency * 1e6:.0f} us", file=sys.stderr, flush=True)  # fmt: skip
            after = lab.delivered_mbit(3)
        rate = rate_mbit(link.partition("+")[0])
        good = rate is None or "ms" in link or min(before, after) >= LINK_SHARE * rate
        rows = [self.row(side, runs, good) for side in sides if runs[side]]
        return {"link": link, "link_mbit": [before, after], "link_good": good, "absent": absent, "rows": rows}

    @staticmethod
    def row(side, runs, good):
        mine = runs[side]
        row = {key: median([run[key] for run in mine]) for key in ("seconds", "cpu_s_per_gb", "latency_s")}
        row |= {"side": side, "mbit": ELEMENTS * 32e-6 / row["seconds"], "runs": mine}
        if good and side != "gloo" and len(runs.get("gloo", [])) == len(mine):
            for key, name in (("seconds", "time"), ("cpu_s_per_gb", "cpu")):
                ratios = [own[key] / other[key] for own, other in zip(mine, runs["gloo"])]
                row[f"{name}_of_gloo"] = {"median": median(ratios), "interval": median_interval(ratios)}
        return row


def text_of(ratio):
    if ratio is None:
        return ""
    interval = ratio["interval"]
    return f"{ratio['median']:.2f}" + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "")


def markdown(report):
    lines = [
        "# Transports: all-reduce of 40 MB between two hosts",
        "",
        f"Written by `bench/bench_transport.py` on {report['date']}: {report['machine']}, commit {report['commit']}, load "
        f"{report['load'][0]:.1f} at the start and {report['load'][1]:.1f} at the end. {report['pairs']} launches of each "
        "side in alternating order; medians. `x2`: connections of the pair. Mbit/s is what a rank sends while it receives "
        "as much. CPU: processor seconds of a rank for each GB sent. Ratios to gloo are medians over pairs, with their 95 % "
        "interval where there are enough pairs. Rules and settings: [REGISTER.md](../rivals/REGISTER.md).",
    ]
    for result in report["links"]:
        before, after = result["link_mbit"]
        lines += [
            "",
            f"## {result['link']}",
            f"Link, both directions at once: {before:.0f} Mbit/s before, {after:.0f} after."
            + ("" if result["link_good"] else " **Under 90 % of its rate: no ratios.**"),
            "",
            "| side | ms | Mbit/s | CPU s/GB | 4 bytes, µs | time / gloo | CPU / gloo |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for row in result["rows"]:
            lines.append(
                f"| {TITLES.get(row['side'], row['side'])} | {row['seconds'] * 1e3:.1f} | {row['mbit']:.0f} "
                f"| {row['cpu_s_per_gb']:.2f} | {row['latency_s'] * 1e6:.0f} | {text_of(row.get('time_of_gloo'))} "
                f"| {text_of(row.get('cpu_of_gloo'))} |"
            )
        lines += [f"\n{TITLES.get(side, side)} did not run: {why}" for side, why in result["absent"].items()]
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--links", type=words, default=LINKS)
    parser.add_argument("--sides", type=words, default=SIDES)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--comm-run", type=Path, default=ROOT / "build/release/comm_run")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results/transport")
    args = parser.parse_args()
    for name, known in ((args.links, LINKS), (args.sides, SIDES)):
        if set(name) - set(known):
            parser.error(f"{', '.join(set(name) - set(known))}: choose from {', '.join(known)}")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    models = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    report = {"kind": "bench.transport", "version": 1, "date": datetime.date.today().isoformat(), "pairs": args.pairs,
              "machine": f"{len(models)} x {models[0]}, Linux {platform.release()}", "commit": commit.stdout.strip(),
              "load": [os.getloadavg()[0]] * 2, "links": []}  # fmt: skip
    for link in args.links:
        report["links"].append(Bench(args).link(link))
        report["load"][1] = os.getloadavg()[0]
        # After every link, so that an end in between keeps what was measured.
        args.out.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
        args.out.with_suffix(".md").write_text(markdown(report))
    print(markdown(report))


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench_transport: {error}")
