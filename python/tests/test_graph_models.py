"""Graphs of many model families run in C++ as the modules do in Python: loss, all gradients, buffers, evaluation.

The graphs are exported in train mode with a dynamic batch and run by graph_run (src/trireme/graph/graph_run_torch.cc)
on another batch size than that of the export.
"""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn

from trireme import models

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("TRIREME_BIN", ROOT / "build/release/trireme")).resolve()
GRAPH_RUN = PROGRAM.parent / "src/trireme/graph/graph_run"
TOLERANCE = 1e-5
VOCABULARY, LENGTH = 97, 12
EXPORT_BATCH, RUN_BATCH = 3, 5

transformers.logging.set_verbosity_error()


class Loss(nn.Module):
    """What users write around a transformers model: positional inputs, its loss alone."""

    def __init__(self, model, names, fixed):
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, *values):
        return self.model(**dict(zip(self.names, values)), **self.fixed).loss


def tokens(batch):
    ids = torch.randint(5, VOCABULARY - 1, (batch, LENGTH))
    return {"input_ids": ids, "labels": ids.clone()}


def pictures(batch):
    return {"pixel_values": torch.randn(batch, 3, 32, 32), "labels": torch.randint(0, 2, (batch,))}


def speech(batch):
    return {"input_features": torch.randn(batch, 16, 40), "labels": tokens(batch)["labels"]}


def waves(batch):
    return {"input_values": torch.randn(batch, 400), "labels": torch.randint(0, 2, (batch,))}


