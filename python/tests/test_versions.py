"""python/torch-version.txt is the one place that names torch versions; what repeats one must agree."""

import re
import runpy
import tomllib
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]


def versions():
    lines = (ROOT / "python/torch-version.txt").read_text().splitlines()
    return dict(line.split() for line in lines if line and not line.startswith("#"))


def test_isolated_builds_use_the_tested_torch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert f"torch=={versions()['tested']}" in project["build-system"]["requires"]


def test_package_depends_on_the_torch_it_was_built_against():
    provider = runpy.run_path(str(ROOT / "python/packaging/built_torch.py"))["dynamic_metadata"]
    assert provider("dependencies") == ["torch==" + torch.__version__.partition("+")[0]]


def test_this_run_uses_the_tested_torch():
    assert torch.__version__.partition("+")[0] == versions()["tested"]


def test_package_and_cmake_agree_on_our_version():
    cmake = re.search(r"project\(Trireme VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    package = re.search(r'__version__ = "([0-9.]+)"', (ROOT / "python/trireme/__init__.py").read_text()).group(1)
    assert cmake == project == package
