#!/usr/bin/env python3
"""Deployment searches over measured tables: ours beside plain BO, CherryPick, Ernest, random and BoTorch, against the oracle.

A probe's speed is drawn about the table's by the spread of its repeats; training then runs at the table's speed with a drift that
grows linearly over the job to at most +-5 %, drawn anew for each search. Total time and money are those of the simulated training,
not of the prediction. Writes bench/results/search.{json,md}.   bench_search.py [--seeds N] [--workers N] [--skip-botorch]
"""
import argparse
import json
import math
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "python"), str(Path(__file__).parent)]
import jobs as tables  # noqa: E402

import trireme  # noqa: E402

MARGIN = 0.05
BUDGETS, DEADLINES = (1.5, 2, 2.5, 4), (1.2, 1.5, 2, 3)
OURS = {"heterbo": {"method": "heterbo"}, "heterbo, 4 side by side": {"method": "heterbo", "parallel": 4},
        "plain BO": {"method": "bo"}, "CherryPick": {"method": "cherrypick"}, "Ernest": {"method": "ernest"},
        "random, 8 probes": {"method": "random"}}


def cells():
    """(space, goal, multiple): budgets are multiples of the cheapest training, deadlines of the fastest."""
    for space in ("trimtuner", "scout"):
        yield from ((space, "budget", m) for m in BUDGETS)
        yield from ((space, "deadline", m) for m in DEADLINES)
    yield from (("large", "budget", m) for m in (2, 5))  # $40 and $100: the paper's order of limits


def limits_of(job, goal, multiple):
    if goal == "budget":
        return math.inf, multiple * job.least_usd
    return multiple * job.least_hours, math.inf


def run_ours(job, folder, goal, deadline, budget, measure, options, seed):
    limit = {"budget_usd": budget} if goal == "budget" else {"deadline_hours": deadline}
    result = trireme.search({"samples": job.samples}, goal={"scenario": goal, "margin": MARGIN, **limit},
                            space={"offers": str(folder / "offers.csv"), "deployments": str(folder / f"{job.name}.csv")}, search={"seed": seed, **options},
                            probe=lambda instance, nodes: measure((instance, nodes)))
    chosen = result["chosen"] and (result["chosen"]["instance"], result["chosen"]["nodes"])
    return chosen, result["spent"]["hours"], result["spent"]["usd"], len(result["probes"])


def one(task):
    """One search and the training after it."""
    name, job, offers, goal, multiple, seed = task
    rng = random.Random(f"{job.name} {goal} {multiple} {seed}")
    drift = rng.uniform(-0.05, 0.05)
    draws = {d: math.exp(rng.gauss(0, job.noise[d])) for d in sorted(job.speeds)}  # the same for all methods
    deadline, budget = limits_of(job, goal, multiple)

    def measure(deployment):
        if deployment not in job.speeds or job.speeds[deployment] == 0:
            return {"samples_per_s": 0.0, "error": "does not run"}
        return {"samples_per_s": job.speeds[deployment] * draws[deployment], "relative_sd": job.noise[deployment]}

    begun = time.perf_counter()
    if name == "BoTorch":
        import botorch_rival
        chosen, _, hours, usd, probes = botorch_rival.search(
            job, lambda d: measure(d)["samples_per_s"], deadline * (1 - MARGIN), budget * (1 - MARGIN))
    else:
        chosen, hours, usd, probes = run_ours(job, offers, goal, deadline, budget, measure, OURS[name], seed)
    row = {"method": name, "space": job.space, "job": job.name, "goal": goal, "multiple": multiple, "seed": seed, "probes": probes,
           "probe_hours": hours, "probe_usd": usd, "search_s": time.perf_counter() - begun, "chosen": chosen,
           "feasible_first": tables.feasible_first(job, deadline * (1 - MARGIN), budget * (1 - MARGIN))}
    best = tables.oracle(job, deadline, budget)
    bound = tables.oracle(job, deadline, budget, tables.first_probes(job))
    index = 0 if goal == "budget" else 1
    row["bound"] = bound[index] / best[index] if bound and best else None
    if chosen:
        real = job.training(chosen, job.speeds[chosen] * (1 + drift / 2))
        row["hours"], row["usd"] = real[0] + hours, real[1] + usd
        row["over"] = row["hours"] > deadline * (1 + 1e-9) or row["usd"] > budget * (1 + 1e-9)
        row["ratio"] = (row["hours"], row["usd"])[index] / best[index] if best else None
    return row


def quantile(values, q):
    values = sorted(values)
    at = q * (len(values) - 1)
    low = int(at)
    return values[low] + (at - low) * (values[min(low + 1, len(values) - 1)] - values[low])


def summary(rows):
    chosen = [r for r in rows if r["chosen"]]
    ratios = [r["ratio"] for r in chosen if r.get("ratio")]
    bounds = [r["bound"] for r in rows if r["bound"]]
    return {"searches": len(rows), "none_found": len(rows) - len(chosen), "over": sum(r["over"] for r in chosen),
            "over_with_feasible_first": sum(r["over"] for r in chosen if r["feasible_first"]),
            "probes": statistics.mean(r["probes"] for r in rows), "probe_usd": statistics.mean(r["probe_usd"] for r in rows),
            "total_usd": statistics.mean(r["usd"] for r in chosen) if chosen else None,
            "ratio_median": quantile(ratios, 0.5) if ratios else None, "ratio_p90": quantile(ratios, 0.9) if ratios else None,
            "bound_median": quantile(bounds, 0.5) if bounds else None, "bound_p90": quantile(bounds, 0.9) if bounds else None,
            "search_ms": 1e3 * statistics.median(r["search_s"] for r in rows)}


