"""PyTorch modules to ``.pt2`` files that the trireme program trains and serves.

    trireme.export.training_graph(module, sample_inputs, "model.pt2")
    trireme.export.inference_graph(module, sample_inputs, "model.pt2")
    python -m trireme.export gpt --layers 4 --width 256 -o gpt.pt2

Guide: docs/guides/export.md.
"""

import argparse
import contextlib
import io
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from torch.export import Dim
from torch.utils import _pytree as pytree


class ExportError(ValueError):
    """The module or its inputs cannot become a graph; the message is one line and says how to mend it."""


def training_graph(module, sample_inputs, path, dynamic_batch=True):
    """Writes the graph of one training step's forward pass: ``module(*inputs)`` returns the loss first.

    sample_inputs  a tuple of tensors, or a dict for keyword arguments; batch of 2 or more
    dynamic_batch  the first dimension of every input may vary at run time; where the module fixes it, that is printed
                   and the graph takes the sample's batch only
    Returns the ExportedProgram. The module keeps the train/eval state that it had. Raises ExportError when the first
    output is not a floating-point scalar, or when no file can stand at ``path``.
    """
    path = _target(path)
    with _mode(module, training=True):
        program = _export(module, sample_inputs, dynamic_batch)
    _check_loss(program)
    _save(path, lambda target: torch.export.save(program, target))
    return program


def inference_graph(module, sample_inputs, path, compile=False, dynamic_batch=True):
    """Writes the graph of the module in eval mode; with ``compile`` an AOTInductor package (needs a C++ compiler).

    Arguments and result as for training_graph; any outputs are allowed.
    """
    if compile and not _compiler():
        raise ExportError("compile=True needs a C++ compiler: install g++, set CXX, or leave compile out")
    path = _target(path)
    with _mode(module, training=False), torch.no_grad():
        program = _export(module, sample_inputs, dynamic_batch)
        if compile:
            _save(path, _compile(program))
        else:
            _save(path, lambda target: torch.export.save(program, target))
    return program


def _compile(program):
    """Compiles now; returns what writes the package: graph, weights and, beside them, AOTInductor's code.

    Small weights must not become literals in the code: the server loads those of a checkpoint by name. It also says how
    many threads the code uses.
    """
    from torch._inductor import aot_compile
    from torch.export.pt2_archive._package import package_pt2

    options = {
        "aot_inductor.package": True,
        "always_keep_tensor_constants": True,
        "cpp.dynamic_threads": True,
    }
    args, kwargs = program.example_inputs
    files = aot_compile(program.module(check_guards=False), args, kwargs, options=options)

    def write(target):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec.*is deprecated", category=FutureWarning)
            package_pt2(target, exported_programs={"model": program}, aoti_files={"model": files})

    return write


@contextlib.contextmanager
def _mode(module, training):
    before = {part: part.training for part in module.modules()}
    module.train(training)
    try:
        yield
    finally:
        for part, was_training in before.items():
            part.training = was_training


def _export(module, sample_inputs, dynamic_batch):
    if isinstance(sample_inputs, torch.Tensor):
        sample_inputs = (sample_inputs,)
    args, kwargs = ((), sample_inputs) if isinstance(sample_inputs, dict) else (tuple(sample_inputs), None)
    if not dynamic_batch:
        return torch.export.export(module, args, kwargs)
    reason = "torch.export fixes a size of 0 or 1; give sample inputs with a batch of 2 or more"
    if any(_varies(leaf) for leaf in pytree.tree_leaves(sample_inputs)):
        try:
            return torch.export.export(module, args, kwargs, dynamic_shapes=_batch_dims(sample_inputs, bool(kwargs)))
        except (torch._dynamo.exc.UserError, RuntimeError, ValueError) as error:
            reason = _first_line(error)
    # A module that cannot be exported at all fails here again, with torch's own message.
    program = torch.export.export(module, args, kwargs)
    print(f"export: the batch size is fixed to that of the sample inputs: {reason}", file=sys.stderr)
    return program


def _varies(leaf):
    # torch.export takes sizes 0 and 1 for constants (broadcasting depends on them), whatever one asks.
    return isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and leaf.shape[0] > 1


def _batch_dims(sample_inputs, keyword):
    """A symbol for each distinct first size, so that inputs of equal batch share one."""
    sizes = sorted({leaf.shape[0] for leaf in pytree.tree_leaves(sample_inputs) if _varies(leaf)})
    names = ["batch"] if len(sizes) == 1 else [f"batch_{size}" for size in sizes]
    symbols = {size: Dim(name, min=1) for size, name in zip(sizes, names)}
    shapes = pytree.tree_map(lambda leaf: {0: symbols[leaf.shape[0]]} if _varies(leaf) else None, sample_inputs)
    return shapes if keyword else tuple(shapes)


def _first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # torch's headline says only that constraints were violated; the bullet below it says which size and why.
    return next((line.lstrip("- ") for line in lines if line.startswith("- ")), lines[0] if lines else repr(error))


