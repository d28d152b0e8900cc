"""The console script of the installed package, over a stand-in for the program."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PACKAGE = Path(__file__).resolve().parents[1] / "trireme"
INSTALLED = torch.__version__.partition("+")[0]


@pytest.fixture
def site(tmp_path):
    """A site folder with the package as pip installs it."""
    package = tmp_path / "trireme"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "*.so", "bin", "_build.py"))
    (package / "_build.py").write_text(f'TORCH_VERSION = "{INSTALLED}"\n')
    (package / "bin").mkdir()
    program = package / "bin/trireme"
    program.write_text('#!/bin/sh\necho "$@"\necho "$LD_LIBRARY_PATH"\nexit 7\n')
    program.chmod(0o755)
    return tmp_path


def call(site, *words):
    code = "import trireme._program; trireme._program.main()"
    environment = dict(os.environ, PYTHONPATH=str(site))
    return subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_hands_over_words_and_exit_code_and_finds_torch_elsewhere(site):
    done = call(site, "train", "a b.toml")
    assert done.returncode == 7
    words, libraries = done.stdout.splitlines()
    assert words == "train a b.toml"
    assert libraries.split(":")[0] == str(Path(torch.__file__).parent / "lib")


def test_another_torch_than_the_one_built_against_is_refused(site):
    (site / "trireme/_build.py").write_text('TORCH_VERSION = "2.0.1"\n')
    done = call(site)
    assert done.returncode == 2
    assert f"built against torch 2.0.1, but torch {INSTALLED} is installed" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_package_without_the_program_says_how_to_get_it(site):
    shutil.rmtree(site / "trireme/bin")
    done = call(site)
    assert done.returncode == 2
    assert "pip install ." in done.stderr