def compare(rows, rival):
    """Paired by cell, job and seed, where both sides chose: probe money, total money, and the goal's quantity."""
    key = lambda r: (r["job"], r["goal"], r["multiple"], r["seed"])  # noqa: E731
    ours = {key(r): r for r in rows if r["method"] == "heterbo" and r["chosen"]}
    pairs = [(ours[key(r)], r) for r in rows if r["method"] == rival and r["chosen"] and key(r) in ours]
    if not pairs:
        return None
    mean = lambda f: statistics.mean(f(a) for a, _ in pairs)  # noqa: E731
    mean_rival = lambda f: statistics.mean(f(b) for _, b in pairs)  # noqa: E731
    usd, total, ratio = (lambda r: r["probe_usd"]), (lambda r: r["usd"]), (lambda r: r["ratio"] or 1)
    return {"pairs": len(pairs), "probe_usd_ratio": mean_rival(usd) / mean(usd), "total_usd_ratio": mean_rival(total) / mean(total),
            "our_ratio_to_oracle": mean(ratio), "rival_ratio_to_oracle": mean_rival(ratio),
            "rival_over": sum(b["over"] for _, b in pairs), "our_over": sum(a["over"] for a, _ in pairs)}


def cell(value, digits=2):
    return "–" if value is None else f"{value:.{digits}f}"


def markdown(document):
    lines = ["# Deployment search", "", f"Written by `make bench-search`; {document['seeds']} seeds, margin {MARGIN:.0%}, "
             "measurement noise and drifting speed as the bench says. Ratio: total time (budgets) or money (deadlines) over the "
             "oracle's, which probes nothing. Bound: an oracle that first pays the same initial probes. Over: the simulated training "
             "broke the limit; in brackets those where the initial design held a feasible deployment.", ""]
    for group, methods in document["tables"].items():
        lines += [f"## {group}", "", "| method | searches | none found | over | probes | probe $ | total $ | ratio median | p90 | "
                  "bound median | p90 | search ms |", "| --- |" + " --- |" * 11]
        for name, s in methods.items():
            lines.append(f"| {name} | {s['searches']} | {s['none_found']} | {s['over']} ({s['over_with_feasible_first']}) | "
                         f"{s['probes']:.1f} | {s['probe_usd']:.2f} | {cell(s['total_usd'])} | {cell(s['ratio_median'], 3)} | "
                         f"{cell(s['ratio_p90'], 3)} | {cell(s['bound_median'], 3)} | {cell(s['bound_p90'], 3)} | {s['search_ms']:.1f} |")
        lines += ["", "| heterbo against | pairs | their probe $ / ours | their total $ / ours | ratio to oracle, ours, mean | theirs | "
                  "over, ours | theirs |", "| --- |" + " --- |" * 7]
        for rival, c in document["comparisons"][group].items():
            lines.append(f"| {rival} | {c['pairs']} | {c['probe_usd_ratio']:.2f} | {c['total_usd_ratio']:.2f} | "
                         f"{c['our_ratio_to_oracle']:.3f} | {c['rival_ratio_to_oracle']:.3f} | {c['our_over']} | {c['rival_over']} |")
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--botorch-seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=max(1, os.cpu_count() or 1))
    parser.add_argument("--skip-botorch", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    spaces = {"trimtuner": tables.trimtuner(), "scout": tables.scout(), "large": tables.large()}
    with tempfile.TemporaryDirectory() as folder:
        offers = {}
        for space, all_jobs in spaces.items():
            offers[space] = Path(folder) / space
            offers[space].mkdir()
            (offers[space] / "offers.csv").write_text(all_jobs[0].offers_csv(), encoding="utf-8")
            for job in all_jobs:
                rows = "".join(f"{m},{n}\n" for m, n in job.speeds)
                (offers[space] / f"{job.name}.csv").write_text("instance,nodes\n" + rows, encoding="utf-8")
        methods = list(OURS) + ([] if args.skip_botorch else ["BoTorch"])
        tasks = [(name, job, offers[space], goal, multiple, seed) for space, goal, multiple in cells() for job in spaces[space]
                 for name in methods for seed in range(args.botorch_seeds if name == "BoTorch" else args.seeds)]
        with multiprocessing.Pool(args.workers) as pool:
            rows = []
            for i, row in enumerate(pool.imap_unordered(one, tasks, chunksize=16)):
                rows.append(row)
                if i % 2000 == 0:
                    print(f"{i} of {len(tasks)} searches", file=sys.stderr, flush=True)
    groups = {}
    for row in rows:
        groups.setdefault(f"{row['space']}, {row['goal']}", []).append(row)
    document = {"kind": "bench_search", "version": 1, "seeds": args.seeds, "margin": MARGIN, "tables": {}, "comparisons": {}}
    for group, members in groups.items():
        document["tables"][group] = {m: summary([r for r in members if r["method"] == m]) for m in methods}
        found = {m: compare(members, m) for m in methods if m != "heterbo"}
        document["comparisons"][group] = {m: c for m, c in found.items() if c}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "search.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (args.out / "search.md").write_text(markdown(document), encoding="utf-8")
    print(markdown(document))


if __name__ == "__main__":
    main()
