"""Writes the small models of this folder, each with what PyTorch computes from it. Run with the pinned torch:

    .venv/bin/python tests/data/make_pt2.py

NAME.pt2 is the exported program; NAME.safetensors holds "input.N" by input name, and from one training step
"output.I", "grad.NAME" and "buffer.NAME" (as left by it), and "evaluate.I" of the module in evaluation mode.
"""
from pathlib import Path

import torch
import torch.export.experimental
from safetensors.torch import save_file
from torch import nn
from torch.export import Dim

FOLDER = Path(__file__).parent


class Mlp(nn.Module):
    """A dynamic batch, a frozen parameter, dropout that does nothing."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.drop = nn.Dropout(0.0)
        self.down = nn.Linear(8, 3)
        self.up.bias.requires_grad_(False)

    def forward(self, x, labels):
        logits = self.down(self.drop(torch.nn.functional.gelu(self.up(x), approximate="tanh")))
        return torch.nn.functional.cross_entropy(logits, labels), logits


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 2)

    def forward(self, x, y):
        return torch.nn.functional.mse_loss(self.line(x), y)


class Tied(nn.Module):
    """A language model's head tied to its embedding, with in-place writes to views and buffers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.mix = nn.Linear(6, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mask", torch.tril(torch.ones(5, 5, dtype=torch.bool)), persistent=False)

    def forward(self, tokens, labels):
        self.calls.add_(1)
        h = self.embed(tokens)
        scores = (h @ h.transpose(1, 2)).masked_fill_(~self.mask, float("-inf"))
        h = self.mix(torch.softmax(scores, -1) @ h)
        h = h.clone()
        h[:, 0] = 0.5
        return torch.nn.functional.cross_entropy(self.head(h).flatten(0, 1), labels.flatten())


class Convnet(nn.Module):
    """Batch norm, whose statistics change in training and count in evaluation, and dropout."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.plain_norm = nn.BatchNorm2d(4, track_running_stats=False)
        self.instance = nn.InstanceNorm2d(4, track_running_stats=True)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        x = torch.nn.functional.max_pool2d(self.instance(self.plain_norm(x)), 3)
        return torch.nn.functional.softplus(self.out(x.flatten(1))).mean()


class Lstm(nn.Module):
    """A recurrent cell of many weights in one list, and several results."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True, dropout=0.0, bidirectional=True)

    def forward(self, x):
        y, (h, c) = self.lstm(x)
        return (y.square().mean() + h.mean() + c.mean(),)


class Regions(nn.Module):
    """Higher-order operators, arithmetic on sizes, an integer input, a missing input, results that are numbers."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 4))

    def forward(self, x, n: int, nothing=None):
        with torch.no_grad():
            scale = (x @ self.w).abs().mean()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ self.w
        y = torch.cond(x.shape[0] > 5, lambda t: t.sin(), lambda t: t.cos(), (y,))
        y = torch.cond(scale > 100, lambda t: t + 1, lambda t: t * 2, (y,))
        rows = (x.shape[0] * 3 + 1) // 2
        grown = torch.full((rows, max(rows, n)), 0.5).sum() * (n**2 % 7 - 3)
        loss = (y.float() * scale).mean() + grown / rows
        return loss, rows, y, 7, None, scale * n


class Loop(nn.Module):
    """A loop whose length depends on data, and sizes that do."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(3))

    def forward(self, x):
        def condition(i, v):
            return i < 3

        def body(i, v):
            return i + 1, v * 1.5

        _, v = torch._higher_order_ops.while_loop(condition, body, (torch.tensor(0), x))
        chosen = v[v[:, 0] > 0]
        return (chosen * self.w).sum() + v.mean()


class Arguments(nn.Module):
    """As many kinds of arguments and results as fit."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Parameter(torch.randn(8, 4)[::2])
        self.turned = nn.Parameter(torch.randn(3, 4).t())
        self.register_buffer("table", torch.arange(12.0).reshape(3, 4))
        self.register_buffer("row", self.table[1])
        self.constant = torch.tensor([2.0, 3.0, 5.0, 7.0])

    def forward(self, x):
        a, b, c = torch.split(x, [1, 2, 1])
        values, where = torch.topk(x @ self.turned, 2, dim=-1, sorted=True)
        x = x.index_put((torch.tensor([0, 2]), torch.tensor([1, 1])), torch.tensor(9.0), accumulate=True)
        x = x[:, None, torch.tensor([3, 0, 1, 2])].squeeze(1)
        x = torch.cat([x, b, self.table, self.row[None]]).clamp(min=None, max=2.5).to(torch.float64)
        x = torch.einsum("ij,kj->ik", x, self.wide.double()).to(torch.float32)
        x = torch.nn.functional.pad(x, (1, 1), value=0.25)
        image = x.reshape(1, 1, *x.shape).contiguous(memory_format=torch.channels_last)
        image = torch.nn.functional.interpolate(image, scale_factor=(1.5, 2.0), mode="bilinear")
        z = torch.complex(a, a.flip(0)).mul(2 - 1j).abs().sum()
        zeros = torch.zeros_like(x, dtype=torch.int32, device="cpu").sum().to(torch.bool)
        s = torch.stack([values.sum(), image.sum(), z, (c * self.constant).sum(), where.sum() * 1.0])
        return torch.where(torch.isinf(s), torch.full_like(s, float("-inf")), s).sum() + zeros


class Vmapped(nn.Module):
    """torch.vmap, whose calls stand in the graph as Python functions, and a complex parameter."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 4))
        self.filter = nn.Parameter(torch.randn(3, dtype=torch.complex64))

    def forward(self, x):
        y = torch.vmap(lambda row: torch.vmap(lambda column: (row * column).sum())(self.w.t()))(x)
        return torch.fft.irfft(torch.fft.rfft(y) * self.filter, n=4).square().mean()


