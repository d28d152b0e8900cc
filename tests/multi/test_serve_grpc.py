"""The protocol over gRPC: tritonclient unchanged, in a server process whose models are read from .pt2 files."""
import concurrent.futures
import re
import subprocess
import threading

import grpc
import numpy as np
import pytest
import torch
import tritonclient.grpc as triton
from conftest import assert_refused, program, trireme
from serving import eventually, serving
from torch import nn
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from trireme import export


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))

    def forward(self, x, scale):
        return self.body(x) * scale, x.argmax(1)


class Slow(nn.Module):
    def forward(self, x):
        y = x
        for _ in range(50):
            y = torch.tanh(y @ y.transpose(1, 2))
        return y.sum((1, 2))


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def server(tmp_path_factory, net):
    folder = tmp_path_factory.mktemp("grpc")
    export.inference_graph(net, (torch.rand(2, 6), torch.rand(2, 1)), folder / "net.pt2")
    export.inference_graph(Slow(), (torch.rand(2, 500, 500),), folder / "slow.pt2")
    models = '[[model]]\nname = "net"\npath = "net.pt2"\n[[model]]\nname = "slow"\npath = "slow.pt2"\nmax_batch = 1\n'
    with serving(folder, models, "max_body = '1MiB'") as running:
        yield running


@pytest.fixture
def address(server):
    return f"127.0.0.1:{server.grpc_port}"


@pytest.fixture
def client(address):
    with triton.InferenceServerClient(address) as c:
        yield c


@pytest.fixture
def stub(address):
    with grpc.insecure_channel(address) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def inputs(x, scale):
    given = [triton.InferInput("x", list(x.shape), "FP32"), triton.InferInput("scale", list(scale.shape), "FP32")]
    given[0].set_data_from_numpy(x.numpy())
    given[1].set_data_from_numpy(scale.numpy())
    return given


def test_health_and_metadata(client, address):
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("net")
    assert client.get_server_metadata().name == "trireme"
    model = client.get_model_metadata("net", as_json=True)
    assert model["platform"] == "pytorch_pt2"
    assert model["inputs"][0] == {"name": "x", "datatype": "FP32", "shape": ["-1", "6"]}
    assert {m.name for m in client.get_model_repository_index().models} == {"net", "slow"}
    with grpc.insecure_channel(address) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=30) == b"\x08\x01"  # SERVING


def test_infers_what_pytorch_computes(client, net):
    x, scale = torch.rand(5, 6), torch.rand(5, 1)
    result = client.infer("net", inputs(x, scale), request_id="r9")
    with torch.no_grad():
        scores, best = net(x, scale)
    np.testing.assert_allclose(result.as_numpy("output_0"), scores, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(result.as_numpy("output_1"), best)
    assert result.get_response().id == "r9"
    only = client.infer("net", inputs(x, scale), outputs=[triton.InferRequestedOutput("output_1")])
    assert only.as_numpy("output_0") is None and only.as_numpy("output_1") is not None


def test_many_at_once_are_right(client, net):
    torch.manual_seed(1)
    given = [(torch.rand(1 + i % 3, 6), torch.rand(1 + i % 3, 1)) for i in range(60)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda g: client.infer("net", inputs(*g)).as_numpy("output_0"), given))
    with torch.no_grad():
        for (x, scale), answer in zip(given, answers):
            np.testing.assert_allclose(answer, net(x, scale)[0], rtol=1e-5, atol=1e-6)


def message(shape=(1, 6), values=6, datatype="FP32", name="x", model="net"):
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name=name, datatype=datatype, shape=shape).contents.fp32_contents.extend([1.0] * values)
    request.inputs.add(name="scale", datatype="FP32", shape=[1, 1]).contents.fp32_contents.append(2.0)
    return request


def test_typed_contents_are_answered_in_kind(stub, net):
    answer = stub.ModelInfer(message(), timeout=30)
    with torch.no_grad():
        wanted = net(torch.ones(1, 6), torch.full((1, 1), 2.0))
    assert not answer.raw_output_contents
    np.testing.assert_allclose(answer.outputs[0].contents.fp32_contents, wanted[0].flatten(), rtol=1e-5)
    assert list(answer.outputs[1].contents.int64_contents) == wanted[1].tolist()


