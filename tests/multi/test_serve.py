"""`trireme serve` as its clients see it: the public tritonclient unchanged, PyTorch's own results, signals, bad calls."""
import concurrent.futures
import json
import signal
import socket
import threading

import numpy as np
import pytest
import torch
import tritonclient.http as triton
from conftest import ROOT, assert_refused, trireme
from safetensors.torch import save_file
from serving import eventually, fp32, serving
from torch import nn
from tritonclient.utils import InferenceServerException

from trireme import export


class Net(nn.Module):
    """Takes images; returns class scores and their sum."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                                  nn.Linear(4 * 64, 10))

    def forward(self, images):
        scores = self.body(images)
        return scores, scores.sum(1)


class Sequence(nn.Module):
    """Tokens of any length; the mean embedding through a transformer layer."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, tokens):
        return self.layer(self.embed(tokens)).mean(1)


class Slow(nn.Module):
    """Spends about a tenth of a second in one run."""

    def forward(self, x):
        y = x
        for _ in range(12):
            y = torch.tanh(y @ y.transpose(1, 2))
        return y.sum((1, 2))


class Mixing(nn.Module):
    def forward(self, x):
        return x - x.mean(0, keepdim=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("serve")
    torch.manual_seed(0)
    net = Net().eval()
    export.inference_graph(net, (torch.rand(2, 1, 8, 8),), path / "net.pt2")
    torch.save(net, path / "net.pt")
    sequence = Sequence().eval()
    tokens = torch.randint(0, 50, (2, 6))
    with torch.no_grad():
        batch, length = torch.export.Dim("batch", min=1), torch.export.Dim("length", min=2, max=64)
        exported = torch.export.export(sequence, (tokens,), dynamic_shapes=({0: batch, 1: length},))
    torch.export.save(exported, path / "sequence.pt2")
    torch.save(sequence, path / "sequence.pt")
    export.inference_graph(Slow(), (torch.rand(2, 300, 300),), path / "slow.pt2")
    export.inference_graph(Mixing(), (torch.rand(2, 3),), path / "mixing.pt2")
    return path


MODELS = """
[[model]]
name = "net"
path = "net.pt2"
instances = 2
[[model]]
name = "sequence"
path = "sequence.pt2"
batch_wait_ms = 30
[[model]]
name = "mixing"
path = "mixing.pt2"
"""


@pytest.fixture(scope="module")
def server(folder):
    with serving(folder, MODELS, "max_body = '1MiB'\nmax_connections = 50") as running:
        yield running


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.url) as c:
        yield c


def eager(folder, name, *inputs):
    with torch.no_grad():
        return torch.load(folder / f"{name}.pt", weights_only=False)(*inputs)


def test_tritonclient_health_and_metadata(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("net") and client.is_model_ready("net", "1")
    about = client.get_server_metadata()
    assert about["name"] == "trireme" and "binary_tensor_data" in about["extensions"]
    model = client.get_model_metadata("net")
    assert model["name"] == "net" and model["versions"] == ["1"] and model["platform"] == "pytorch_pt2"
    assert model["inputs"] == [{"name": "images", "datatype": "FP32", "shape": [-1, 1, 8, 8]}]
    assert [o["name"] for o in model["outputs"]] == ["output_0", "output_1"]
    assert model["outputs"][0]["shape"] == [-1, 10]
    assert {m["name"] for m in client.get_model_repository_index()} == {"net", "sequence", "mixing"}


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_tritonclient_infers_what_pytorch_computes(client, folder, binary_in, binary_out, compression):
    images = torch.rand(3, 1, 8, 8)
    tensor = triton.InferInput("images", [3, 1, 8, 8], "FP32")
    tensor.set_data_from_numpy(images.numpy(), binary_data=binary_in)
    wanted = [triton.InferRequestedOutput(f"output_{i}", binary_data=binary_out) for i in (1, 0)]
    result = client.infer("net", [tensor], outputs=wanted, request_id="r7", request_compression_algorithm=compression)
    scores, sums = eager(folder, "net", images)
    assert result.get_response()["id"] == "r7"
    np.testing.assert_allclose(result.as_numpy("output_0"), scores, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.as_numpy("output_1"), sums, rtol=1e-5, atol=1e-5)


def test_tritonclient_raises_with_the_reason(client):
    tensor = triton.InferInput("images", [1, 1, 8, 7], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 1, 8, 7), np.float32))
    with pytest.raises(InferenceServerException, match=r"has shape \[1, 1, 8, 7\], the model takes \[-1, 1, 8, 8\]"):
        client.infer("net", [tensor])
    with pytest.raises(InferenceServerException, match="no model is named 'other'"):
        client.get_model_metadata("other")
    with pytest.raises(InferenceServerException, match="has no version '9'"):
        client.infer("net", [tensor], model_version="9")


