"""What becomes of a load that is too high: refused at once, or spilled to another server or to a signed Lambda invoke."""
import hashlib
import hmac
import http.server
import json
import threading

import numpy as np
import pytest
import torch
from conftest import assert_refused, trireme
from safetensors.torch import save_file
from serving import fp32, serving

from trireme import export

KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG", "AWS_REGION": "eu-west-1",
        "AWS_SESSION_TOKEN": "token/of=session"}


class Slow(torch.nn.Module):
    """Some ten milliseconds: far from 800 a second, on any machine."""

    def forward(self, x):
        y = x
        for _ in range(100):
            y = torch.tanh(y @ y.transpose(1, 2))
        return y.sum((1, 2))


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.line(x)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("slo")
    torch.manual_seed(0)
    export.inference_graph(Slow(), (torch.rand(2, 200, 200),), path / "slow.pt2")
    export.inference_graph(Line(), (torch.rand(2, 3),), path / "line.pt2")
    return path


def impossible(folder, **more):
    """An SLO that no answer can meet, so every request is refused here."""
    fields = {"name": "line", "path": f"{folder}/line.pt2", "slo_ms": 1e-3, "margin_ms": 0, **more}
    return "[[model]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in fields.items())


def test_profile_model_writes_what_the_server_reads(folder, tmp_path):
    config = tmp_path / "serve.toml"
    model = f'[[model]]\nname = "slow"\npath = "{folder}/slow.pt2"\nslo_ms = 500\nmax_batch = 4\n'
    config.write_text(model)
    done = trireme("serve", config, "--profile-model", "slow", "-o", tmp_path / "profile.json", "--instance-type", "here")
    assert done.returncode == 0, done.stderr
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert profile["kind"] == "serving_profile" and profile["instance_type"] == "here"
    assert [t["rows"] for t in profile["times"]] == [1, 2, 4]
    times = {t["rows"]: t["seconds"] for t in profile["times"]}
    rows, wait = profile["max_batch"], profile["batch_wait_ms"] / 1e3
    assert 2 * times[rows] + wait + 1e-3 <= 0.5 or rows == 1
    assert wait + times[rows] <= rows * times[1] + 1e-9
    assert profile["capacity_per_min"] == pytest.approx(60 * rows / times[rows])
    profile["times"] = [{"rows": 1, "seconds": 10.0}]  # so slow that the server must refuse all
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    with serving(tmp_path, model + 'profile = "profile.json"\n') as server:
        status, answer = server.infer("slow", fp32("x", np.zeros((1, 200, 200), np.float32)))
    assert status == 503 and "later than the SLO allows" in answer["error"]
    assert_refused(trireme("serve", config, "--profile-model", "none"), 2, "has no such model")


def test_above_capacity_what_is_taken_is_answered_in_time_and_the_rest_refused_at_once(folder, tmp_path):
    with serving(tmp_path, f'[[model]]\nname = "slow"\npath = "{folder}/slow.pt2"\nslo_ms = 400\nmax_batch = 1\n') as server:
        done = trireme("load", "--url", f"http://{server.url}", "--model", "slow", "--rate", "800", "--duration", "3s",
                       "--slo-ms", "400", "--json")
        got = json.loads(done.stdout)
        assert got["ok"] > 0 and got["rejected"] > 0 and got["failed"] == 0
        assert got["ok"] + got["rejected"] == got["sent"]
        assert server.metric("nv_inference_request_failure", model="slow", reason="REJECTED") == got["rejected"]


