"""Several ranks train as one: equal losses on the same global batch, equal replicas, refusals that name the rank."""
import json
import os
import socket
import subprocess
import time

import pytest
import torch
from conftest import environment, program, trireme
from safetensors.torch import load_file, save_file

GLOBAL_BATCH, STEPS, CONTEXT = 12, 20, 16


class Branching(torch.nn.Module):
    """Batch norm, and a parameter that the loss does not use."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 6)
        self.norm = torch.nn.BatchNorm1d(6)
        self.idle = torch.nn.Linear(8, 3)
        self.head = torch.nn.Linear(6, 1)

    def forward(self, x, y):
        self.idle(x)
        return (self.head(torch.relu(self.norm(self.layer(x)))) - y).square().mean()


class Overflowing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        torch.nn.init.constant_(self.layer.weight, 0.1)

    def forward(self, x, y):
        return (self.layer(x).exp() - y).square().mean()


@pytest.fixture
def gpt(export):
    from trireme import models

    torch.manual_seed(0)
    module = models.ByteGPT(layers=2, width=32, heads=2, context=CONTEXT, tied=True)
    return export(module, models.byte_windows(2, CONTEXT), "gpt")


def regression(folder, samples=240):
    torch.manual_seed(1)
    x = torch.rand(samples, 8)
    data = {"x": x, "y": x.sum(1, keepdim=True)}
    save_file(data, folder / "data.safetensors")
    return data


def write_config(folder, graph, data, optim, **train):
    keys = {"steps": STEPS, "batch_per_rank": GLOBAL_BATCH, "device": "cpu", "threads": 1, "check_replicas": True}
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in (keys | train).items())
    path = folder / "job.toml"
    path.write_text(f'''[model]
graph = "{graph}"
[data]
{data}
[optim]
{optim}
[train]
{lines}
[transport]
timeout = "30s"
''')
    return path


@pytest.fixture
def text_config(tmp_path, gpt):
    def write(optim='kind = "adamw"\nlr = 3e-3', **train):
        text = tmp_path / "text.bin"
        text.write_bytes(b"the quick brown fox jumps over the lazy dog; " * 300)
        data = f'kind = "bytes"\npath = "{text}"\ncontext = {CONTEXT}\neval_share = 0.05'
        return write_config(tmp_path, gpt, data, optim, **train)

    return write


def pairs(sets):
    return [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]


def rows(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def losses(out):
    return [row["loss"] for row in rows(out)]


def train(config, out, ranks=1, words=(), **sets):
    sets = {key.replace("__", "."): value for key, value in sets.items()}
    sets = {"train.batch_per_rank": GLOBAL_BATCH // ranks} | sets
    words = ["--nproc", ranks, *words] if ranks > 1 else words
    done = trireme("train", config, "--out", out, *words, *pairs(sets))
    assert done.returncode == 0, done.stderr
    return losses(out)


def own_folder(folder, rank):
    return "--out", folder / f"rank{rank}"


def launch(config, folder, ranks, sets=None, cwd=None, out=own_folder, by_rank=None):
    """Every rank started by hand, as a scheduler would, with its own folder; (exit code, last line) of each."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    running = []
    for rank in range(ranks):
        own = {"train.batch_per_rank": GLOBAL_BATCH // ranks} | (sets or {}) | (by_rank or {}).get(rank, {})
        words = [program(), "train", config, *out(folder, rank), *pairs(own)]
        variables = environment(RANK=rank, WORLD_SIZE=ranks, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        running.append(subprocess.Popen([str(w) for w in words], env=variables, cwd=cwd(rank) if cwd else folder,
                                        stderr=subprocess.PIPE, text=True))
    ends = [(process.communicate(timeout=90)[1], process.returncode) for process in running]
    return [(code, message.splitlines()[-1]) for message, code in ends]


def assert_close(ours, theirs, tolerance=1e-5):
    assert len(ours) == len(theirs) > 0
    for step, (a, b) in enumerate(zip(ours, theirs)):
        assert abs(a - b) <= tolerance * abs(b), (step, a, b)


def assert_same_replicas(folder, ranks, step=STEPS):
    """Weights, buffers and optimizer state, byte for byte."""
    for name in ("model", "optimizer"):
        files = [folder / f"rank{rank}/checkpoints/step_{step}/{name}.safetensors" for rank in range(ranks)]
        assert len({file.read_bytes() for file in files}) == 1, name


def assert_all_succeeded(ends):
    assert [code for code, _ in ends] == [0] * len(ends), ends


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_equal_one_rank_on_the_same_global_batch(tmp_path, text_config, ranks):
    config = text_config()
    one = train(config, tmp_path / "one")
    assert one[-1] < one[0] - 1, "the run learns something"
    # Small buckets: many of them travel at once.
    assert_all_succeeded(launch(config, tmp_path, ranks, {"sync.bucket_bytes": 20000, "sync.first_bucket_bytes": 3000}))
    assert_close(losses(tmp_path / "rank0"), one)
    assert_same_replicas(tmp_path, ranks)
    for rank in range(ranks):
        assert losses(tmp_path / f"rank{rank}") == losses(tmp_path / "rank0"), "the mean is the same everywhere"
    last = rows(tmp_path / "rank0")[-1]
    assert last["eval_loss"] == pytest.approx(rows(tmp_path / "one")[-1]["eval_loss"], rel=1e-4)
    assert last["samples"] == STEPS * GLOBAL_BATCH


def test_bytes_are_those_of_a_ring(tmp_path, text_config):
    train(text_config(check_replicas=False), tmp_path / "run", 3)
    weights = load_file(tmp_path / f"run/checkpoints/step_{STEPS}/model.safetensors")
    gradients = sum(w.nbytes for w in weights.values())
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["world_size"] == 3 and summary["strategy"] == "ring" and summary["transport"] == "ucx"
    # Two thirds of the gradients out twice; little is added for the loss.
    assert gradients * 4 / 3 <= summary["bytes_sent_per_step"] < gradients * 4 / 3 * 1.01
    assert all(row["bytes_received"] > 0 and row["exposed_comm_s"] >= 0 for row in rows(tmp_path / "run"))


@pytest.mark.parametrize("ranks, strategy", [(2, "ring"), (3, "ring"), (3, "two_phase")])
def test_bf16_on_the_wire_keeps_replicas_equal(tmp_path, text_config, ranks, strategy):
    config = text_config()
    one = train(config, tmp_path / "one")
    assert_all_succeeded(launch(config, tmp_path, ranks, {"precision.reduce": "bf16", "sync.strategy": strategy}))
    assert_close(losses(tmp_path / "rank0"), one, 3e-2)
    assert losses(tmp_path / "rank0") != one
    assert_same_replicas(tmp_path, ranks)


def test_two_phase_equals_one_rank(tmp_path, text_config):
    config = text_config()
    one = train(config, tmp_path / "one")
    assert_close(train(config, tmp_path / "four", 4, sync__strategy="two_phase"), one)


def test_accumulation_and_clipping_equal_one_rank(tmp_path, text_config):
    config = text_config('kind = "sgd"\nlr = 0.5\nmomentum = 0.9', accumulate=3, clip_norm=0.5)
    one = train(config, tmp_path / "one")
    assert_close(train(config, tmp_path / "two", 2), one)
    # Only the last micro-batch's gradients travel.
    plain = train(config, tmp_path / "plain", 2, train__accumulate=1)
    assert rows(tmp_path / "two")[-1]["bytes_sent"] == rows(tmp_path / "plain")[-1]["bytes_sent"]
    assert plain != one


def test_bucket_size_changes_nothing(tmp_path, text_config):
    config = text_config()
    large = train(config, tmp_path / "large", 2)
    assert train(config, tmp_path / "small", 2, sync__bucket_bytes=1, sync__first_bucket_bytes=1) == large


def test_runs_repeat_bit_for_bit(tmp_path, text_config):
    config = text_config()
    assert train(config, tmp_path / "a", 3) == train(config, tmp_path / "b", 3)


def test_unused_parameters_and_batch_norm(tmp_path, export):
    data = regression(tmp_path)
    graph = export(Branching(), {name: t[:GLOBAL_BATCH] for name, t in data.items()}, "branching")
    # Weight decay moves every parameter that has a gradient, be it zero.
    config = write_config(tmp_path, graph, f'kind = "safetensors"\npath = "{tmp_path}/data.safetensors"',
                          'kind = "adamw"\nlr = 1e-2\nweight_decay = 0.5')
    assert_all_succeeded(launch(config, tmp_path, 3))
    assert_same_replicas(tmp_path, 3)  # running statistics included
    before = torch.export.load(graph).state_dict
    after = load_file(tmp_path / f"rank2/checkpoints/step_{STEPS}/model.safetensors")
    for name in before:
        assert torch.equal(after[name], before[name].detach()) == name.startswith("idle"), name
    assert after["norm.num_batches_tracked"] == STEPS


class Renormalising(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(50, 4, max_norm=0.5)

    def forward(self, x, y):
        return (self.table(x).sum(1) - y).square().mean()


def test_parameter_that_the_forward_changes_is_refused_on_several_ranks(tmp_path, export):
    torch.manual_seed(2)
    data = {"x": torch.randint(0, 50, (60, 3)), "y": torch.rand(60, 4)}
    save_file(data, tmp_path / "data.safetensors")
    graph = export(Renormalising(), {name: t[:4] for name, t in data.items()}, "renormalising")
    config = write_config(tmp_path, graph, f'kind = "safetensors"\npath = "{tmp_path}/data.safetensors"',
                          'kind = "sgd"\nlr = 1e-2', steps=2, check_replicas=False)
    train(config, tmp_path / "one")
    done = trireme("train", config, "--out", tmp_path / "two", "--nproc", 2, "--set", "train.batch_per_rank=4")
    assert done.returncode == 2 and "parameter table.weight" in done.stderr and "max_norm" in done.stderr, done.stderr


def test_two_runs_at_once_do_not_share_a_folder(tmp_path, text_config):
    config = text_config(steps=1000000)
    words = [program(), "train", config, "--out", tmp_path / "run"]
    first = subprocess.Popen([str(w) for w in words], env=environment(), stderr=subprocess.PIPE, text=True)
    try:
        while not (tmp_path / "run/metrics.jsonl").exists():
            assert first.poll() is None
            time.sleep(0.05)
        second = trireme("train", config, "--out", tmp_path / "run")
        assert second.returncode == 2 and "another process is writing there" in second.stderr, second.stderr
    finally:
        first.terminate()
        first.communicate(timeout=60)


def test_resume_on_another_number_of_ranks(tmp_path, text_config):
    config = text_config(checkpoint_every=8)
    whole = train(config, tmp_path / "whole")
    resumed = train(config, tmp_path / "three", 3, words=["--resume", tmp_path / "whole/checkpoints/step_8"])
    assert [row["step"] for row in rows(tmp_path / "three")] == list(range(9, STEPS + 1))
    assert [row["samples"] for row in rows(tmp_path / "three")] == [GLOBAL_BATCH * s for s in range(9, STEPS + 1)]
    assert_close(resumed, whole[8:])
    # And back: the optimizer's state has reached every rank.
    back = train(config, tmp_path / "back", 1, words=["--resume", tmp_path / "three/checkpoints/step_16"])
    assert_close(back, whole[16:])


def test_resume_with_several_ranks_repeats_the_run_bit_for_bit(tmp_path, text_config):
    """Sums of three numbers depend on their order, and so on the buckets, which the first step only learns."""
    config, small = text_config(checkpoint_every=8), {"sync__bucket_bytes": 20000, "sync__first_bucket_bytes": 3000}
    whole = train(config, tmp_path / "whole", 3, **small)
    resumed = train(config, tmp_path / "again", 3, words=["--resume", tmp_path / "whole/checkpoints/step_8"], **small)
    assert resumed == whole[8:]
    for name in ("model", "optimizer"):
        ends = [tmp_path / run / f"checkpoints/step_{STEPS}/{name}.safetensors" for run in ("whole", "again")]
        assert ends[0].read_bytes() == ends[1].read_bytes(), name


def test_ranks_without_a_folder_of_their_own_write_nothing(tmp_path, text_config):
    config = text_config(steps=2)

    def only_rank_0(folder, rank):
        return ("--out", folder / "run") if rank == 0 else ()

    before = {path.name for path in tmp_path.iterdir()}
    assert_all_succeeded(launch(config, tmp_path, 2, out=only_rank_0))
    assert {path.name for path in tmp_path.iterdir()} - before == {"run"}
    assert_all_succeeded(launch(config, tmp_path, 2, out=lambda folder, rank: ("--out", folder / "same")))
    assert len(list((tmp_path / "same").glob("events.out.tfevents.*"))) == 1


@pytest.mark.parametrize("change, part", [({"optim.lr": 0.5}, "lr = 0.5"), ({"train.steps": 3}, "steps = 3")])
def test_a_rank_with_another_config_is_named(tmp_path, text_config, change, part):
    ends = launch(text_config(), tmp_path, 3, by_rank={1: change})
    for code, message in ends:
        assert code == 2 and "rank 1" in message and "config" in message and part in message, ends
    assert not any((tmp_path / f"rank{rank}").exists() for rank in range(3))


def test_a_rank_with_another_graph_is_named(tmp_path, text_config, gpt, graph):
    config = text_config()
    config.write_text(config.read_text().replace(str(gpt), "model.pt2"))
    for rank, path in enumerate([gpt, graph]):
        (tmp_path / f"home{rank}").mkdir()
        os.symlink(path, tmp_path / f"home{rank}/model.pt2")
    ends = launch(config, tmp_path, 2, cwd=lambda rank: tmp_path / f"home{rank}")
    for code, message in ends:
        assert code == 2 and "rank 1" in message and "model.graph" in message, ends


def test_threads_and_interface_may_differ(tmp_path, text_config):
    ends = launch(text_config(steps=3), tmp_path, 2, by_rank={1: {"train.threads": 2}})
    assert_all_succeeded(ends)
    assert_same_replicas(tmp_path, 2, 3)


def test_a_bad_loss_on_one_rank_is_told_by_all(tmp_path, export):
    data = regression(tmp_path)
    data["x"][GLOBAL_BATCH + GLOBAL_BATCH // 2] = 1e6  # second step, second rank
    save_file(data, tmp_path / "data.safetensors")
    graph = export(Overflowing(), {name: t[:GLOBAL_BATCH] for name, t in data.items()}, "overflowing")
    source = f'kind = "safetensors"\npath = "{tmp_path}/data.safetensors"\nshuffle = false'
    config = write_config(tmp_path, graph, source, 'lr = 0.0', checkpoint_every=1)
    ends = launch(config, tmp_path, 2)
    for code, message in ends:
        assert code == 1 and "step 2, rank 1" in message and "aten.exp" in message, ends
    assert [path.name for path in (tmp_path / "rank0/checkpoints").iterdir()] == ["step_1"]
