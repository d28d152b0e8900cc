"""What the tests of the program share: the program, a tiny model, a configuration, and how a refusal looks."""
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def program():
    return str(Path(os.environ.get("TRIREME_BIN", ROOT / "build/release/trireme")).resolve())


def environment(**changes):
    """This process's environment without a launcher's variables."""
    kept = {name: value for name, value in os.environ.items() if name not in LAUNCHER_VARIABLES}
    return kept | {"OMP_NUM_THREADS": "1"} | {name: str(value) for name, value in changes.items()}


def trireme(*words, cwd=None, timeout=120, **variables):
    return subprocess.run([program(), *map(str, words)], cwd=cwd, env=environment(**variables), capture_output=True,
                          text=True, errors="replace", timeout=timeout, check=False)


def assert_refused(done, code, *parts):
    """Exit code, and one line of explanation at the end that holds all parts."""
    lines = done.stderr.splitlines()
    told = [line for line in lines if line.startswith("trireme: ")]
    assert done.returncode == code, (done.returncode, done.stderr)
    assert len(told) == 1 and lines[-1] == told[0], done.stderr
    for part in parts:
        assert str(part) in told[0], f"{part!r} is not in {told[0]!r}"
    # Beside the log and the progress of the steps before.
    assert [line for line in lines if not line.startswith(("trireme ", "step "))] == told, "other output:\n" + done.stderr
    assert done.stdout == ""


@pytest.fixture(scope="session")
def export(tmp_path_factory):
    """module, sample inputs -> path of its training graph."""
    import trireme.export

    folder = tmp_path_factory.mktemp("graphs")

    def write(module, sample_inputs, name):
        path = folder / f"{name}.pt2"
        if not path.exists():
            trireme.export.training_graph(module, sample_inputs, path)
        return path

    return write


@pytest.fixture(scope="session")
def graph(export):
    """A next-byte model of two layers; windows of 16 bytes."""
    import torch

    class Bytes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(256, 32)
            self.head = torch.nn.Linear(32, 256)

        def forward(self, tokens, targets):
            return torch.nn.functional.cross_entropy(self.head(self.embed(tokens)).flatten(0, 1), targets.flatten())

    torch.manual_seed(0)
    window = torch.zeros(2, 16, dtype=torch.int64)
    return export(Bytes(), (window, window), "bytes")


@pytest.fixture
def config(tmp_path, graph):
    """A complete configuration file beside its data."""
    data = tmp_path / "text.bin"
    data.write_bytes(bytes(i * i % 251 for i in range(5000)))
    path = tmp_path / "job.toml"
    path.write_text(f"""[model]
graph = "{graph}"
[data]
kind = "bytes"
path = "{data}"
context = 16
[optim]
lr = 0.1
momentum = 0.9
[train]
steps = 4
batch_per_rank = 4
device = "cpu"
""")
    return path


@pytest.fixture
def train(config, tmp_path):
    """trireme train with that configuration; words and --set pairs are added."""

    def run(*words, out=tmp_path / "run", sets=None, config=config, **options):
        pairs = [w for key, value in (sets or {}).items() for w in ("--set", f"{key}={value}")]
        return trireme("train", config, "--out", out, *pairs, *words, **options)

    return run
