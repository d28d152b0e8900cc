"""`trireme load`: open loop, counted from the intended time, against ours and against anybody's server."""
import http.server
import json
import threading
import time

import pytest
import torch
from conftest import assert_refused, trireme
from serving import serving

from trireme import export


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.line(x)


class Tokens(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(8, 4)

    def forward(self, tokens):
        return self.embed(tokens).sum(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("load")
    export.inference_graph(Linear(), (torch.rand(2, 4),), folder / "linear.pt2")
    batch, length = torch.export.Dim("batch", min=1), torch.export.Dim("length", min=2, max=64)
    torch.export.save(torch.export.export(Tokens().eval(), (torch.zeros(2, 6, dtype=torch.int64),),
                                          dynamic_shapes=({0: batch, 1: length},)), folder / "tokens.pt2")
    models = "".join(f'[[model]]\nname = "{name}"\npath = "{name}.pt2"\n' for name in ("linear", "tokens"))
    with serving(folder, models) as running:
        yield running


def load(*words, expect=0):
    done = trireme("load", *words, "--json")
    assert done.returncode == expect, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("body", ["binary", "json"])
def test_a_rate_is_kept_and_all_is_answered(server, body):
    got = load("--url", f"http://{server.url}", "--model", "linear", "--rate", "300", "--duration", "1s", "--gaps", "even",
               "--slo-ms", "10000", "--body", body, "--rows", "3")
    assert got["sent"] == got["ok"] == 300
    assert got["rejected"] == got["failed"] == 0 and got["slo_miss"] == 0 and got["errors"] == {}
    assert 0 < got["p50_ms"] <= got["p90_ms"] <= got["p99_ms"] <= got["max_ms"]


def test_a_trace_is_replayed(server, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("second,requests\n0,50\n1,0\n2,100\n")
    got = load("--url", f"http://{server.url}", "--model", "linear", "--trace", trace, "--gaps", "even", "--scale", "2")
    assert got["sent"] == got["ok"] == 300 and got["seconds"] > 2
    assert load("--url", f"http://{server.url}", "--model", "linear", "--trace", trace, "--gaps", "even",
                "--duration", "1s")["sent"] == 50


def test_open_sizes_must_be_given(server):
    words = ("load", "--url", f"http://{server.url}", "--model", "tokens", "--rate", "10", "--duration", "1s")
    assert_refused(trireme(*words), 2, "say what to send with --shape tokens=")
    assert_refused(trireme(*words, "--shape", "tokens"), 2, "write INPUT=2x3")
    assert_refused(trireme(*words, "--shape", "x=1"), 2, "no such input")
    assert load(*words[1:], "--shape", "tokens=2x5", "--gaps", "even")["ok"] == 10


def test_other_protocols_get_the_payload_at_the_path(server, tmp_path):
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
    (tmp_path / "body.json").write_text(json.dumps(body))
    got = load("--url", f"http://{server.url}", "--path", "/v2/models/linear/infer", "--payload", tmp_path / "body.json",
               "--rate", "20", "--duration", "1s", "--gaps", "even")
    assert got["ok"] == 20


def test_wrong_calls_are_refused(server, tmp_path):
    url = ("--url", f"http://{server.url}")
    assert_refused(trireme("load", *url, "--model", "linear"), 2, "needs one of --rate and --trace")
    assert_refused(trireme("load", *url, "--rate", "5", "--duration", "1s"), 2, "needs one of --model and --path")
    assert_refused(trireme("load", *url, "--model", "linear", "--rate", "5"), 2, "--duration")
    assert_refused(trireme("load", *url, "--model", "none", "--rate", "5", "--duration", "1s"), 2, "no model is named 'none'")
    assert_refused(trireme("load", "--url", "ftp://x", "--model", "m", "--rate", "5", "--duration", "1s"), 2, "http://HOST:PORT")
    assert_refused(trireme("load", "--url", "http://127.0.0.1:9", "--model", "m", "--rate", "5", "--duration", "1s"), 1,
                   "is the server running?")
    assert_refused(trireme("load", *url, "--model", "linear", "--trace", tmp_path / "no.csv"), 2, "no.csv")
    assert len(trireme("load", "--help").stdout.splitlines()) <= 36


class Busy(http.server.BaseHTTPRequestHandler):
    """Somebody else's server: takes one request at a time, 50 ms each, and refuses every third."""

    protocol_version = "HTTP/1.1"
    count, turn = 0, threading.Lock()

    def log_message(self, *_):
        pass

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, {"name": "m", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}], "outputs": []})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        with Busy.turn:
            Busy.count += 1
            refuse = Busy.count % 3 == 0
            time.sleep(0.05)
        self.answer(503 if refuse else 200, {"error": "busy"} if refuse else {"outputs": []})


def test_latency_counts_from_when_a_request_was_due():
    """20 requests in 0.2 s at a server that takes 50 ms each: the last ones are a second late, whoever is to blame."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        words = ("--url", f"http://127.0.0.1:{server.server_address[1]}", "--model", "m", "--rate", "100", "--duration",
                 "0.2s", "--gaps", "even", "--slo-ms", "400")
        for connections in ("256", "1"):
            got = load(*words, "--connections", connections)
            assert got["sent"] == 20 and got["ok"] + got["rejected"] == 20 and 5 <= got["rejected"] <= 8
            assert got["max_ms"] >= 600
            assert got["slo_miss"] > 0.5
    finally:
        server.shutdown()
        server.server_close()
