"""Every bad input is answered by one clear line that names the file or key, with exit code 2 (wrong call or input) or 1
(failure while running), and nothing that existed is lost."""
import json
import os
import shutil
import socket
import subprocess
import zipfile

import pytest
from conftest import ROOT, assert_refused, environment, program, trireme

RANDOM = bytes(37 * i * i % 256 for i in range(4000))


def rewrite_archive(source, target, change):
    """Copies a .pt2, with `change(name, content)` deciding each entry's bytes."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, change(entry.filename, old.read(entry)))
    return target


# --- wrong calls ----------------------------------------------------------------------------------------------------


def test_wrong_flags_and_commands():
    assert_refused(trireme("trains"), 2, "unknown command trains", "did you mean train?")
    assert_refused(trireme(), 2, "trireme --help")
    assert_refused(trireme("train", "--frobnicate"), 2, "--frobnicate", "trireme train --help")
    assert_refused(trireme("train"), 2, "CONFIG.toml")
    assert_refused(trireme("train", "x.toml", "--nproc", "0"), 2, "--nproc")
    assert_refused(trireme("train", "x.toml", "--nproc", "two"), 2, "--nproc")
    assert_refused(trireme("report"), 2, "runs")


def test_help_and_version_fit_a_screen():
    for words in (["--help"], ["train", "--help"], ["report", "--help"], ["doctor", "--help"]):
        done = trireme(*words)
        assert done.returncode == 0 and "Example:" in done.stdout and done.stderr == ""
        assert len(done.stdout.splitlines()) <= 40
        assert max(map(len, done.stdout.splitlines())) <= 120
    assert trireme("--version").stdout.startswith("trireme ")


def test_reference_of_configuration_keys():
    done = trireme("train", "--help-config")
    assert done.returncode == 0
    for part in ("[model]", "graph", "[optim]  ", "[[optim.group]]", "[transport]", "auto | ring | two_phase | gather | off"):
        assert part in done.stdout


# --- the configuration ----------------------------------------------------------------------------------------------


def test_configuration_that_is_no_file(train, tmp_path):
    assert_refused(train(config=tmp_path / "absent.toml"), 2, tmp_path / "absent.toml", "No such file")
    assert_refused(train(config=tmp_path), 2, tmp_path, "is a folder")


def test_empty_configuration(train, tmp_path):
    empty = tmp_path / "empty.toml"
    empty.touch()
    assert_refused(train(config=empty), 2, "model.graph is not set")


def test_configuration_of_random_bytes(train, tmp_path):
    broken = tmp_path / "broken.toml"
    broken.write_bytes(RANDOM)
    assert_refused(train(config=broken), 2, f"{broken}:1: not valid TOML")


def test_unknown_key(train, config):
    config.write_text(config.read_text() + "stepps = 3\n")
    line = len(config.read_text().splitlines())
    assert_refused(train(), 2, f"{config}:{line}: unknown key train.stepps", "did you mean train.steps?")


def test_unknown_key_on_the_command_line(train):
    assert_refused(train(sets={"optim.momentun": 0.5}), 2, "--set optim.momentun=0.5", "did you mean optim.momentum?")


@pytest.mark.parametrize("key, value, part", [
    ("train.steps", 0, "must be 1 or more"),
    ("train.batch_per_rank", -4, "must be 1 or more"),
    ("train.batch_per_rank", 1000000, "1000000"),
    ("train.batch_per_rank", 2**62, "at most"),
    ("train.accumulate", 2**62, "at most"),
    ("transport.timeout", "1e300s", "at most"),
    ("transport.latency", "1e300s", "at most"),
    ("train.steps", "9" * 20, "64 bits, 1 or more"),
    ("model.freeze", "['zzz']", "model.freeze: 'zzz' matches no parameter"),
    ("train.steps", "many", "must be a whole number"),
    ("optim.kind", "adm", 'did you mean "adam"?'),
    ("optim.lr", "nan", "finite"),
    ("sync.codec", "gzip", "unknown codec 'gzip'"),
    ("sync.codec", "bf17", "did you mean 'bf16'"),
    ("shard.strategy", "full", "must be none"),
    ("transport.kind", "loopback2", "tcp"),
    ("transport.rate_limit", "fast", "not a rate"),
    ("data.kind", "csv", "must be bytes | idx | safetensors | tokens"),
    ("data.context", 100000, "data"),
])
def test_impossible_value(train, key, value, part):
    assert_refused(train(sets={key: value}), 2, key.split(".")[1] if key == "train.batch_per_rank" else key, part)


# --- the graph ------------------------------------------------------------------------------------------------------


def refuse_graph(train, path, *parts):
    assert_refused(train(sets={"model.graph": path}), 2, path, *parts)


def test_graph_that_is_no_file(train, tmp_path):
    refuse_graph(train, tmp_path / "absent.pt2", "No such file")
    refuse_graph(train, tmp_path, "is a folder")


def test_empty_graph(train, tmp_path):
    path = tmp_path / "empty.pt2"
    path.touch()
    refuse_graph(train, path)


def test_graph_of_random_bytes(train, tmp_path):
    path = tmp_path / "random.pt2"
    path.write_bytes(RANDOM)
    refuse_graph(train, path)


@pytest.mark.parametrize("kept", [0.2, 0.7, 0.99])
def test_truncated_graph(train, tmp_path, graph, kept):
    path = tmp_path / "cut.pt2"
    content = graph.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    refuse_graph(train, path)


def test_broken_json_inside_the_graph(train, tmp_path, graph):
    def cut(name, content):
        return content[: len(content) // 2] if name.endswith("models/model.json") else content

    refuse_graph(train, rewrite_archive(graph, tmp_path / "json.pt2", cut), "model.json")


def test_weight_of_wrong_size_inside_the_graph(train, tmp_path, graph):
    def cut(name, content):
        return content[:-4] if name.endswith("data/weights/weight_0") else content

    refuse_graph(train, rewrite_archive(graph, tmp_path / "weight.pt2", cut), "weight_0")


def test_weight_of_wrong_shape_in_a_weights_file(train, tmp_path):
    import torch
    from safetensors.torch import save_file

    path = tmp_path / "w.safetensors"
    good = {"embed.weight": torch.zeros(256, 32), "head.weight": torch.zeros(256, 32), "head.bias": torch.zeros(256)}
    save_file(good | {"head.bias": torch.zeros(255)}, path)
    assert_refused(train(sets={"model.weights": path}), 2, path, "head.bias", "255", "256")
    save_file({name: value for name, value in good.items() if name != "head.bias"}, path)
    assert_refused(train(sets={"model.weights": path}), 2, path, "head.bias")
    save_file(good | {"tail.bias": torch.zeros(1)}, path)
    assert_refused(train(sets={"model.weights": path}), 2, path, "tail.bias")
    assert_refused(train(sets={"model.weights": tmp_path / "no.safetensors"}), 2, tmp_path / "no.safetensors")


def test_unknown_operator(train, export):
    import torch

    @torch.library.custom_op("harbour::moor", mutates_args=())
    def moor(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @moor.register_fake
    def _(x):
        return torch.empty_like(x)

    class Moored(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(256, 4)

        def forward(self, tokens, targets):
            return moor(self.embed(tokens)).mean() + targets.float().mean()

    window = torch.zeros(2, 16, dtype=torch.int64)
    path = export(Moored(), (window, window), "moored")
    # The recorded Python line is this file's.
    refuse_graph(train, path, "harbour::moor", "test_bad_input.py")


def test_wrong_input_type(train, export):
    import torch

    class Floats(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(16, 1)

        def forward(self, x, y):
            return (self.layer(x) - y).square().mean()

    path = export(Floats(), (torch.zeros(2, 16), torch.zeros(2, 16)), "floats")
    assert_refused(train(sets={"model.graph": path}), 2, "i64", "f32", "'x'")


# --- data -----------------------------------------------------------------------------------------------------------


def test_data_that_is_no_file(train, tmp_path):
    assert_refused(train(sets={"data.path": tmp_path / "absent"}), 2, tmp_path / "absent")
    assert_refused(train(sets={"data.path": tmp_path}), 2, tmp_path, "folder")


def test_data_that_is_too_small(train, tmp_path):
    empty = tmp_path / "empty.bin"
    empty.touch()
    assert_refused(train(sets={"data.path": empty}), 2, "empty.bin")


def test_data_that_is_not_what_it_says(train, tmp_path):
    path = tmp_path / "random.gz"
    path.write_bytes(b"\x1f\x8b" + RANDOM)
    assert_refused(train(sets={"data.path": path}), 2, path)
    idx = {"data.kind": "idx", "data.path": "", "data.images": path, "data.labels": path}
    assert_refused(train(sets=idx), 2, path)


def special_files(folder):
    """A pipe that nobody writes, a device without end, a socket."""
    os.mkfifo(folder / "pipe")
    (folder / "device").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(folder / "socket"))
    return [folder / name for name in ("pipe", "device", "socket")]


@pytest.mark.parametrize("key", ["config", "model.graph", "model.weights", "data.path", "data.eval_path", "data.images",
                                 "data.labels"])
def test_special_files(train, tmp_path, key):
    idx = {"data.kind": "idx", "data.path": "", "data.images": ROOT / "data/mnist10k-test-images-idx3-ubyte.gz",
           "data.labels": ROOT / "data/mnist10k-test-labels-idx1-ubyte.gz"}
    for path in special_files(tmp_path):
        if key == "config":
            done = train(config=path, timeout=20)
        else:
            done = train(sets=(idx if key in idx and key != "data.path" else {}) | {key: path}, timeout=20)
        assert_refused(done, 2, path, "not a regular file")


def write_safetensors(path, **tensors):
    from safetensors.torch import save_file

    save_file(tensors, path)
    return {"data.kind": "safetensors", "data.path": path, "data.context": 128, "data.shuffle": "false"}


@pytest.fixture(scope="session")
def classes(export):
    """Three classes from 4 numbers and a token of 10: inputs x, token, label."""
    import torch

    class Classes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(10, 4)
            self.head = torch.nn.Linear(4, 3)

        def forward(self, x, token, label):
            return torch.nn.functional.cross_entropy(self.head(x + self.embed(token)), label)

    return export(Classes(), (torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)),
                  "classes")


@pytest.mark.parametrize("where, value, parts", [
    (("label", 5), 77, ("tensor 'label', sample 5 holds 77", "Target 77 is out of bounds")),
    (("token", 6), 10, ("tensor 'token', sample 6 holds 10", "does not take")),
    (("token", 7), -1, ("tensor 'token', sample 7 holds -1", "does not take")),
])
def test_index_out_of_range_is_the_data_s(train, classes, tmp_path, where, value, parts):
    import torch

    tensors = {"x": torch.rand(8, 4), "token": torch.arange(8), "label": torch.arange(8) % 3}
    tensors[where[0]][where[1]] = value
    sets = write_safetensors(tmp_path / "d.safetensors", **tensors) | {"model.graph": classes}
    assert_refused(train(sets=sets), 2, tmp_path / "d.safetensors", *parts)


@pytest.mark.parametrize("sample, told", [(2, "step 1, rank 0: loss NaN"), (6, "step 2, rank 0: loss NaN")])
def test_not_a_number_in_the_data(train, classes, tmp_path, sample, told):
    import torch

    tensors = {"x": torch.rand(8, 4), "token": torch.arange(8), "label": torch.arange(8) % 3}
    tensors["x"][sample, 1] = float("nan")
    sets = write_safetensors(tmp_path / "d.safetensors", **tensors) | {"model.graph": classes}
    done = train(sets=sets | {"train.checkpoint_every": 1})
    line = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and line.endswith(
        f"{told}; {tmp_path}/d.safetensors: tensor 'x', sample {sample} holds NaN; mend the data"), done.stderr


def test_divergence_gives_only_advice_that_helps(train, export):
    import torch

    class Root(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, tokens, targets):
            nothing = (tokens + targets).float().mean() * 0
            return (self.weight.sum() - 1 + nothing).log()

    window = torch.zeros(2, 16, dtype=torch.int64)
    line = train(sets={"model.graph": export(Root(), (window, window), "root")}).stderr.splitlines()[-1]
    assert "step 1, rank 0: loss" in line and "optim.lr" not in line and "checkpoint" not in line
    done = train(sets={"optim.lr": 1e38, "train.checkpoint_every": 1, "optim.momentum": 0})
    line = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and "optim.lr" in line, line


def test_idx_labels_out_of_range(train, export, tmp_path):
    import torch

    class Few(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(784, 2)

        def forward(self, images, labels):
            return torch.nn.functional.cross_entropy(self.head(images.flatten(1)), labels)

    labels = ROOT / "data/mnist10k-test-labels-idx1-ubyte.gz"
    path = export(Few(), (torch.zeros(2, 1, 28, 28), torch.zeros(2, dtype=torch.int64)), "few")
    done = train(sets={"model.graph": path, "data.kind": "idx", "data.path": "", "data.labels": labels,
                       "data.images": ROOT / "data/mnist10k-test-images-idx3-ubyte.gz"})
    assert_refused(done, 2, f"{labels}, sample ", "the largest of this batch")


def test_keys_without_effect_are_told_once(train):
    done = train("--nproc", "2", sets={"optim.betas": "[0.5, 0.5]", "transport.kind": "tcp", "transport.connections": 2})
    assert done.returncode == 0 and done.stderr.count("has no effect") == 1
    assert 'optim.betas has no effect with optim.kind = "sgd"' in done.stderr


# --- folders --------------------------------------------------------------------------------------------------------


def test_resume_from_nothing(train, tmp_path):
    assert_refused(train("--resume", tmp_path / "absent"), 2, tmp_path / "absent")
    assert_refused(train("--resume", tmp_path), 2, tmp_path, "checkpoint")


def test_out_that_is_a_file(train, config):
    assert_refused(train(out=config), 2, config)


def test_a_second_run_does_not_overwrite_the_first_ones_checkpoints(train, tmp_path):
    assert train().returncode == 0
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    assert_refused(train(sets={"train.seed": 1}), 2, tmp_path / "run", "--resume")
    assert before == {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}


def test_report_of_a_folder_that_is_no_run(tmp_path):
    assert_refused(trireme("report", tmp_path, "-o", tmp_path / "r.html"), 2, tmp_path)
    assert not (tmp_path / "r.html").exists()


def broken_texts(text):
    """Cut short, bytes that are no text, and a whole document of another kind."""
    return [text[: len(text) // 2], b'{"config": "' + RANDOM, b"[1, 2]", b""]


def assert_one_short_line(done, *parts):
    assert_refused(done, 2, *parts)
    assert len(done.stderr) < 600 and done.stderr.isascii() and "resolved" not in done.stderr, done.stderr


def test_broken_files_of_a_run(train, tmp_path):
    run = tmp_path / "run"
    assert train().returncode == 0
    page = ("report", run, "-o", tmp_path / "r.html")
    for name in ("summary.json", "metrics.jsonl"):
        good = (run / name).read_bytes()
        # Rows before a last one that is cut short are the report of a run that was interrupted.
        for text in broken_texts(good)[slice(1, 3) if name == "metrics.jsonl" else slice(4)]:
            (run / name).write_bytes(text)
            assert_one_short_line(trireme(*page), run / name)
        (run / name).write_bytes(good)
    index = run / "checkpoints/step_4/index.json"
    good = index.read_bytes()
    for text in broken_texts(good):
        index.write_bytes(text)
        assert_one_short_line(train("--resume", run, out=run, sets={"train.steps": 6}), index)
    index.write_bytes(good)
    (run / "summary.json").unlink()
    (run / "metrics.jsonl").write_bytes(b"")
    assert_one_short_line(trireme(*page), run, "no finished step")
    (run / "metrics.jsonl").unlink()
    special_files(tmp_path)[0].rename(run / "metrics.jsonl")
    assert_one_short_line(trireme(*page, timeout=20), run / "metrics.jsonl", "not a regular file")


def test_report_does_not_replace_a_device(train, tmp_path):
    assert train().returncode == 0
    (tmp_path / "device").symlink_to("/dev/null")
    assert_refused(trireme("report", tmp_path / "run", "-o", tmp_path / "device"), 2, "device", "not a regular file")
    assert (tmp_path / "device").is_char_device()


# --- the network ----------------------------------------------------------------------------------------------------


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_port_taken(train):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = train(RANK=0, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    assert_refused(done, 1, port, "taken", "MASTER_PORT")


def test_doctor_is_called_wrongly():
    assert_refused(trireme("doctor", "--peer", "127.0.0.1:99999"), 2, "--peer 127.0.0.1:99999", "1 to 65535")
    assert_refused(trireme("doctor", "--peer", "127.0.0.1:ssh"), 2, "1 to 65535")
    assert_refused(trireme("doctor", "--timeout", "x"), 2, "--timeout")
    assert_refused(trireme("doctor", "--timeout", "0s"), 2, "--timeout", "above 0")


def test_nobody_opens_the_store(train):
    port = free_port()
    done = train(sets={"transport.timeout": "2s"}, RANK=1, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    assert_refused(done, 1, f"127.0.0.1:{port}", "MASTER_ADDR")


def test_a_rank_that_never_comes(train):
    done = train(sets={"transport.timeout": "2s"}, RANK=0, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1",
                 MASTER_PORT=free_port(), timeout=60)
    assert_refused(done, 1, "rank 1", "2")


def test_launcher_variables_that_make_no_sense(train):
    assert_refused(train(RANK=0), 2, "WORLD_SIZE is not set")
    assert_refused(train(RANK=2, WORLD_SIZE=2, MASTER_ADDR="x", MASTER_PORT=1), 2, "RANK='2'")
    assert_refused(train("--nproc", "2", RANK=0, WORLD_SIZE=1), 2, "--nproc", "RANK")


def test_interface_that_does_not_exist(train):
    done = train(sets={"transport.interface": "eth77", "transport.timeout": "5s"}, RANK=0, WORLD_SIZE=2,
                 MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())
    assert_refused(done, 2, "eth77")


# --- a full disk ----------------------------------------------------------------------------------------------------


def may_mount():
    probe = ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=64k none /mnt"]
    return shutil.which("unshare") is not None and subprocess.run(probe, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount a tmpfs in an own mount namespace")
def test_full_disk_while_writing_a_checkpoint(train, config, tmp_path):
    from safetensors.torch import load_file

    sets = {"train.checkpoint_every": 1, "train.keep_last": 9}
    assert train(out=tmp_path / "reference", sets=sets).returncode == 0
    reference = tmp_path / "reference/checkpoints/step_1"
    checkpoint_bytes = sum(p.stat().st_size for p in reference.iterdir())
    disk = tmp_path / "disk"
    disk.mkdir()
    # Room for one checkpoint and half of the next. The disk vanishes with its namespace, so it is copied out.
    script = f"""mount -t tmpfs -o size={checkpoint_bytes * 3 // 2} none {disk} || exit 99
"$@"; rc=$?; cp -r {disk}/run {tmp_path}/after; exit $rc"""
    pairs = [w for key, value in sets.items() for w in ("--set", f"{key}={value}")]
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", program(), "train", str(config), "--out",
                           f"{disk}/run", *pairs], env=environment(), capture_output=True, text=True, timeout=120,
                          check=False)
    told = [line for line in done.stderr.splitlines() if line.startswith("trireme: ")]
    assert done.returncode == 1 and len(told) == 1, done.stderr
    assert "No space left on device" in told[0] and f"{disk}/run/checkpoints/" in told[0]

    assert sorted(os.listdir(tmp_path / "after/checkpoints")) == ["step_1"]
    for name in ("model", "optimizer"):
        kept, wanted = (load_file(folder / f"{name}.safetensors")
                        for folder in (tmp_path / "after/checkpoints/step_1", reference))
        assert kept.keys() == wanted.keys()
        assert all((kept[key] == wanted[key]).all() for key in wanted)
    resumed = train("--resume", tmp_path / "after", out=tmp_path / "after")
    assert resumed.returncode == 0, resumed.stderr
    losses = [[json.loads(line)["loss"] for line in (tmp_path / run / "metrics.jsonl").read_text().splitlines()]
              for run in ("reference", "after")]
    assert losses[0] == losses[1]
