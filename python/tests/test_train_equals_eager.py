"""trireme train is PyTorch: real models give eager PyTorch's losses; dropout and resuming repeat exactly."""

import copy
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from trireme import export, models

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("TRIREME_BIN", ROOT / "build/release/trireme")).resolve()
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in LAUNCHER}
STEPS, BATCH, CONTEXT, VOCABULARY = 100, 4, 16, 64


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Loss(torch.nn.Module):
    """What users write around a transformers model: its loss alone."""

    def __init__(self, model, **fixed):
        super().__init__()
        self.model, self.fixed = model, fixed

    def forward(self, input_ids, labels):
        return self.model(input_ids=input_ids, labels=labels, **self.fixed).loss


def tiny(kind):
    t, shared = transformers, {"vocab_size": VOCABULARY}
    if kind == "gpt2":
        config = t.GPT2Config(n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0,
                              attn_pdrop=0, bos_token_id=0, eos_token_id=0, **shared)
        return Loss(t.GPT2LMHeadModel(config), use_cache=False)
    if kind == "bert":
        config = t.BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                              max_position_embeddings=CONTEXT, hidden_dropout_prob=0, attention_probs_dropout_prob=0,
                              **shared)
        return Loss(t.BertForMaskedLM(config))
    if kind == "llama":
        config = t.LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                               num_key_value_heads=2, max_position_embeddings=CONTEXT, **shared)
        return Loss(t.LlamaForCausalLM(config), use_cache=False)
    config = t.T5Config(d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, dropout_rate=0,
                        decoder_start_token_id=0, **shared)
    return Loss(t.T5ForConditionalGeneration(config), use_cache=False)


def make(name):
    """Module, and all samples of the run by input name."""
    samples = 20 * BATCH
    torch.manual_seed(1)
    if name == "convnet":
        images, labels = models.digits(samples)
        return models.ConvNet(width=4), {"images": images, "labels": labels}
    if name in ("gpt", "lstm"):
        module = (models.ByteGPT(layers=2, width=32, heads=2, context=CONTEXT, tied=True) if name == "gpt"
                  else models.ByteLSTM(layers=2, width=16))
        windows = torch.randint(0, 16, (samples, CONTEXT + 1))
        return module, {"tokens": windows[:, :-1].contiguous(), "targets": windows[:, 1:].contiguous()}
    ids = torch.randint(0, 8, (samples, CONTEXT))
    return tiny(name), {"input_ids": ids, "labels": ids.clone()}


def prepare(folder, module, data, optim, dropout_seed=0, steps=STEPS, **train):
    """Writes graph, data and configuration; gives the configuration's path."""
    sample = {name: tensor[:BATCH] for name, tensor in data.items()}
    export.training_graph(copy.deepcopy(module), sample, folder / "model.pt2")
    save_file(data, folder / "data.safetensors")
    more = "".join(f"{key} = {json.dumps(value)}\n" for key, value in train.items())
    (folder / "job.toml").write_text(f"""[model]
graph = "{folder}/model.pt2"
[data]
kind = "safetensors"
path = "{folder}/data.safetensors"
shuffle = false
[optim]
{optim}
[train]
steps = {steps}
batch_per_rank = {BATCH}
device = "cpu"
threads = 1
seed = {dropout_seed}
{more}""")
    return folder / "job.toml"


def run(config, out, *words):
    return subprocess.run([PROGRAM, "train", config, "--out", out, *words], env=ENVIRONMENT, capture_output=True,
                          text=True, timeout=120)


def trireme(config, out, *words):
    done = run(config, out, *words)
    assert done.returncode == 0, done.stderr
    return rows(out)


def refusal(config, out, *words, code=2):
    """The line that explains it."""
    done = run(config, out, *words)
    assert done.returncode == code, done.stderr
    return done.stderr.splitlines()[-1]