def test_requests_of_several_lengths_are_batched_by_length_and_right(client, server, folder):
    before = server.metric("nv_inference_exec_count", model="sequence"), server.metric("nv_inference_count", model="sequence")
    torch.manual_seed(1)
    inputs = [torch.randint(0, 50, (1 + i % 2, 3 + i % 3)) for i in range(24)]

    def ask(tokens):
        with triton.InferenceServerClient(server.url) as own:
            tensor = triton.InferInput("tokens", list(tokens.shape), "INT64")
            tensor.set_data_from_numpy(tokens.numpy())
            return own.infer("sequence", [tensor]).as_numpy("output_0")

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(ask, inputs))
    for tokens, answer in zip(inputs, answers):
        np.testing.assert_allclose(answer, eager(folder, "sequence", tokens), rtol=1e-5, atol=1e-5)
    runs = server.metric("nv_inference_exec_count", model="sequence") - before[0]
    rows = server.metric("nv_inference_count", model="sequence") - before[1]
    assert rows == sum(len(t) for t in inputs)
    assert runs < len(inputs)


def test_models_that_mix_rows_are_never_joined(server):
    server.wait_for("model mixing: rows run together give other results than alone")
    status, answer = server.infer("mixing", fp32("x", np.array([[1.0, 2.0, 3.0]], np.float32)))
    assert status == 200 and answer["outputs"][0]["data"] == [0, 0, 0]


def test_keep_alive_and_requests_sent_together(server):
    body = json.dumps({"inputs": [fp32("x", np.zeros((1, 3), np.float32))]}).encode()
    post = b"POST /v2/models/mixing/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % len(body)
    got = server.send_raw(3 * (post + b"\r\n" + body) + post + b"Connection: close\r\n\r\n" + body)
    assert got.count(b"HTTP/1.1 200 OK") == 4


