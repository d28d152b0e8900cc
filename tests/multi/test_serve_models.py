"""Model families behind the server: what PyTorch computes to 1e-5, alone and batched with others."""
import concurrent.futures

import ml_dtypes
import numpy as np
import pytest
import torch
import tritonclient.http as triton
from serving import serving
from torch import nn
from torch.export import Dim
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, T5Config, T5EncoderModel, ViTConfig, ViTModel

from trireme import export, models


class Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens, use_cache=False).logits


class Bert(nn.Module):
    """Two inputs, two outputs."""

    def __init__(self):
        super().__init__()
        self.model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100))

    def forward(self, input_ids, attention_mask):
        out = self.model(input_ids=input_ids, attention_mask=attention_mask)
        return out.last_hidden_state, out.pooler_output


class Encoder(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x).last_hidden_state


def tokens(batch, length=12, vocabulary=100):
    return torch.randint(0, vocabulary, (batch, length))


FAMILIES = {
    "gpt2": (lambda: Logits(GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=32, n_embd=32, n_layer=2, n_head=2))), lambda b: (tokens(b),)),
    "bert": (Bert, lambda b: (tokens(b), torch.ones(b, 12, dtype=torch.int64).index_fill(1, torch.tensor([11]), 0))),
    "t5": (lambda: Encoder(T5EncoderModel(T5Config(vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4))), lambda b: (tokens(b),)),
    "vit": (lambda: Encoder(ViTModel(ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=16,
                                               patch_size=8))), lambda b: (torch.rand(b, 3, 16, 16),)),
    "convnet": (lambda: models.ConvNet(8), lambda b: (torch.rand(b, 1, 28, 28),)),
    "lstm": (lambda: models.ByteLSTM(1, 32), lambda b: (tokens(b, vocabulary=256),)),
    "half": (lambda: nn.Linear(6, 4).bfloat16(), lambda b: (torch.rand(b, 6).bfloat16(),)),
}


@pytest.fixture(scope="module")
def modules():
    torch.manual_seed(0)
    return {name: make().eval() for name, (make, _) in FAMILIES.items()}


@pytest.fixture(scope="module")
def server(tmp_path_factory, modules):
    folder = tmp_path_factory.mktemp("families")
    for name, module in modules.items():
        sample = FAMILIES[name][1](3)
        if name in ("convnet", "gpt2"):  # as people export without us, the batch left to PyTorch
            dims = tuple({0: Dim.DYNAMIC} for _ in sample)
            with torch.no_grad():
                torch.export.save(torch.export.export(module, sample, dynamic_shapes=dims), folder / f"{name}.pt2")
        else:
            export.inference_graph(module, sample, folder / f"{name}.pt2")
    config = "".join(f'[[model]]\nname = "{name}"\npath = "{name}.pt2"\nbatch_wait_ms = 5\n' for name in FAMILIES)
    with serving(folder, config) as running:
        yield running


def to_input(name, tensor):
    datatype = {torch.int64: "INT64", torch.float32: "FP32", torch.bfloat16: "BF16"}[tensor.dtype]
    given = triton.InferInput(name, list(tensor.shape), datatype)
    given.set_data_from_numpy(tensor.float().numpy().astype(ml_dtypes.bfloat16) if datatype == "BF16" else tensor.numpy())
    return given


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_pytorchs_alone_and_batched(server, modules, family):
    torch.manual_seed(1)
    requests = [FAMILIES[family][1](1 + i % 3) for i in range(12)]

    def ask(given):
        with triton.InferenceServerClient(server.url, network_timeout=60) as client:
            names = [i["name"] for i in client.get_model_metadata(family)["inputs"]]
            result = client.infer(family, [to_input(n, t) for n, t in zip(names, given)])
            return [result.as_numpy(o["name"]) for o in result.get_response()["outputs"]]

    alone = [ask(given) for given in requests[:3]]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        batched = list(pool.map(ask, requests))
    tolerance = 1e-2 if family == "half" else 1e-5
    with torch.no_grad():
        for given, answers in zip(requests[:3] + requests, alone + batched):
            wanted = modules[family](*given)
            for want, answer in zip(wanted if isinstance(wanted, tuple) else (wanted,), answers):
                np.testing.assert_allclose(answer.astype(np.float32), want.float(), rtol=tolerance, atol=tolerance)
    assert server.metric("nv_inference_exec_count", model=family) < server.metric("nv_inference_count", model=family)
