"""AOTInductor packages: the same answers as PyTorch, weights of a checkpoint by name, several instances."""
import concurrent.futures

import numpy as np
import pytest
import torch
from conftest import trireme
from safetensors.torch import save_file
from serving import fp32, serving

from trireme import export


class Net(torch.nn.Module):
    """Small weights too: AOTInductor would make literals of those up to 8 elements."""

    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(6, 24), torch.nn.Linear(24, 4)
        self.register_buffer("shift", torch.rand(4))

    def forward(self, x):
        y = self.down(torch.nn.functional.gelu(self.up(x))) + self.shift
        return y, y.softmax(1)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    torch.manual_seed(0)
    net = Net().eval()
    path = tmp_path_factory.mktemp("aoti") / "net.pt2"
    export.inference_graph(net, (torch.rand(2, 6),), path, compile=True)
    return path, net


def test_compiled_packages_answer_what_pytorch_computes(package, tmp_path):
    path, net = package
    with serving(tmp_path, f'[[model]]\nname = "net"\npath = "{path}"\ninstances = 2\n') as server:
        status, _, body = server.call("GET", "/v2/models/net")
        assert status == 200 and b"pytorch_aotinductor" in body
        given = [torch.rand(1 + i % 4, 6) for i in range(24)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda x: server.infer("net", fp32("x", x)), given))
    with torch.no_grad():
        for x, (status, answer) in zip(given, answers):
            assert status == 200, answer
            for output, wanted in zip(answer["outputs"], net(x)):
                np.testing.assert_allclose(output["data"], wanted.flatten(), rtol=1e-5, atol=1e-6)


def test_compiled_packages_take_the_weights_of_a_checkpoint(package, tmp_path):
    path, _ = package
    torch.manual_seed(8)
    trained = Net().eval()
    save_file(trained.state_dict(), tmp_path / "w.safetensors")
    x = torch.rand(3, 6)
    with serving(tmp_path, f'[[model]]\nname = "net"\npath = "{path}"\nweights = "w.safetensors"\n') as server:
        status, answer = server.infer("net", fp32("x", x))
    assert status == 200, answer
    with torch.no_grad():
        np.testing.assert_allclose(answer["outputs"][0]["data"], trained(x)[0].flatten(), rtol=1e-5, atol=1e-6)
    save_file({"up.weight": trained.up.weight.detach()}, tmp_path / "w.safetensors")
    config = tmp_path / "serve.toml"
    done = trireme("serve", config, "--set", "server.http_port=0", "--set", "server.grpc_port=0", cwd=tmp_path)
    assert done.returncode == 2 and "missing: 'up.bias'" in done.stderr.splitlines()[-1]
