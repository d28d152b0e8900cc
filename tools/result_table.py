#!/usr/bin/env python3
"""Prints the figures of run folders as a Markdown table.

  tools/result_table.py RUN… [--write README.md]     --write replaces the table between the result markers
"""
import argparse
import json
import re
from pathlib import Path

COLUMNS = [("run", lambda name, s: name), ("gradients", lambda name, s: s["codec"]),
           ("ranks", lambda name, s: str(s["world_size"])), ("steps", lambda name, s: str(s["steps"])),
           ("final loss", lambda name, s: f"{s['final_loss']:.3f}"),
           ("held-out loss", lambda name, s: "" if s.get("eval_loss") is None else f"{s['eval_loss']:.3f}"),
           ("median step", lambda name, s: f"{1e3 * s['median_step_s']:.0f} ms"),
           ("samples/s", lambda name, s: f"{s['samples_per_s']:.1f}"),
           ("sent per rank and step", lambda name, s: f"{s['bytes_sent_per_step'] / 1e6:.2f} MB")]


def table(runs):
    rows = [[make(run.name, json.loads((run / "summary.json").read_text())) for _, make in COLUMNS] for run in runs]
    lines = [[title for title, _ in COLUMNS], ["---"] * len(COLUMNS), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    text = table(args.runs)
    print(text)
    if args.write:
        page = args.write.read_text()
        new = re.sub(r"(<!-- result -->\n).*?(<!-- /result -->)", lambda m: m[1] + text + "\n" + m[2], page, flags=re.S)
        args.write.write_text(new)


if __name__ == "__main__":
    main()