def _check_loss(program):
    outputs = program.graph_signature.user_outputs
    first = outputs[0] if outputs else None
    if first is None:
        raise ExportError("the module returns nothing: a training graph must return its loss as first output")
    node = next((n for n in program.graph.nodes if n.name == first), None)
    value = node.meta.get("val") if node is not None else first
    if not isinstance(value, torch.Tensor):
        raise ExportError(f"the first output is {value!r}: a training graph must return its loss as first output")
    if not value.dtype.is_floating_point or value.dim() != 0:
        dtype = str(value.dtype).removeprefix("torch.")
        raise ExportError(
            f"the first output is {dtype} with shape {list(value.shape)}: a training graph must return its loss, "
            "a floating-point scalar, as first output (wrap the module so that it computes the mean loss)"
        )


def _target(path):
    """Checks, before the work is done, where the graph goes: a file, new or old, in a folder that exists."""
    if not os.fspath(path):
        raise ExportError("the output path is empty: name a file, e.g. model.pt2")
    named_as_folder = os.fspath(path).endswith("/")
    path = Path(path)
    if named_as_folder or path.is_dir():
        raise ExportError(f"{path}: is a folder, name a file in it")
    if path.exists() and not path.is_file():
        raise ExportError(f"{path}: not a regular file (a pipe, socket or device)")
    if not path.parent.is_dir():
        raise ExportError(f"{path}: there is no folder {path.parent}; make it first")
    return path


def _save(path, write):
    """A crash or a full disk leaves the old file, never half a new one."""
    with tempfile.TemporaryDirectory(prefix=".export-", dir=path.parent) as folder:
        target = Path(folder) / path.name
        with _Sink(target, "w") as sink:
            write(sink)
        if sink.error:
            raise OSError(f"{path}: cannot write: {os.strerror(sink.error.errno)}")
        os.replace(target, path)


class _Sink(io.FileIO):
    """Keeps the first failure for later: torch's writer ends the process when a write fails under it."""

    error = None

    def write(self, data):
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest and self.error is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.error = error
        return size


def _compiler():
    return shutil.which(os.environ.get("CXX") or "g++") or shutil.which("clang++")


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m trireme.export",
        description="Write an example model as a .pt2 graph.",
        epilog="example: python -m trireme.export gpt --layers 4 --width 256 --heads 4 --context 128 -o gpt.pt2",
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-o", "--out", metavar="FILE", help="default: MODEL.pt2")
    common.add_argument("--seed", type=int, default=0, help="of the initial weights (default 0)")
    common.add_argument("--batch", type=_positive, default=2, help="of the sample inputs (default 2; it stays dynamic)")
    common.add_argument("--dropout", type=_share, default=0.0)
    common.add_argument("--inference", action="store_true", help="eval mode, returns logits instead of the loss")
    common.add_argument("--compile", action="store_true", help="with --inference: an AOTInductor package")
    models = parser.add_subparsers(dest="model", required=True, metavar="MODEL")
    for name, help_text, options in _MODELS:
        sub = models.add_parser(name, parents=[common], help=help_text, description=help_text)
        for option, default in options.items():
            sub.add_argument(f"--{option}", type=_positive, default=default, help=f"default {default}")
        if name == "gpt":
            sub.add_argument("--tied", action="store_true", help="the output head shares the token embedding")
    return parser


_MODELS = (
    ("gpt", "byte GPT: windows [B, context] and their next bytes", {"layers": 4, "width": 256, "heads": 4, "context": 128}),
    ("lstm", "byte LSTM: windows [B, context] and their next bytes", {"layers": 2, "width": 256, "context": 64}),
    ("convnet", "MNIST convnet with batch norm: images [B, 1, 28, 28] and labels [B]", {"width": 32}),
    ("mlp", "MNIST perceptron: images [B, 1, 28, 28] and labels [B]", {"layers": 2, "width": 2048}),
)


def _positive(text):
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 1 or more")
    return int(text)


def _share(text):
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0 to below 1")
    return value


def _build(args):
    from trireme import models

    torch.manual_seed(args.seed)
    if args.model == "gpt":
        module = models.ByteGPT(args.layers, args.width, args.heads, args.context, args.dropout, args.tied)
    elif args.model == "lstm":
        module = models.ByteLSTM(args.layers, args.width, args.dropout)
    elif args.model == "convnet":
        module = models.ConvNet(args.width, args.dropout)
    else:
        module = models.MLP(args.layers, args.width, args.dropout)
    byte_model = args.model in ("gpt", "lstm")
    inputs = models.byte_windows(args.batch, args.context) if byte_model else models.digits(args.batch)
    return module, inputs[:1] if args.inference else inputs


def main(argv=None):
    parser = _parser()
    args = parser.parse_args(argv)
    if args.compile and not args.inference:
        parser.error("--compile needs --inference")
    out = f"{args.model}.pt2" if args.out is None else args.out
    # nn.LSTM re-makes its list of weights while it is traced; torch warns of that, and nothing follows from it.
    warnings.filterwarnings("ignore", message="The tensor attributes .*_flat_weights", category=UserWarning)
    try:
        module, inputs = _build(args)
        if args.inference:
            inference_graph(module, inputs, out, compile=args.compile)
        else:
            training_graph(module, inputs, out)
    except (ValueError, OSError) as error:
        print(f"export: {error}", file=sys.stderr)
        return 1 if isinstance(error, OSError) else 2
    count = sum(p.numel() for p in module.parameters())
    kind = "inference" if args.inference else "training"
    print(f"{out}: {kind} graph of {args.model}, {count:,} parameters, {os.path.getsize(out) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