def test_expect_continue_is_answered(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
        s.sendall(b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 100")
        s.sendall(b"{}")
        assert s.recv(1000).startswith(b"HTTP/1.1 400")


def test_weights_come_from_a_checkpoint_by_name(folder, tmp_path):
    torch.manual_seed(5)
    trained = Net().eval()
    step = tmp_path / "step_3"
    step.mkdir()
    save_file(trained.state_dict(), step / "model.safetensors")
    images = torch.rand(2, 1, 8, 8)
    with serving(tmp_path, f'[[model]]\nname = "net"\npath = "{folder}/net.pt2"\nweights = "step_3"\n') as server:
        status, answer = server.infer("net", fp32("images", images))
    assert status == 200
    with torch.no_grad():
        np.testing.assert_allclose(answer["outputs"][0]["data"], trained(images)[0].flatten(), rtol=1e-5, atol=1e-6)


def test_versions_and_reload_under_load_lose_nothing(folder, tmp_path):
    """New weights take over by a reload (POST, then SIGHUP) while requests keep coming."""
    torch.manual_seed(6)
    old, new = Net().eval(), Net().eval()
    step = tmp_path / "step_1"
    step.mkdir()
    save_file(old.state_dict(), step / "model.safetensors")
    images = torch.rand(1, 1, 8, 8)
    models = (f'[[model]]\nname = "net"\npath = "{folder}/net.pt2"\n'
              f'[[model]]\nname = "net"\nversion = "2"\npath = "{folder}/net.pt2"\nweights = "step_1"\n')
    with serving(tmp_path, models) as server:
        answers, stop = [], threading.Event()

        def ask():
            while not stop.is_set():
                status, answer = server.infer("net", fp32("images", images))
                answers.append((status, answer.get("model_version"), answer.get("outputs", [{}])[0].get("data")))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads:
            t.start()
        save_file(new.state_dict(), step / "model.safetensors")
        assert server.call("POST", "/v2/repository/models/net/load", "{}")[0] == 200
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("model net version 2", 3)
        with torch.no_grad():
            wanted = new(images)[0].flatten().numpy()
        eventually(lambda: np.allclose(answers[-1][2], wanted, atol=1e-5), "an answer of the new weights")
        stop.set()
        for t in threads:
            t.join()
        assert {a[:2] for a in answers} == {(200, "2")}
        first = server.call("POST", "/v2/models/net/versions/1/infer",
                            json.dumps({"inputs": [fp32("images", images)]}))
        assert json.loads(first[2])["model_version"] == "1"


def test_sigterm_under_load_answers_all_and_exits_0(folder, tmp_path):
    with serving(tmp_path, f'[[model]]\nname = "net"\npath = "{folder}/net.pt2"\n') as server:
        outcomes, begun = [], threading.Barrier(5)

        def ask():
            begun.wait()
            while True:
                try:
                    socket.create_connection(("127.0.0.1", server.port), timeout=30).close()
                    status, _ = server.infer("net", fp32("images", np.zeros((1, 1, 8, 8), np.float32)))
                    outcomes.append(status)
                except ConnectionRefusedError:
                    return
                except OSError as error:
                    outcomes.append(repr(error))
                    return

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads:
            t.start()
        begun.wait()
        eventually(lambda: len(outcomes) > 50, "requests under way")
        assert server.stop() == 0
        for t in threads:
            t.join()
    assert set(outcomes) == {200}


def test_a_client_that_leaves_cancels_its_waiting_request(folder, tmp_path):
    with serving(tmp_path, f'[[model]]\nname = "slow"\npath = "{folder}/slow.pt2"\nmax_batch = 1\n') as server:
        body = json.dumps({"inputs": [fp32("x", np.zeros((1, 300, 300), np.float32))]}).encode()
        post = b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        connections = []
        for _ in range(12):
            connections.append(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            connections[-1].sendall(post)
        eventually(lambda: server.metric("nv_inference_pending_request_count", model="slow") > 0, "waiting requests")
        for c in connections:
            c.close()
        eventually(lambda: server.metric("nv_inference_request_failure", model="slow", reason="CANCELED") > 0, "a cancelled request")
        eventually(lambda: server.metric("nv_inference_pending_request_count", model="slow") == 0, "an empty queue")
        eventually(lambda: server.metric("trireme_connections") == 1, "closed connections")


def test_a_client_that_has_only_finished_sending_gets_its_answer(folder, tmp_path):
    with serving(tmp_path, f'[[model]]\nname = "slow"\npath = "{folder}/slow.pt2"\nmax_batch = 1\n') as server:
        body = json.dumps({"inputs": [fp32("x", np.zeros((1, 300, 300), np.float32))]}).encode()
        post = b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            def ask(_):
                with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
                    s.sendall(post)
                    s.shutdown(socket.SHUT_WR)
                    got = b""
                    while part := s.recv(65536):
                        got += part
                    return got
            answers = list(pool.map(ask, range(8)))
        assert all(b"HTTP/1.1 200 OK" in answer for answer in answers), answers


def test_configurations_that_cannot_work_are_refused(folder, tmp_path):
    def refuse(text, *parts):
        config = tmp_path / "bad.toml"
        config.write_text(text)
        assert_refused(trireme("serve", config, "--set", "server.http_port=0", "--set", "server.grpc_port=0"), 2, *parts)

    refuse("[server]\n", "no [[model]] to serve")
    refuse('[[model]]\nname = "a"\n', "model.path is missing for model 'a'")
    refuse('[[model]]\npath = "a.pt2"\n', "model.name is missing")
    refuse('[[model]]\nname = "a"\npath = "x"\nversion = "new"\n', "must be a whole number")
    refuse(2 * '[[model]]\nname = "a"\npath = "x"\n', "is there twice")
    refuse('[[model]]\nname = "a"\npath = "x"\nslo = 3\n', "unknown key", "did you mean model.slo_ms?")
    refuse('[[model]]\nname = "a"\npath = "x"\nslo_ms = 1\nmargin_ms = 2\n', "leaves nothing")
    refuse('[server]\nhost = "here"\n[[model]]\nname = "a"\npath = "x"\n', "must be an IP address")
    assert_refused(trireme("serve"), 2, "serve needs a CONFIG.toml")
    help_text = trireme("serve", "--help").stdout
    assert "Example:" in help_text and len(help_text.splitlines()) <= 24
    keys = trireme("serve", "--help-config").stdout
    assert "slo_share" in keys and "batch_wait_ms" in keys


def test_a_model_that_cannot_be_loaded_ends_the_program_with_one_line(tmp_path):
    config = tmp_path / "serve.toml"
    config.write_text('[[model]]\nname = "a"\npath = "missing.pt2"\n')
    done = trireme("serve", config, "--set", "server.http_port=0", "--set", "server.grpc_port=0", cwd=tmp_path)
    assert done.returncode == 2
    assert "missing.pt2" in done.stderr.splitlines()[-1]


def test_a_taken_port_is_named(server, tmp_path):
    config = tmp_path / "serve.toml"
    config.write_text('[[model]]\nname = "a"\npath = "x"\n')
    done = trireme("serve", config, "--set", f"server.http_port={server.port}")
    assert_refused(done, 1, f"port {server.port}", "choose another server.http_port")


def test_the_guides_configuration_has_known_keys_only():
    text = (ROOT / "docs/guides/serve.md").read_text()
    keys = trireme("serve", "--help-config").stdout
    for line in text.split("```toml")[1].split("```")[0].splitlines():
        if "=" in line:
            assert line.split("=")[0].strip(" #") in keys, line