def rows(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def losses(metrics):
    return [row["loss"] for row in metrics]


def eager(module, data, optimizer, accumulate=1, clip=0, schedule=None):
    """The loop that a PyTorch user writes."""
    module = copy.deepcopy(module).train()
    optimizer = optimizer(module)
    samples, seen, history = len(next(iter(data.values()))), 0, []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * schedule(step) if schedule else group["lr"]
        optimizer.zero_grad()
        total = 0
        for _ in range(accumulate):
            batch = {name: tensor[seen % samples: seen % samples + BATCH] for name, tensor in data.items()}
            seen += BATCH
            loss = module(**batch)
            (loss / accumulate).backward()
            total += loss.item() / accumulate
        if clip:
            torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
        history.append(total)
    return module, history


def assert_close(ours, theirs, tolerance=1e-5):
    assert len(ours) == len(theirs) == STEPS
    worst = max(range(STEPS), key=lambda i: abs(ours[i] - theirs[i]) / abs(theirs[i]))
    assert abs(ours[worst] - theirs[worst]) <= tolerance * abs(theirs[worst]), (worst, ours[worst], theirs[worst])


ADAMW = 'kind = "adamw"\nlr = 1e-3'


@pytest.mark.parametrize("name", ["gpt", "convnet", "lstm", "gpt2", "bert", "llama", "t5"])
def test_hundred_steps_equal_eager(tmp_path, name):
    module, data = make(name)
    ours = losses(trireme(prepare(tmp_path, module, data, ADAMW), tmp_path / "run"))
    trained, theirs = eager(module, data, lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3))
    assert_close(ours, theirs)
    assert ours[-1] < ours[0] - 0.1, "the run learns something"
    # Buffers too: running statistics of batch norm, and their integer counter.
    saved = load_file(tmp_path / f"run/checkpoints/step_{STEPS}/model.safetensors")
    wanted = dict(trained.named_parameters()) | {k: v for k, v in trained.state_dict().items() if k in saved}
    for key in saved:
        torch.testing.assert_close(saved[key], wanted[key].detach(), rtol=1e-3, atol=1e-4)
    assert set(dict(trained.named_parameters())) <= set(saved), "one name for each tied weight"


def sgd(**options):
    return lambda m: torch.optim.SGD(m.parameters(), **options)


def decay_groups(m):
    def decays(name):
        return not name.endswith("bias") and "norm" not in name

    named = list(m.named_parameters())
    return torch.optim.AdamW([
        {"params": [p for n, p in named if decays(n) and "head" not in n], "weight_decay": 0.1},
        {"params": [p for n, p in named if not decays(n)], "weight_decay": 0},
        {"params": [p for n, p in named if "head" in n and decays(n)], "lr": 1e-4, "weight_decay": 0.1},
    ], lr=1e-3)


def cosine(step, warmup=10, floor=0.1):
    import math

    if step < warmup:
        return (step + 1) / warmup
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (STEPS - 1 - warmup)))


def with_initial(build):
    def make_one(m):
        optimizer = build(m)
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        return optimizer

    return make_one


# Name: the [optim] section, the [train] keys, eager's optimizer, and eager's other settings.
RULES = {
    "sgd": ('kind = "sgd"\nlr = 0.1', {}, sgd(lr=0.1), {}),
    "nesterov": ('kind = "sgd"\nlr = 0.05\nmomentum = 0.9\nnesterov = true\nweight_decay = 1e-4', {},
                 sgd(lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4), {}),
    "dampening": ('kind = "sgd"\nlr = 0.05\nmomentum = 0.9\ndampening = 0.5', {},
                  sgd(lr=0.05, momentum=0.9, dampening=0.5), {}),
    "adam": ('kind = "adam"\nbetas = [0.8, 0.99]\neps = 1e-6\nweight_decay = 0.01', {},
             lambda m: torch.optim.Adam(m.parameters(), betas=(0.8, 0.99), eps=1e-6, weight_decay=0.01), {}),
    "accumulate": (ADAMW, {"accumulate": 3}, lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3), {"accumulate": 3}),
    "clip": ('kind = "sgd"\nlr = 0.5', {"clip_norm": 0.3}, sgd(lr=0.5), {"clip": 0.3}),
    "groups": ('kind = "adamw"\nlr = 1e-3\nweight_decay = 0.1\nno_decay = ["bias$", "norm"]\n'
               '[[optim.group]]\nmatch = "head"\nlr = 1e-4', {}, decay_groups, {}),
    "cosine": ('kind = "sgd"\nlr = 0.3\nmomentum = 0.9\nschedule = "cosine"\nwarmup = 10\nfinal_lr_share = 0.1', {},
               with_initial(sgd(lr=0.3, momentum=0.9)), {"schedule": cosine}),
}


