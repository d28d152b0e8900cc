"""What users of other servers report, as tests of this one over the network; each is named after the report.

Those that need no network are in src/trireme/serve/peers_test.cc. Others that cannot occur here: autoscaling
(ray-project/ray #24793) is the fleet's; ray #52609 is a speed and measured in bench/scenario/serve.
"""
import concurrent.futures
import http.client
import json
import socket
import threading

import grpc
import numpy as np
import pytest
import torch
from conftest import trireme
from serving import eventually, fp32, serving
from tritonclient.grpc import service_pb2, service_pb2_grpc

from trireme import export

MIB = 1 << 20


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.line(x)


class Wide(torch.nn.Module):
    def forward(self, x):
        return x.sum(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("peers")
    export.inference_graph(Line(), (torch.rand(2, 4),), path / "line.pt2")
    export.inference_graph(Wide(), (torch.rand(2, 2 * MIB),), path / "wide.pt2")
    return path


@pytest.fixture(scope="module")
def server(folder):
    models = "".join(f'[[model]]\nname = "{name}"\npath = "{name}.pt2"\n' for name in ("line", "wide"))
    with serving(folder, models) as running:
        yield running


ROW = fp32("x", np.ones((1, 4), np.float32))
BODY = json.dumps({"inputs": [ROW]}).encode()


def test_triton_server_8094_queue_and_batch_sizes_can_be_seen(server):
    server.infer("line", ROW)
    assert server.metric("nv_inference_pending_request_count", model="line") == 0
    assert server.metric("trireme_batch_rows_count", model="line") >= 1
    assert server.metric("trireme_queue_duration_seconds_count", model="line") >= 1
    assert server.metric("nv_inference_count", model="line") >= server.metric("nv_inference_exec_count", model="line") >= 1


def test_kserve_2275_the_batcher_works_over_v2(folder, tmp_path):
    with serving(tmp_path, f'[[model]]\nname = "line"\npath = "{folder}/line.pt2"\nmax_batch = 8\nbatch_wait_ms = 60000\n') as own:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda _: own.infer("line", ROW)[0], range(16)))
        assert answers == 16 * [200]  # each batch fills; nobody waits for a minute
        assert own.metric("nv_inference_exec_count", model="line") == 2


def test_kserve_1666_the_configured_wait_is_the_one_that_counts(folder, tmp_path):
    with serving(tmp_path, f'[[model]]\nname = "line"\npath = "{folder}/line.pt2"\nbatch_wait_ms = 40\n') as own:
        assert own.infer("line", ROW)[0] == 200
        assert 40e3 <= own.metric("nv_inference_queue_duration_us", model="line") < 5e6


def test_tensorrtllm_backend_412_requests_in_flight_can_be_capped(folder, tmp_path):
    models = f'[[model]]\nname = "line"\npath = "{folder}/line.pt2"\nmax_batch = 4\nbatch_wait_ms = 500\nmax_queue = 2\n'
    with serving(tmp_path, models) as own:
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            statuses = list(pool.map(lambda _: own.infer("line", ROW)[0], range(12)))
        assert sorted(set(statuses)) == [200, 503] and statuses.count(200) >= 2


def test_ray_63507_a_refusal_is_not_repeated_by_the_client(folder, tmp_path):
    models = f'[[model]]\nname = "line"\npath = "{folder}/line.pt2"\nslo_ms = 0.001\nmargin_ms = 0\n'
    with serving(tmp_path, models) as own:
        done = trireme("load", "--url", f"http://{own.url}", "--model", "line", "--rate", "100", "--duration", "1s",
                       "--gaps", "even", "--json")
        got = json.loads(done.stdout)
        assert got["sent"] == got["rejected"] == 100
        assert own.metric("nv_inference_request_failure", model="line", reason="REJECTED") == 100


@pytest.mark.parametrize("content_type", [None, "", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8", ";", "x" * 2000])
def test_triton_server_2643_any_content_type_is_answered(server, content_type):
    status, _, body = server.call("POST", "/v2/models/line/infer", BODY, {} if content_type is None else {"Content-Type": content_type})
    expected = 200 if content_type in (None, "application/json; charset=utf-8") else 400
    assert status == expected, body
    if status != 200:
        assert "content type" in json.loads(body)["error"]


def test_triton_server_3563_negative_shapes_over_grpc_are_refused(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = service_pb2.ModelInferRequest(model_name="line")
        request.inputs.add(name="x", datatype="FP32", shape=[-1, 4]).contents.fp32_contents.extend([1] * 4)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(request, timeout=30)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b"[]", b"null", b'{"inputs":[{"name":"x"', b"\xff\xfe", b"{\"a\":" * 100000,
                                  b'{"inputs":[' + b"9" * 1000 + b"]}", BODY[:-1], BODY + b"}"])
def test_triton_server_3119_invalid_json_is_refused_with_a_reason(server, body):
    status, headers, answer = server.call("POST", "/v2/models/line/infer", body)
    assert status == 400 and json.loads(answer)["error"] and headers["trireme-reason"] == "invalid"


def test_triton_server_5840_bodies_above_4_mb_are_served(server):
    x = np.ones((1, 2 * MIB), np.float32)
    head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2 * MIB],
                                   "parameters": {"binary_data_size": x.nbytes}}]}).encode()
    status, _, answer = server.call("POST", "/v2/models/wide/infer", head + x.tobytes(),
                                    {"Inference-Header-Content-Length": str(len(head))})
    assert status == 200 and json.loads(answer)["outputs"][0]["data"] == [2 * MIB]
    status, answer = server.infer("wide", fp32("x", x))
    assert status == 200 and answer["outputs"][0]["data"] == [2 * MIB]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        request = service_pb2.ModelInferRequest(model_name="wide")
        request.inputs.add(name="x", datatype="FP32", shape=[1, 2 * MIB])
        request.raw_input_contents.append(x.tobytes())
        answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=60)
    assert np.frombuffer(answer.raw_output_contents[0], np.float32)[0] == 2 * MIB