WIDTH = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
TEXT = {"vocab_size": VOCABULARY, "max_position_embeddings": 64, **WIDTH}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODER = {**TEXT, **SPECIAL, "num_key_value_heads": 2}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SEQ2SEQ = {
    "vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "dropout": 0.0, **SPECIAL,
    "decoder_start_token_id": 2,
}  # fmt: skip
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, **SPECIAL}
GPT2_STILL = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
T5 = {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
VISION = {**WIDTH, "image_size": 32, "patch_size": 8}
NO_CACHE = {"use_cache": False}

# name -> (model class, config class, config, inputs, fixed arguments)
FAMILIES = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {**GPT2, **GPT2_STILL}, tokens, NO_CACHE),
    "bert": ("BertForMaskedLM", "BertConfig", {**TEXT, **STILL}, tokens, {}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", DECODER, tokens, NO_CACHE),
    "t5": ("T5ForConditionalGeneration", "T5Config", {**T5, "dropout_rate": 0.0, "decoder_start_token_id": 0}, tokens,
           NO_CACHE),
    "opt": ("OPTForCausalLM", "OPTConfig", {**TEXT, **SPECIAL, "ffn_dim": 48, "word_embed_proj_dim": 32, "dropout": 0.0},
            tokens, NO_CACHE),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {**TEXT, **SPECIAL}, tokens, NO_CACHE),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**DECODER, "sliding_window": 6}, tokens, NO_CACHE),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {**DECODER, "head_dim": 8, "sliding_window": 6}, tokens, NO_CACHE),
    "falcon": ("FalconForCausalLM", "FalconConfig", {**TEXT, **SPECIAL, "hidden_dropout": 0.0, "alibi": True}, tokens,
               NO_CACHE),
    "bloom": ("BloomForCausalLM", "BloomConfig", {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4,
                                                  "hidden_dropout": 0.0, "attention_dropout": 0.0}, tokens, NO_CACHE),
    "mamba": ("MambaForCausalLM", "MambaConfig", {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2,
                                                  "state_size": 4}, tokens, NO_CACHE),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", {**TEXT, **STILL, "embedding_size": 16}, tokens, {}),
    "deberta_v2": ("DebertaV2ForMaskedLM", "DebertaV2Config",
                   {**TEXT, **STILL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
                   tokens, {}),
    "bart": ("BartForConditionalGeneration", "BartConfig", {**SEQ2SEQ, "max_position_embeddings": 64}, tokens, NO_CACHE),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig",
                {**SEQ2SEQ, "num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 30}, speech, NO_CACHE),
    "wav2vec2": ("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config",
                 {**WIDTH, "conv_dim": [16, 16], "conv_stride": [5, 2], "conv_kernel": [10, 3],
                  "num_feat_extract_layers": 2, "hidden_dropout": 0.0, "attention_dropout": 0.0,
                  "activation_dropout": 0.0, "feat_proj_dropout": 0.0, "layerdrop": 0.0, "apply_spec_augment": False,
                  "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 16}, waves, {}),
    "vit": ("ViTForImageClassification", "ViTConfig", {**VISION, **STILL}, pictures, {}),
    "swin": ("SwinForImageClassification", "SwinConfig",
             {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4,
              "drop_path_rate": 0.0, **STILL}, pictures, {}),
    "resnet": ("ResNetForImageClassification", "ResNetConfig",
               {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}, pictures, {}),
}  # fmt: skip

# Ours, and torch.nn's own modules.
OWN = {
    "byte_gpt": (lambda: models.ByteGPT(layers=2, width=32, heads=4, context=LENGTH, tied=True),
                 lambda b: (torch.randint(0, 256, (b, LENGTH)), torch.randint(0, 256, (b, LENGTH)))),
    "byte_lstm": (lambda: models.ByteLSTM(layers=2, width=16),
                  lambda b: (torch.randint(0, 256, (b, LENGTH)), torch.randint(0, 256, (b, LENGTH)))),
    "convnet": (lambda: models.ConvNet(width=4), lambda b: (torch.randn(b, 1, 28, 28), torch.randint(0, 10, (b,)))),
    "mlp": (lambda: models.MLP(width=32), lambda b: (torch.randn(b, 1, 28, 28), torch.randint(0, 10, (b,)))),
}  # fmt: skip


def transformers_model(name):
    model, config, options, inputs, fixed = FAMILIES[name]
    built = getattr(transformers, model)(getattr(transformers, config)(**options))
    return Loss(built, list(inputs(1)), fixed), lambda batch: tuple(inputs(batch).values())


def export(module, values, path):
    batch = torch.export.Dim("batch", min=2, max=64)
    shapes = tuple({0: batch} for _ in values)
    if isinstance(module, Loss):
        shapes = (shapes,)  # of *values
    program = torch.export.export(module, values, dynamic_shapes=shapes)
    torch.export.save(program, path)
    kinds = torch.export.graph_signature.InputKind
    return [s.arg.name for s in program.graph_signature.input_specs if s.kind == kinds.USER_INPUT]


def graph_run(model, inputs, result, *options):
    return subprocess.run([GRAPH_RUN, model, inputs, result, *options], capture_output=True, text=True, timeout=120,
                          check=False)  # fmt: skip


def run(folder, *options):
    result = folder / "result.safetensors"
    done = graph_run(folder / "model.pt2", folder / "inputs.safetensors", result, *options)
    assert done.returncode == 0, done.stderr
    return load_file(result)


def assert_close(name, ours, eager, scale=None):
    """Relative to the tensor's norm; gradients that vanish are compared beside the largest of the model."""
    error = (ours.double() - eager.double()).norm()
    assert error <= TOLERANCE * max(eager.double().norm(), scale or 0.0), f"{name}: {error} of {eager.norm()}"


def assert_gradients(module, ours):
    eager = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    largest = max(g.double().norm() for g in eager.values())
    assert {name for name in ours if name.startswith("grad.")} <= {f"grad.{name}" for name in eager}
    for name, gradient in eager.items():
        if f"grad.{name}" in ours:
            assert_close(name, ours[f"grad.{name}"], gradient, scale=1e-3 * largest)
        else:
            assert gradient.norm() == 0, f"{name} has no gradient"


@pytest.mark.parametrize("name", [*FAMILIES, *OWN])
def test_graph_computes_what_the_module_does(name, tmp_path):
    torch.manual_seed(0)
    module, inputs = transformers_model(name) if name in FAMILIES else (OWN[name][0](), OWN[name][1])
    module.train()
    buffers = {n: b.clone() for n, b in module.named_buffers()}

    def reset():
        with torch.no_grad():
            for n, b in module.named_buffers():
                b.copy_(buffers[n])

    names = export(module, inputs(EXPORT_BATCH), tmp_path / "model.pt2")
    values = inputs(RUN_BATCH)
    save_file(dict(zip(names, values)), tmp_path / "inputs.safetensors")
    reset()
    loss = module(*values)
    loss.backward()

    whole = run(tmp_path)
    assert_close("loss", whole["output.0"], loss)
    assert_gradients(module, whole)
    for n, b in module.named_buffers():
        if f"buffer.{n}" in whole:
            assert_close(n, whole[f"buffer.{n}"], b)
    pieces = run(tmp_path, "--segment-splits", "4")
    assert whole.keys() == pieces.keys()
    for key, value in whole.items():
        assert_close(key, pieces[key], value)

    reset()
    with torch.no_grad():
        expected = module.eval()(*values)
    evaluated = run(tmp_path, "--mode", "evaluate")
    assert_close("evaluated loss", evaluated["output.0"], expected)
    for n, b in buffers.items():
        assert torch.equal(evaluated.get(f"buffer.{n}", b), b), f"{n} was changed by an evaluation"


def test_mixtral_is_refused_with_operator_and_line(tmp_path):
    torch.manual_seed(0)
    config = transformers.MixtralConfig(**DECODER, num_local_experts=4)
    module = Loss(transformers.MixtralForCausalLM(config), ["input_ids", "labels"], NO_CACHE)
    values = tuple(tokens(EXPORT_BATCH).values())
    names = export(module.train(), values, tmp_path / "mixtral.pt2")
    save_file(dict(zip(names, values)), tmp_path / "inputs.safetensors")
    done = graph_run(tmp_path / "mixtral.pt2", tmp_path / "inputs.safetensors", tmp_path / "result.safetensors")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert "mixtral.pt2: node 'grouped_mm_fallback' (transformers::grouped_mm_fallback), moe.py:" in lines[0]
    assert "registered by a Python package" in lines[0]


def test_mixtral_with_operators_of_pytorch_runs(tmp_path):
    # The way out that the refusal points to.
    torch.manual_seed(0)
    config = transformers.MixtralConfig(**DECODER, num_local_experts=4)
    config._experts_implementation = "batched_mm"
    module = Loss(transformers.MixtralForCausalLM(config), ["input_ids", "labels"], NO_CACHE)
    names = export(module.train(), tuple(tokens(EXPORT_BATCH).values()), tmp_path / "model.pt2")
    values = tuple(tokens(RUN_BATCH).values())
    save_file(dict(zip(names, values)), tmp_path / "inputs.safetensors")
    loss = module(*values)
    loss.backward()
    ours = run(tmp_path)
    assert_close("loss", ours["output.0"], loss)
    assert_gradients(module, ours)


def test_dropout_is_on_in_training_and_off_in_evaluation(tmp_path):
    torch.manual_seed(0)
    module = models.ByteGPT(layers=1, width=16, heads=2, context=LENGTH, dropout=0.5).train()
    values = (torch.randint(0, 256, (4, LENGTH)), torch.randint(0, 256, (4, LENGTH)))
    names = export(module, values, tmp_path / "model.pt2")
    save_file(dict(zip(names, values)), tmp_path / "inputs.safetensors")
    with torch.no_grad():
        expected = module.eval()(*values)
    assert_close("evaluated loss", run(tmp_path, "--mode", "evaluate")["output.0"], expected)
    assert (run(tmp_path)["output.0"] - expected).abs() > 1e-4


def test_old_archives_of_torch_are_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "old.pt2", "w") as archive:
        archive.writestr("serialized_exported_program.json", "{}")
        archive.writestr("version", "8.2")
    done = graph_run(tmp_path / "old.pt2", "none", "none")
    assert done.returncode == 2
    assert done.stderr.startswith(f"[input] {tmp_path}/old.pt2: exported by torch 2.7 or older")