class Mutating(nn.Module):
    """Changes an input of its caller; functionalised, the new value becomes an output."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4))
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x, state):
        state.mul_(0.5).add_(x.mean(0))
        self.seen.add_(state.detach())
        return (self.w * state).sum() + self.seen.sum()


class OfPython(nn.Module):
    def forward(self, x):
        return torch.ops.trireme_test.twice(x).sum()


@torch.library.custom_op("trireme_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


def joint(program):
    """Forward and backward pass in one graph, as planners read it."""
    return torch.export.experimental._export_forward_backward(program)


def forget_folders(program):
    """Recorded Python lines name files of this machine; relative names say enough."""
    places = [str(Path(torch.__file__).parents[1]), str(FOLDER.parents[1])]
    for part in program.graph_module.modules():
        for node in part.graph.nodes:
            node.meta.pop("from_node", None)
            for place in places:
                if "stack_trace" in node.meta and node.meta["stack_trace"]:
                    node.meta["stack_trace"] = node.meta["stack_trace"].replace(place + "/", "")


def make(name, module, inputs, shapes, more_inputs, change=lambda program: program):
    """Exports with `inputs`; records a step on `more_inputs`, whose dynamic sizes differ."""
    start = {n: b.clone() for n, b in module.named_buffers()}
    program = change(torch.export.export(module.train(), inputs, dynamic_shapes=shapes))
    forget_folders(program)
    torch.export.save(program, FOLDER / f"{name}.pt2")
    if more_inputs is None:
        return

    def reset():
        with torch.no_grad():
            for n, b in module.named_buffers():
                b.copy_(start[n])

    kinds = torch.export.graph_signature
    names = [s.arg.name for s in program.graph_signature.input_specs
             if s.kind == kinds.InputKind.USER_INPUT and not isinstance(s.arg, kinds.ConstantArgument)]
    record = {f"input.{n}": torch.as_tensor(v) for n, v in zip(names, more_inputs)}

    def keep(prefix, results):
        for i, r in enumerate(results if isinstance(results, tuple) else (results,)):
            if r is not None:
                record[f"{prefix}.{i}"] = torch.as_tensor(r).detach().contiguous()

    reset()
    copies = [v.clone() if isinstance(v, torch.Tensor) else v for v in more_inputs]
    results = module(*copies)
    (results[0] if isinstance(results, tuple) else results).backward()
    keep("output", results)
    record.update({f"after.{n}": torch.as_tensor(v).clone() for n, v in zip(names, copies)})
    record.update({f"grad.{n}": p.grad.contiguous() for n, p in module.named_parameters() if p.grad is not None})
    record.update({f"buffer.{n}": b.clone() for n, b in module.named_buffers()})
    reset()
    with torch.no_grad():
        keep("evaluate", module.eval()(*[v.clone() if isinstance(v, torch.Tensor) else v for v in more_inputs]))
    save_file({n: t.clone() for n, t in record.items()}, FOLDER / f"{name}.safetensors")


def main():
    batch = Dim("batch", min=2, max=64)
    tokens = lambda b: torch.randint(0, 11, (b, 5))
    torch.manual_seed(1)
    make("mlp", Mlp(), (torch.randn(3, 4), torch.tensor([0, 2, 1])), ({0: batch}, {0: batch}),
         (torch.randn(5, 4), torch.tensor([2, 0, 1, 1, 2])))
    make("tied", Tied(), (tokens(3), tokens(3)), ({0: batch}, {0: batch}), (tokens(4), tokens(4)))
    make("convnet", Convnet(), (torch.randn(3, 1, 6, 6),), ({0: batch},), (torch.randn(4, 1, 6, 6),))
    make("functional", Convnet(), (torch.randn(3, 1, 6, 6),), ({0: batch},), (torch.randn(4, 1, 6, 6),),
         change=lambda program: program.run_decompositions({}))
    make("lstm", Lstm(), (torch.randn(2, 3, 3),), None, (torch.randn(2, 3, 3),))
    make("regions", Regions(), (torch.randn(3, 4), 6, None), ({0: Dim.DYNAMIC}, Dim.DYNAMIC, None),
         (torch.randn(7, 4), 9, None))
    make("loop", Loop(), (torch.randn(4, 3),), ({0: batch},), (torch.randn(6, 3),))
    make("arguments", Arguments(), (torch.randn(4, 4),), None, (torch.randn(4, 4),))
    make("vmapped", Vmapped(), (torch.randn(3, 4),), ({0: batch},), (torch.randn(5, 4),))
    make("mutating", Mutating(), (torch.randn(3, 4), torch.randn(4)), ({0: batch}, None),
         (torch.randn(5, 4), torch.randn(4)), change=lambda program: program.run_decompositions({}))
    make("joint", Line(), (torch.randn(3, 4), torch.randn(3, 2)), None, (torch.randn(3, 4), torch.randn(3, 2)),
         change=joint)
    make("of_python", OfPython(), (torch.randn(3),), None, None)


if __name__ == "__main__":
    main()