def test_kserve_3369_every_error_has_a_body(server):
    for verb, path, body in (("GET", "/nothing", None), ("POST", "/v2/models/line/infer", b"{}"), ("PUT", "/v2", b""),
                             ("POST", "/v2/models/none/infer", BODY), ("GET", "/v2/models/line/versions/7", None),
                             ("POST", "/v2/models/line/infer", b"x" * (65 * MIB))):
        status, _, answer = server.call(verb, path, body)
        assert status >= 400 and len(json.loads(answer)["error"]) > 5


def test_triton_server_2750_memory_returns_after_a_burst_of_large_requests(server):
    x = np.ones((1, 2 * MIB), np.float32)
    head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2 * MIB],
                                   "parameters": {"binary_data_size": x.nbytes}}]}).encode()

    def burst():
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: server.call("POST", "/v2/models/wide/infer", head + x.tobytes(),
                                                {"Inference-Header-Content-Length": str(len(head))}), range(32)))
        return server.rss()

    burst()
    before = burst()
    after = max(burst() for _ in range(3))
    assert after < before + 150 * MIB, (before, after)


def test_triton_server_4528_reloading_does_not_leak(tmp_path):
    torch.manual_seed(0)
    export.inference_graph(torch.nn.Linear(1500, 1500), (torch.rand(2, 1500),), tmp_path / "big.pt2")  # 9 MB of weights
    with serving(tmp_path, '[[model]]\nname = "big"\npath = "big.pt2"\n') as own:
        def reload():
            assert own.call("POST", "/v2/repository/models/big/load", b"")[0] == 200
            return own.rss()

        for _ in range(3):
            before = reload()
        for _ in range(12):
            after = reload()
        assert after < before + 50 * MIB, (before, after)  # a leak would be 108 MB


def test_triton_server_6230_requests_during_sigterm_find_their_model(folder, tmp_path):
    with serving(tmp_path, f'[[model]]\nname = "line"\npath = "{folder}/line.pt2"\nbatch_wait_ms = 300\n') as own:
        connections = [http.client.HTTPConnection("127.0.0.1", own.port, timeout=60) for _ in range(8)]
        for c in connections[:4]:
            c.request("POST", "/v2/models/line/infer", BODY)
        eventually(lambda: own.metric("nv_inference_pending_request_count", model="line") == 4, "waiting requests")
        for c in connections[4:]:
            c.connect()
        stopper = threading.Thread(target=own.stop)
        stopper.start()
        own.wait_for("SIGTERM")
        for c in connections[4:]:
            c.request("POST", "/v2/models/line/infer", BODY)
        answers = [c.getresponse() for c in connections]
        assert [a.status for a in answers] == 8 * [200], own.lines
        for a in answers:
            a.read()
        stopper.join()
    assert own.process.returncode == 0


def test_kserve_3360_reloading_under_requests_gives_no_5xx(server):
    stop, statuses = threading.Event(), []

    def ask():
        while not stop.is_set():
            statuses.append(server.infer("line", ROW)[0])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for t in threads:
        t.start()
    for _ in range(5):
        assert server.call("POST", "/v2/repository/models/line/load", b"")[0] == 200
    stop.set()
    for t in threads:
        t.join()
    assert set(statuses) == {200}


def test_triton_server_5927_histograms_of_replicas_add_up(server, folder, tmp_path):
    with serving(tmp_path, f'[[model]]\nname = "line"\npath = "{folder}/line.pt2"\n') as other:
        def bounds(one):
            text = one.call("GET", "/metrics")[2].decode()
            return [part.split('le="')[1].split('"')[0] for part in text.splitlines()
                    if part.startswith("trireme_request_duration_seconds_bucket") and 'model="line"' in part]
        assert bounds(server) == bounds(other) and len(bounds(other)) > 20
        assert other.metric("nv_inference_pending_request_count") == 0


def test_triton_server_5009_silent_connections_are_closed(folder, tmp_path):
    with serving(tmp_path, f'[[model]]\nname = "line"\npath = "{folder}/line.pt2"\n',
                 "idle_timeout = '300ms'\nrequest_timeout = '300ms'\nmax_connections = 30") as own:
        idle = [socket.create_connection(("127.0.0.1", own.port), timeout=60) for _ in range(10)]
        slow = [socket.create_connection(("127.0.0.1", own.port), timeout=60) for _ in range(10)]
        for s in slow[:5]:
            s.sendall(b"POST /v2/models/line/infer HTTP/1.1\r\nHost: x\r\nContent-")
        for s in slow[5:]:
            s.sendall(b"POST /v2/models/line/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        for s in idle + slow:
            assert s.recv(1) == b""  # closed from the other side
            s.close()
        eventually(lambda: own.metric("trireme_connections") == 1, "closed connections")
        many = [socket.create_connection(("127.0.0.1", own.port), timeout=60) for _ in range(40)]
        told = b""
        for s in many[-5:]:
            told += s.recv(1000)
        assert b"503" in told and b"too many connections" in told
        for s in many:
            s.close()
        eventually(lambda: own.call("GET", "/v2/health/live")[0] == 200, "room for a new connection")
