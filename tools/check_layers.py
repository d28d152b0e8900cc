#!/usr/bin/env python3
"""Checks that arrows only go down: reads every #include "trireme/..." and every trireme_module(DEPS ...).

A folder may include itself, and the folders that its CMakeLists.txt names in DEPS (base and spec by name too). Levels
come from the tree in ARCHITECTURE.md. It also checks the torch fence (a file that includes torch headers is named
*_torch.*, and a file that includes fmt or spdlog never includes them) and that one file alone reads the environment.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEVELS = [["base"], ["spec"], ["tensor", "solver"], ["codec", "transport", "cost"],
          ["comm", "plan", "dsl", "graph"], ["train", "serve", "deploy", "stats"]]
LEVEL = {folder: i for i, row in enumerate(LEVELS) for folder in row}
TORCH = re.compile(r'#include [<"](torch|ATen|c10|caffe2)/')
FMT = re.compile(r'#include [<"](fmt|spdlog)/')
OURS = re.compile(r'#include "trireme/([a-z_]+)/([^"]+)"')


def declared_deps(folder):
    text = (folder / "CMakeLists.txt").read_text()
    deps = set()
    for call in re.findall(r"trireme_module\((.*?)\n?\)", text, re.S):
        match = re.search(r"DEPS\s+([a-z_\s]+)", call)
        deps |= set(match.group(1).split()) if match else set()
    return deps


def problems():
    source = ROOT / "src" / "trireme"
    for folder in sorted(p for p in source.iterdir() if p.is_dir()):
        name = folder.name
        if name not in LEVEL:
            yield f"{folder.relative_to(ROOT)}: not a folder of ARCHITECTURE.md; name its level in {Path(__file__).name}"
            continue
        deps = declared_deps(folder)
        for dep in sorted(deps):
            if LEVEL.get(dep, 99) >= LEVEL[name]:
                yield f"{name}/CMakeLists.txt: DEPS {dep} is not below {name}"
        for file in sorted(folder.rglob("*")):
            if file.suffix not in (".h", ".cc"):
                continue
            text = file.read_text()
            where = file.relative_to(ROOT)
            for target, rest in OURS.findall(text):
                if target != name and target not in deps:
                    yield f"{where}: includes trireme/{target}/{rest}, but {name} does not declare {target}"
                if not (source / target / rest).exists():
                    yield f"{where}: includes trireme/{target}/{rest}, which does not exist"
            behind = TORCH.search(text) or re.search(r'#include "trireme/[^"]*_torch\.h"', text)
            yield from fence_problems(file, text, behind)
    for folder in ("apps", "python", "bench", "examples"):  # may include any of our folders
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix not in (".h", ".cc"):
                continue
            text = file.read_text()
            for target, rest in OURS.findall(text):
                if not (source / target / rest).exists():
                    yield f"{file.relative_to(ROOT)}: includes trireme/{target}/{rest}, which does not exist"
            yield from fence_problems(file, text, TORCH.search(text))


def fence_problems(file, text, torch):
    where = file.relative_to(ROOT)
    if torch and "_torch" not in file.name:
        yield f"{where}: includes torch headers but is not named *_torch.*"
    if torch and FMT.search(text):
        yield f"{where}: includes both torch and fmt or spdlog headers"
    if re.search(r"\bgetenv\b|\benviron\b", text) and file.name != "environment.cc":
        yield f"{where}: reads the environment, which only base/environment.cc does"


def main():
    found = list(problems())
    for line in found:
        print(line)
    print(f"layers: {len(found)} problem(s)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