@pytest.mark.parametrize("name", RULES)
def test_every_update_rule_equals_torch_optim(tmp_path, name):
    optim, train, build, settings = RULES[name]
    torch.manual_seed(2)
    module = models.ByteGPT(layers=1, width=16, heads=2, context=8)
    tokens, targets = models.byte_windows(60 * BATCH, 8)
    data = {"tokens": tokens, "targets": targets}
    ours = trireme(prepare(tmp_path, module, data, optim, **train), tmp_path / "run")
    assert_close(losses(ours), eager(module, data, build, **settings)[1])
    if "schedule" in settings:
        assert [row["lr"] for row in ours] == pytest.approx([0.3 * cosine(step) for step in range(STEPS)], rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_parameter_types(tmp_path, dtype):
    class Regression(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(6, 3, dtype=dtype)

        def forward(self, x, y):
            return (self.layer(x.to(dtype)) - y.to(dtype)).square().mean()

    torch.manual_seed(3)
    data = {"x": torch.rand(80, 6), "y": torch.rand(80, 3)}
    module = Regression()
    ours = losses(trireme(prepare(tmp_path, module, data, 'kind = "sgd"\nlr = 0.1'), tmp_path / "run"))
    assert_close(ours, eager(module, data, sgd(lr=0.1))[1], 1e-12 if dtype == torch.float64 else 1e-5)


def noisy(folder, **train):
    torch.manual_seed(4)
    module = models.ByteGPT(layers=2, width=32, heads=2, context=CONTEXT, dropout=0.2)
    tokens, targets = models.byte_windows(20 * BATCH, CONTEXT)
    config = prepare(folder, module, {"tokens": tokens, "targets": targets}, ADAMW, steps=30, dropout_seed=7, **train)
    config.write_text(config.read_text().replace("shuffle = false", "shuffle = true"))
    return config


def state(out, step=30):
    folder = out / f"checkpoints/step_{step}"
    return load_file(folder / "model.safetensors") | load_file(folder / "optimizer.safetensors")


def assert_same_state(a, b, step=30):
    first, second = state(a, step), state(b, step)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_dropout_repeats_by_seed(tmp_path):
    config = noisy(tmp_path)
    first, second = (losses(trireme(config, tmp_path / name)) for name in ("a", "b"))
    assert first == second
    assert_same_state(tmp_path / "a", tmp_path / "b")
    assert losses(trireme(config, tmp_path / "c", "--set", "train.seed=8")) != first


def test_resume_repeats_the_uninterrupted_run(tmp_path):
    config = noisy(tmp_path, checkpoint_every=10)
    whole = losses(trireme(config, tmp_path / "whole"))
    # From one checkpoint into another folder.
    resumed = trireme(config, tmp_path / "other", "--resume", tmp_path / "whole/checkpoints/step_10")
    assert [row["step"] for row in resumed] == list(range(11, 31))
    assert losses(resumed) == whole[10:]
    assert_same_state(tmp_path / "whole", tmp_path / "other")
    # Stopped early, continued in place with more steps.
    trireme(config, tmp_path / "short", "--set", "train.steps=17")
    continued = trireme(config, tmp_path / "short", "--resume", tmp_path / "short")
    assert [row["step"] for row in continued] == list(range(1, 31))
    assert losses(continued) == whole
    assert [row["samples"] for row in continued] == [BATCH * step for step in range(1, 31)]
    assert_same_state(tmp_path / "whole", tmp_path / "short")


def test_signal_stops_after_a_checkpoint_that_continues(tmp_path):
    config = noisy(tmp_path)
    whole = losses(trireme(config, tmp_path / "whole"))
    endless = subprocess.Popen([PROGRAM, "train", config, "--out", tmp_path / "run", "--set", "train.steps=1000000"],
                               env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "run/metrics.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (metrics.exists() and metrics.read_text().count("\n") >= 3):
        time.sleep(0.02)
    endless.send_signal(signal.SIGTERM)
    _, message = endless.communicate(timeout=60)
    assert endless.returncode == 1 and "--resume" in message, message
    done = len(rows(tmp_path / "run"))
    assert (tmp_path / f"run/checkpoints/step_{done}").is_dir()
    more = ["--resume", tmp_path / "run", "--set", f"train.steps={max(30, done + 1)}"]
    continued = trireme(config, tmp_path / "run", *more)
    assert losses(continued)[:30] == whole[:30]


def test_frozen_parameters_stay_and_cost_no_state(tmp_path):
    module, data = make("gpt")
    config = prepare(tmp_path, module, data, ADAMW, steps=3)
    config.write_text(config.read_text().replace("[data]", 'freeze = ["^blocks.0", "positions"]\n[data]'))
    trireme(config, tmp_path / "run")
    after = state(tmp_path / "run", 3)
    for name, before in module.named_parameters():
        frozen = name.startswith("blocks.0") or "positions" in name
        assert torch.equal(after[name], before.detach()) == frozen, name
        assert (f"{name}.exp_avg" in after) != frozen, name


def test_evaluation_is_the_mean_over_the_held_out_samples(tmp_path):
    module, data = make("gpt")
    config = prepare(tmp_path, module, data, 'kind = "sgd"\nlr = 0.0', steps=3, eval_every=2)
    config.write_text(config.read_text().replace("shuffle = false", "shuffle = false\neval_share = 0.125"))
    metrics = trireme(config, tmp_path / "run")
    held_out = {name: tensor[70:] for name, tensor in data.items()}  # 10 of 80 samples: two batches and a half
    with torch.no_grad():
        wanted = module.eval()(**held_out).item()
    near = pytest.approx(wanted, rel=1e-6)
    assert [row.get("eval_loss") for row in metrics] == [None, near, near]


def test_weights_of_a_checkpoint_start_another_run(tmp_path):
    module, data = make("gpt")  # with a tied weight, which is stored once
    config = prepare(tmp_path, module, data, ADAMW, steps=5)
    config.write_text(config.read_text().replace("shuffle = false", "shuffle = false\neval_share = 0.1"))
    first = trireme(config, tmp_path / "first")
    still = trireme(config, tmp_path / "second", "--set", f"model.weights={tmp_path}/first/checkpoints/step_5",
                    "--set", "optim.lr=0", "--set", "train.steps=1")
    assert still[0]["step"] == 1 and still[0]["eval_loss"] == first[-1]["eval_loss"]


class Telling(torch.nn.Module):
    """Its loss is not the first output, and batch norm changes buffers."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x, y):
        hidden = self.norm(self.layer(x))
        return hidden, (hidden - y).square().mean()


class Silent(Telling):
    def forward(self, x, y):
        return super().forward(x, y)[1]


def test_loss_is_the_first_scalar_whatever_stands_before_it(tmp_path):
    torch.manual_seed(6)
    module, data = Silent(), {"x": torch.rand(40, 4), "y": torch.rand(40, 4)}
    config = prepare(tmp_path, module, data, 'kind = "sgd"\nlr = 0.1', steps=5)
    wanted = losses(trireme(config, tmp_path / "silent"))
    telling = Telling()
    telling.load_state_dict(module.state_dict())
    batch = {name: {0: torch.export.Dim("batch")} for name in data}
    program = torch.export.export(telling, (), {name: t[:BATCH] for name, t in data.items()}, dynamic_shapes=batch)
    # A functional graph lists the changed buffers before the module's own outputs.
    for name, graph in {"plain": program, "functional": program.run_decompositions({})}.items():
        torch.export.save(graph, tmp_path / "model.pt2")
        assert losses(trireme(config, tmp_path / name)) == pytest.approx(wanted, rel=1e-5), name


class Choosing(torch.nn.Module):
    """The branch not taken gets zero gradients, not none: AdamW moves its weights all the same."""

    def __init__(self):
        super().__init__()
        self.low, self.high = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)

    def forward(self, x, y):
        chosen = torch.cond(x.sum() > 0, self.high, self.low, (x,))
        return (chosen - y).square().mean()


def test_branch_not_taken_has_zero_gradients(tmp_path):
    torch.manual_seed(7)
    module, data = Choosing(), {"x": torch.randn(40, 4), "y": torch.randn(40, 3)}
    config = prepare(tmp_path, module, data, 'kind = "adamw"\nlr = 0.02\nweight_decay = 0.5')
    _, theirs = eager(module, data, lambda m: torch.optim.AdamW(m.parameters(), lr=0.02, weight_decay=0.5))
    assert_close(losses(trireme(config, tmp_path / "run")), theirs)


class Overflowing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x, y):
        hidden = self.layer(x)
        return (hidden.exp() - y).square().mean()


def test_loss_that_is_not_finite_names_step_rank_and_tensor(tmp_path):
    data = {"x": torch.ones(40, 4), "y": torch.ones(40, 4)}
    data["x"][2 * BATCH + 1] = 1e6  # the third batch overflows exp
    config = prepare(tmp_path, Overflowing(), data, 'kind = "sgd"\nlr = 0.0', steps=10, checkpoint_every=1)
    told = refusal(config, tmp_path / "run", code=1)
    assert told.startswith("trireme: ")
    for part in ("step 3", "rank 0", "aten.exp", "test_train_equals_eager.py"):
        assert part in told, told
    assert len(rows(tmp_path / "run")) == 2
    assert sorted(p.name for p in (tmp_path / "run/checkpoints").iterdir()) == ["step_1", "step_2"]


def test_weights_that_are_not_finite_do_not_replace_a_checkpoint(tmp_path):
    class Steep(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x, y):
            return (self.layer(100 * x) - y).square().mean()

    data = {"x": torch.ones(40, 4), "y": torch.ones(40, 1)}
    config = prepare(tmp_path, Steep(), data, 'kind = "sgd"\nlr = 0.0', steps=1, keep_last=1)
    trireme(config, tmp_path / "run")
    before = state(tmp_path / "run", 1)
    told = refusal(config, tmp_path / "run", "--resume", str(tmp_path / "run"), "--set", "train.steps=2",
                   "--set", "optim.lr=1e38", code=1)
    assert "step 2, rank 0: parameter layer." in told and "Inf" in told, told
    assert [p.name for p in (tmp_path / "run/checkpoints").iterdir()] == ["step_1"]
    assert all(torch.equal(before[key], value) for key, value in state(tmp_path / "run", 1).items())


@pytest.mark.parametrize("sets, parts", [
    (["train.device=cuda"], ["train.device", "CUDA"]),
    (["train.batch_per_rank=81"], ["train.batch_per_rank = 81", "80 samples"]),
    (['model.freeze=[""]'], ["model.freeze"]),
    (["data.eval_share=0.0001"], ["data.eval_share"]),
    (['optim.no_decay=["nowhere"]'], ["optim.no_decay", "nowhere"]),
    (["sync.codec=bf17"], ["bf17"]),
])
def test_refusals(tmp_path, sets, parts):
    if "train.device=cuda" in sets and torch.cuda.is_available():
        sets, parts = ["train.device=tpu"], ["train.device", "cuda"]
    module, data = make("gpt")
    config = prepare(tmp_path, module, data, ADAMW, steps=3)
    words = [word for one in sets for word in ("--set", one)]
    told = refusal(config, tmp_path / "run", *words)
    assert all(part in told for part in parts), told
    assert not (tmp_path / "run/metrics.jsonl").exists()


def test_graph_of_a_fixed_batch(tmp_path):
    module, data = make("gpt")
    config = prepare(tmp_path, module, data, ADAMW, steps=2)
    sample = {name: tensor[:BATCH] for name, tensor in data.items()}
    export.training_graph(module, sample, tmp_path / "model.pt2", dynamic_batch=False)
    # 10 samples are held out: two whole batches, and two samples that the graph cannot take.
    metrics = trireme(config, tmp_path / "run", "--set", "data.eval_share=0.125")
    assert metrics[-1]["eval_loss"] > 0

    def refused(*sets):
        return refusal(config, tmp_path / "no", *[word for one in sets for word in ("--set", one)])

    assert "train.batch_per_rank = 5" in refused("train.batch_per_rank=5")
    assert "evaluation has 2 samples" in refused("data.eval_share=0.025")


def test_resume_refusals(tmp_path):
    module, data = make("gpt")
    config = prepare(tmp_path, module, data, ADAMW, steps=3)
    trireme(config, tmp_path / "run")

    def refused(*words):
        return refusal(config, tmp_path / "run", "--resume", tmp_path / "run", *words)

    assert "train.steps" in refused()
    assert "exp_avg" in refused("--set", "train.steps=5", "--set", "optim.kind=sgd", "--set", "optim.momentum=0.9")
    assert prepare(tmp_path, *make("lstm"), ADAMW, steps=5) == config  # another model under the same name
    assert "tokens.weight" in refused() and "[256, 16] in the graph" in refused()