def test_what_is_refused_goes_to_the_spill_server(folder, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    torch.manual_seed(3)
    other = Line().eval()
    save_file(other.state_dict(), tmp_path / "there" / "w.safetensors")
    there_models = f'[[model]]\nname = "other"\npath = "{folder}/line.pt2"\nweights = "w.safetensors"\n'
    with serving(tmp_path / "there", there_models) as there:
        # A long SLO there, none to be met here: the queue of one row is always too long.
        models = impossible(folder, spill_url=f"http://{there.url}/", spill_model="other", slo_ms=5000.0, profile="p.json")
        (tmp_path / "here" / "p.json").write_text(json.dumps({
            "kind": "serving_profile", "version": 1, "model": "line", "instance_type": "x", "instances": 1, "threads": 1,
            "times": [{"rows": 1, "seconds": 60.0}], "slo_ms": 5000, "margin_ms": 0, "max_batch": 1, "batch_wait_ms": 0,
            "rows_per_s": 1}))
        with serving(tmp_path / "here", models) as here:
            x = torch.rand(2, 3)
            status, answer = here.infer("line", fp32("x", x[:1]), id="a", outputs=[{"name": "output_0"}])
            assert status == 200 and answer["id"] == "a", answer
            with torch.no_grad():
                np.testing.assert_allclose(answer["outputs"][0]["data"], other(x[:1]).flatten(), rtol=1e-5)
            assert here.metric("trireme_spilled_requests", model="line") == 1
            assert here.metric("nv_inference_request_success", model="line") == 1
            there.stop()
            status, answer = here.infer("line", fp32("x", x[:1]))
            assert status == 500 and "spill endpoint" in answer["error"]


class FakeLambda(http.server.BaseHTTPRequestHandler):
    """Checks the signature by the published steps of AWS Signature Version 4, then answers as recorded."""

    protocol_version = "HTTP/1.1"
    seen, reply = [], None

    def log_message(self, *_):
        pass

    def signature(self, body):
        words = dict(part.strip().split("=", 1) for part in
                     self.headers["Authorization"].removeprefix("AWS4-HMAC-SHA256 ").split(","))
        signed = words["SignedHeaders"].split(";")
        canonical = "\n".join(["POST", self.path, "", *(f"{h}:{self.headers[h].strip()}" for h in signed), "",
                               words["SignedHeaders"], hashlib.sha256(body).hexdigest()])
        _, date, region, service, end = words["Credential"].split("/")
        to_sign = "\n".join(["AWS4-HMAC-SHA256", self.headers["X-Amz-Date"], "/".join([date, region, service, end]),
                             hashlib.sha256(canonical.encode()).hexdigest()])
        key = ("AWS4" + KEYS["AWS_SECRET_ACCESS_KEY"]).encode()
        for part in (date, region, service, end):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return words, signed, hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        words, signed, wanted = self.signature(body)
        valid = (words["Signature"] == wanted and words["Credential"].startswith("AKIDEXAMPLE/")
                 and words["Credential"].endswith("/eu-west-1/lambda/aws4_request") and "host" in signed
                 and "x-amz-security-token" in signed and self.headers["X-Amz-Security-Token"] == KEYS["AWS_SESSION_TOKEN"])
        FakeLambda.seen.append((self.path, valid, json.loads(body)))
        answer = json.dumps(FakeLambda.reply if valid else {"errorMessage": "signature does not match"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


def test_lambda_functions_are_invoked_with_a_signature(folder, tmp_path):
    fake = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeLambda)
    threading.Thread(target=fake.serve_forever, daemon=True).start()
    path = "/2015-03-31/functions/line/invocations"
    tensor = {"name": "output_0", "datatype": "FP32", "shape": [1, 2], "data": [1.5, -2]}
    FakeLambda.reply = {"statusCode": 200, "body": json.dumps({"model_name": "line", "outputs": [tensor]})}
    (tmp_path / "p.json").write_text(json.dumps({
        "kind": "serving_profile", "version": 1, "model": "line", "instance_type": "x", "instances": 1, "threads": 1,
        "times": [{"rows": 1, "seconds": 60.0}], "slo_ms": 5000, "margin_ms": 0, "max_batch": 1, "batch_wait_ms": 0,
        "rows_per_s": 1}))
    models = impossible(folder, spill_url=f"http://127.0.0.1:{fake.server_address[1]}{path}", slo_ms=5000.0, profile="p.json")
    try:
        with serving(tmp_path, models, **KEYS) as server:
            status, answer = server.infer("line", fp32("x", np.ones((1, 3), np.float32)))
            assert status == 200, answer
            assert answer["outputs"][0]["data"] == [1.5, -2]
            FakeLambda.reply = {"errorMessage": "Task timed out"}
            status, answer = server.infer("line", fp32("x", np.ones((1, 3), np.float32)))
            assert status == 500 and "Task timed out" in answer["error"]
    finally:
        fake.shutdown()
        fake.server_close()
    where, valid, event = FakeLambda.seen[0]
    assert where == path and valid
    assert event["path"] == "/v2/models/line/infer" and json.loads(event["body"])["inputs"][0]["data"] == [1, 1, 1]


def test_a_spill_url_that_cannot_work_is_refused_at_the_start(folder, tmp_path):
    config = tmp_path / "serve.toml"
    words = ("serve", config, "--set", "server.http_port=0", "--set", "server.grpc_port=0")
    config.write_text(impossible(folder, spill_url="other:8000"))
    done = trireme(*words)
    assert done.returncode == 2 and "must begin with http://" in done.stderr.splitlines()[-1]
    config.write_text(impossible(folder, spill_url="https://lambda.eu-west-1.amazonaws.com/2015-03-31/functions/f/invocations"))
    done = trireme(*words)
    assert done.returncode == 2 and "AWS_ACCESS_KEY_ID" in done.stderr.splitlines()[-1]