@pytest.mark.parametrize("change, code, part", [
    ({"shape": [-1, 6]}, "INVALID_ARGUMENT", "must hold whole numbers of 0 or more"),
    ({"shape": [2**62, 6]}, "INVALID_ARGUMENT", "too large"),
    ({"values": 5}, "INVALID_ARGUMENT", "holds 20 bytes"),
    ({"datatype": "BYTES"}, "INVALID_ARGUMENT", "datatype 'BYTES'"),
    ({"name": "y"}, "INVALID_ARGUMENT", "input 'x' is missing"),
    ({"model": "none"}, "NOT_FOUND", "no model is named 'none'"),
])
def test_errors_have_code_and_reason(stub, change, code, part):
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(message(**change), timeout=30)
    assert caught.value.code() == grpc.StatusCode[code] and part in caught.value.details()


def test_raw_contents_must_match_the_inputs(stub):
    request = message()
    request.raw_input_contents.append(b"1234")
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(request, timeout=30)
    assert "1 entries for 2 inputs" in caught.value.details()
    request.raw_input_contents.append(b"1234")
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(request, timeout=30)
    assert "give one" in caught.value.details()


def test_messages_above_the_limit_and_garbage_are_refused(stub, address, client):
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(message(values=500000), timeout=30)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    with grpc.insecure_channel(address) as channel:
        raw = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError):
            raw(b"\xff\xff\xff\xff", timeout=30)
    with pytest.raises(InferenceServerException, match="UNIMPLEMENTED"):
        client.get_model_config("net")
    assert client.is_server_live()


def test_deadline_and_cancellation_take_requests_out_of_the_queue(server, stub):
    """Peers crash when a cancellation meets a completion: Triton PR 8078."""
    request = service_pb2.ModelInferRequest(model_name="slow")
    request.inputs.add(name="x", datatype="FP32", shape=[1, 500, 500])
    request.raw_input_contents.append(bytes(4 * 500 * 500))
    calls = [stub.ModelInfer.future(request, timeout=60) for _ in range(12)]
    eventually(lambda: server.metric("nv_inference_pending_request_count", model="slow") > 3, "waiting requests")
    for call in calls[1:]:
        call.cancel()
    eventually(lambda: server.metric("nv_inference_request_failure", model="slow", reason="CANCELED") > 0, "a cancelled request")
    assert calls[0].result().model_name == "slow"
    rushed = [stub.ModelInfer.future(request, timeout=0.02) for _ in range(60)]
    codes = {call.code() for call in rushed}
    assert codes <= {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.OK} and grpc.StatusCode.DEADLINE_EXCEEDED in codes
    eventually(lambda: server.metric("nv_inference_pending_request_count", model="slow") == 0, "an empty queue")


def test_load_and_unload(client):
    client.load_model("net")
    client.unload_model("net")
    assert not client.is_model_ready("net")
    with pytest.raises(InferenceServerException, match="UNAVAILABLE"):
        client.infer("net", inputs(torch.rand(1, 6), torch.rand(1, 1)))
    client.load_model("net")
    assert client.is_model_ready("net")
    with pytest.raises(InferenceServerException, match="no model is named"):
        client.load_model("other")


def test_sigterm_finishes_calls_under_way(server, tmp_path_factory, net):
    folder = tmp_path_factory.mktemp("drain")
    export.inference_graph(Slow(), (torch.rand(2, 500, 500),), folder / "slow.pt2")
    with serving(folder, '[[model]]\nname = "slow"\npath = "slow.pt2"\nmax_batch = 1\n') as own:
        with grpc.insecure_channel(f"127.0.0.1:{own.grpc_port}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            request = service_pb2.ModelInferRequest(model_name="slow")
            request.inputs.add(name="x", datatype="FP32", shape=[1, 500, 500])
            request.raw_input_contents.append(bytes(4 * 500 * 500))
            calls = [stub.ModelInfer.future(request, timeout=60) for _ in range(6)]
            eventually(lambda: own.metric("nv_inference_pending_request_count", model="slow") > 3, "waiting requests")
            stopper = threading.Thread(target=own.stop)
            stopper.start()
            assert [call.result().model_name for call in calls] == 6 * ["slow"]
            stopper.join()
    assert own.process.returncode == 0


def test_a_taken_port_is_named(server, tmp_path):
    config = tmp_path / "serve.toml"
    config.write_text('[[model]]\nname = "a"\npath = "x"\n')
    done = trireme("serve", config, "--set", "server.http_port=0", "--set", f"server.grpc_port={server.grpc_port}")
    assert_refused(done, 1, f"port {server.grpc_port}", "choose another server.grpc_port")


def test_the_program_neither_takes_nor_gives_protobuf_symbols():
    """libtorch exports its own protobuf under the names of Debian's."""
    symbols = subprocess.run(["nm", "-D", program()], capture_output=True, text=True, check=True).stdout
    assert "grpc" in symbols
    assert not re.findall(r".*google8protobuf.*", symbols)
