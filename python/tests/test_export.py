"""trireme.export: what is written, and what is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import trireme
from trireme import export, models


class Mean(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return (x * self.weight).mean()


class FixedBatch(Mean):
    def forward(self, x):
        return (x.view(4, 3) * self.weight).mean()


class NoScalar(Mean):
    def forward(self, x):
        return (x * self.weight).sum(1)


def run_cli(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "trireme.export", *arguments], cwd=cwd, capture_output=True, text=True, timeout=300
    )


def targets(program):
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def small_models():
    return {
        "gpt": (models.ByteGPT(layers=1, width=32, heads=2, context=16, dropout=0.1), models.byte_windows(2, 16)),
        "gpt-tied": (models.ByteGPT(layers=1, width=32, heads=2, context=16, tied=True), models.byte_windows(2, 16)),
        "lstm": (models.ByteLSTM(layers=2, width=16), models.byte_windows(2, 16)),
        "convnet": (models.ConvNet(width=4), models.digits(2)),
        "mlp": (models.MLP(layers=1, width=16), models.digits(2)),
    }


@pytest.mark.parametrize("name", ["gpt-tied", "lstm", "convnet", "mlp"])
@pytest.mark.parametrize("batch", [1, 5])
def test_loaded_graph_computes_the_module_s_loss_at_any_batch(tmp_path, name, batch):
    module, inputs = small_models()[name]
    export.training_graph(module, inputs, tmp_path / "m.pt2")
    loaded = torch.export.load(tmp_path / "m.pt2").module()
    inputs = models.byte_windows(batch, 16) if name in ("gpt-tied", "lstm") else models.digits(batch)
    torch.testing.assert_close(loaded(*inputs), module.train()(*inputs))


def test_composite_operators_stay_whole(tmp_path):
    module, inputs = small_models()["gpt"]
    names = targets(export.training_graph(module, inputs, tmp_path / "m.pt2"))
    for kept in ("linear", "layer_norm", "gelu", "scaled_dot_product_attention", "dropout", "cross_entropy_loss"):
        assert f"aten.{kept}.default" in names


def test_training_graph_trains_and_inference_graph_evaluates(tmp_path):
    module, inputs = small_models()["gpt"]
    module.blocks[0].eval()
    module.train(False)
    module.norm.train()
    before = [part.training for part in module.modules()]

    def dropout_trains(program):
        return {node.args[2] for node in program.graph.nodes if str(node.target) == "aten.dropout.default"}

    assert dropout_trains(export.training_graph(module, inputs, tmp_path / "t.pt2")) == {True}
    assert dropout_trains(export.inference_graph(module, inputs[:1], tmp_path / "i.pt2")) == {False}
    assert [part.training for part in module.modules()] == before


def test_both_graphs_share_parameter_names(tmp_path):
    module, inputs = small_models()["convnet"]
    training = export.training_graph(module, inputs, tmp_path / "t.pt2").state_dict.keys()
    assert training == export.inference_graph(module, inputs[:1], tmp_path / "i.pt2").state_dict.keys()


def test_keyword_inputs(tmp_path):
    program = export.training_graph(Mean(), {"x": torch.ones(4, 3)}, tmp_path / "m.pt2")
    assert program.module()(x=torch.ones(7, 3)) == 1


def test_module_that_fixes_its_batch_is_exported_with_it_and_says_so(tmp_path, capsys):
    program = export.training_graph(FixedBatch(), torch.ones(4, 3), tmp_path / "m.pt2")
    assert not program.range_constraints
    assert "the batch size is fixed" in capsys.readouterr().err


def test_batch_of_one_is_explained(tmp_path, capsys):
    export.training_graph(Mean(), torch.ones(1, 3), tmp_path / "m.pt2")
    assert "batch of 2 or more" in capsys.readouterr().err


def test_static_batch_on_request_is_silent(tmp_path, capsys):
    program = export.training_graph(Mean(), torch.ones(4, 3), tmp_path / "m.pt2", dynamic_batch=False)
    assert not program.range_constraints
    assert capsys.readouterr().err == ""


def test_output_that_is_no_loss_is_refused_and_the_old_file_stays(tmp_path):
    path = tmp_path / "m.pt2"
    path.write_bytes(b"old")
    with pytest.raises(export.ExportError, match="floating-point scalar"):
        export.training_graph(NoScalar(), torch.ones(4, 3), path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["m.pt2"]


def test_compiled_inference_package_runs(tmp_path):
    module, inputs = small_models()["mlp"]
    export.inference_graph(module, inputs[:1], tmp_path / "m.pt2", compile=True)
    compiled = torch._inductor.aoti_load_package(str(tmp_path / "m.pt2"))
    x = torch.rand(3, 1, 28, 28)
    torch.testing.assert_close(compiled(x), module.eval()(x))


def test_command_line_is_reproducible_by_seed(tmp_path):
    arguments = ("gpt", "--layers", "1", "--width", "32", "--heads", "2", "--context", "16", "--seed", "7", "-o")
    for name in ("a.pt2", "b.pt2"):
        result = run_cli(*arguments, name, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    first, second = (torch.export.load(tmp_path / name).state_dict for name in ("a.pt2", "b.pt2"))
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_bench_model_has_the_size_its_tables_name():
    module = models.ByteGPT(layers=6, width=384, heads=6, context=128)
    assert sum(p.numel() for p in module.parameters()) == 10_893_312


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("gpt", "--width", "32", "--heads", "5"), "not a multiple of heads"),
        (("gpt", "--layers", "0"), "'0' is not a whole number of 1 or more"),
        (("gpt", "--dropout", "1.5"), "not a number from 0 to below 1"),
        (("gpt", "--compile"), "--compile needs --inference"),
        (("resnet",), "invalid choice"),
    ],
)
def test_wrong_call_exits_2(tmp_path, arguments, says):
    result = run_cli(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert says in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--layers", "x"), "'x' is not a whole number of 1 or more"),
        (("--dropout", "x"), "'x' is not a number from 0 to below 1"),
        (("-o", ""), "export: the output path is empty"),
        (("-o", "."), "export: .: is a folder"),
        (("-o", "new/"), "export: new: is a folder"),
        (("-o", "absent/m.pt2"), "export: absent/m.pt2: there is no folder absent"),
    ],
)
def test_wrong_values_and_places_exit_2(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    try:
        code = export.main(["mlp", "--width", "8", *arguments])
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert says in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_special_files_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    for name in ("pipe", "device"):
        with pytest.raises(export.ExportError, match=f"{name}: not a regular file"):
            export.training_graph(Mean(), torch.ones(4, 3), tmp_path / name)
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "device").is_char_device()
    assert len(list(tmp_path.iterdir())) == 2


def test_disk_that_fills_up_is_told_in_one_line(tmp_path):
    # A limit on the size of files stands in for a full disk.
    limited = (
        "import resource, runpy, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)); "
        "runpy.run_module('trireme.export', run_name='__main__')"
    )
    command = [sys.executable, "-c", limited, "mlp", "--width", "64", "-o", "m.pt2"]
    variables = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=variables)
    assert result.returncode == 1
    assert result.stderr == "export: m.pt2: cannot write: File too large\n"
    assert not list(tmp_path.iterdir())


def test_other_endings_of_the_name_are_silent(tmp_path, capfd, recwarn):
    export.training_graph(Mean(), torch.ones(4, 3), tmp_path / "model.bin")
    assert (capfd.readouterr().err, list(recwarn)) == ("", [])
    assert (tmp_path / "model.bin").read_bytes().startswith(b"PK")


def test_parts_that_are_not_built_are_not_there():
    assert trireme.export is export
    assert "export" in dir(trireme)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        trireme.nonsense
    missing = [part for part in trireme._PARTS if not trireme._is_built(part)]
    for part in missing:
        with pytest.raises(AttributeError, match=f"trireme.{part} is not part of"):
            getattr(trireme, part)


def test_import_does_not_load_torch():
    code = "import sys, trireme; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
