#!/usr/bin/env python3
"""Runs every test and ends with "N passed, N failed[, N skipped]"; skipped ones are listed with their reason.

  tools/run_tests.py [--build build/release] [-k TEXT]

Suites, in order: layers (tools/check_layers.py), each CTest unit (gtest cases counted one by one), pytest in
python/tests and tests/multi, README snippets and the short voyage (tests/multi/test_voyage.py).
"""
import argparse
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Count:
    passed: int = 0
    failed: list = field(default_factory=list)
    skipped: list = field(default_factory=list)


def read_junit(file, label, count):
    """Adds a JUnit file's cases; returns how many it held."""
    cases = list(xml.parse(file).getroot().iter("testcase"))
    for case in cases:
        name = f"{label}: {case.get('classname', '')}.{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            count.failed.append(name)
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            skip = case.find("skipped")
            count.skipped.append(f"{name}: {(skip.get('message') if skip is not None else 'not run') or ''}")
        else:
            count.passed += 1
    return len(cases)


def run(command, label, count, report, environment, timeout):
    """Runs one suite. A crash or a suite without cases counts as one failure, so nothing is lost silently."""
    report.unlink(missing_ok=True)
    begin = time.monotonic()
    failed_before = len(count.failed)
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=timeout, check=False)
        output, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        output, code = (error.stdout or b"").decode(errors="replace"), "timeout"
    cases = read_junit(report, label, count) if report.exists() and report.stat().st_size else 0
    if cases == 0 or (code != 0 and len(count.failed) == failed_before):
        count.failed.append(f"{label}: ended with {code} after {cases} cases")
    new = len(count.failed) - failed_before
    print(f"{'FAIL' if new else 'ok  '} {label}: {cases} cases, {time.monotonic() - begin:.1f} s", flush=True)
    if new:
        print(output[-6000:], flush=True)


def gtests(build):
    """The unit test programs that CTest knows, by name."""
    listing = subprocess.run(["ctest", "--test-dir", str(build), "-N", "-V"], capture_output=True, text=True, check=True)
    found = re.findall(r"Test command: (\S+)\n(?:.*\n)*?\s*Test\s*#\d+: (\S+)", listing.stdout)
    return [(name, path) for path, name in found]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/release")
    parser.add_argument("-k", default="", help="only suites whose name contains this")
    args = parser.parse_args()
    build = ROOT / args.build
    reports = build / "reports"
    reports.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ, TRIREME_BIN=str(build / "trireme"), OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1",
                       TRANSFORMERS_OFFLINE="1", PYTHONPATH=str(ROOT / "python"))
    count = Count()
    if args.k in "layers":
        layers = subprocess.run([sys.executable, "tools/check_layers.py"], cwd=ROOT, capture_output=True, text=True, check=False)
        if layers.returncode == 0:
            count.passed += 1
        else:
            count.failed.append("layers")
            print(layers.stdout)
    for name, path in gtests(build):
        if args.k in name:
            report = reports / f"{name}.xml"
            run([path, f"--gtest_output=xml:{report}", "--gtest_brief=1"], name, count, report, environment, 300)
    suites = sorted((ROOT / "python" / "tests").glob("test_*.py")) + sorted((ROOT / "tests" / "multi").glob("test_*.py"))
    for suite in suites:
        if args.k in suite.stem:
            report = reports / f"{suite.stem}.xml"
            run([sys.executable, "-m", "pytest", "-q", "-x" if args.k else "-q", f"--junitxml={report}", "-p",
                 "no:cacheprovider", str(suite)], suite.stem, count, report, environment, 1200)
    for reason in count.skipped:
        print(f"skipped: {reason}")
    for name in count.failed:
        print(f"failed: {name}")
    tail = f", {len(count.skipped)} skipped" if count.skipped else ""
    print(f"{count.passed} passed, {len(count.failed)} failed{tail}")
    return 1 if count.failed or not count.passed else 0


if __name__ == "__main__":
    sys.exit(main())
