#!/usr/bin/env python3
"""`make bench-serve`: trireme serve beside other model servers, in one go.  bench_serve.py [--short] [--only NAME,…]

For each model and server the highest rate of an open-loop Poisson load (one row a request) that it sustains with a p99 of at most
LIMIT_MS and nothing refused; servers alternate, the ratio is the median over rounds with its 95 % interval. Besides: `wrk` with 16
connections, and what serving adds to a bare forward pass at a low rate. Answers are compared with PyTorch's before any timing.
Rivals need packages that Trireme does not: bench/scenario/serve/rivals/setup.sh makes a venv for them under bench/out. A rival that
cannot be installed or started is listed with the reason.
"""
import argparse
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]
import lab  # noqa: E402

TRIREME = os.environ.get("TRIREME_BIN", str(ROOT / "build/release/trireme"))
VENV = ROOT / "bench/out/serve-venv/bin/python"
RIVALS = Path(__file__).parent / "rivals"
LIMIT_MS = 25
MODELS = ("mlp", "convnet")
SHAPE = (1, 28, 28)
STEP = 1.15  # between the rates tried


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def export_models(folder, name):
    """model.pt2 for both sides and model.onnx for those that want it, of the same module."""
    import torch

    from trireme import export, models

    torch.manual_seed(0)
    module = {"mlp": lambda: models.MLP(2, 512), "convnet": lambda: models.ConvNet(16)}[name]().eval()
    export.inference_graph(module, models.digits(2)[:1], folder / "model.pt2")
    torch.save(module.state_dict(), folder / "weights.pt")
    script = ("import sys, torch; sys.path.insert(0, sys.argv[2]); from trireme import models; name = sys.argv[3]\n"
              "m = (models.MLP(2, 512) if name == 'mlp' else models.ConvNet(16)).eval(); m.load_state_dict(torch.load(sys.argv[1] + '/weights.pt'))\n"
              "torch.onnx.export(m, (torch.rand(2, 1, 28, 28),), sys.argv[1] + '/model.onnx', input_names=['images'], dynamo=True,"
              " dynamic_shapes=({0: torch.export.Dim('batch')},), external_data=False)")
    if VENV.exists():
        subprocess.run([str(VENV), "-c", script, str(folder), str(ROOT / "python"), name], capture_output=True, check=False, timeout=300)
    return module


class Server:
    """One server process, how it is asked, and how its answer is read."""

    def __init__(self, name, folder):
        self.name, self.folder, self.port = name, folder, free_port()
        self.base, _, self.kind = name.partition("+")
        self.log = (folder / f"{name}.log").open("w")
        if self.base == "trireme":
            config = folder / "serve.toml"
            config.write_text(f'[server]\nhttp_port = {self.port}\ngrpc_port = -1\n[[model]]\nname = "model"\npath = "{folder}/model.pt2"\nthreads = 1\n')
            command = [TRIREME, "serve", str(config)]
        else:
            command = [str(VENV), str(RIVALS / f"{self.base}_server.py"), str(folder), str(self.port),
                       "x".join(map(str, SHAPE)), self.kind or "torch"]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, cwd=folder, start_new_session=True,
                                        env=dict(os.environ, PYTHONPATH=str(RIVALS)))
        self.payload = folder / f"{name}.payload"
        self.payload.write_bytes(self.request(np.zeros((1, *SHAPE), np.float32)))

    @property
    def oip(self):
        return self.base in ("trireme", "pytriton")

    @property
    def path(self):
        return {"trireme": "/v2/models/model/infer", "pytriton": "/v2/models/model/infer", "uvicorn": "/",
                "mosec": "/inference", "litserve": "/predict"}[self.base]

    def request(self, rows):
        if self.base == "litserve":
            return json.dumps({"input": rows[0].tolist()}).encode()
        return rows.tobytes()

    def headers(self):
        return {"Inference-Header-Content-Length": "0"} if self.oip else {}

    def ask(self, rows):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{self.path}", self.request(rows),
                                         {"Content-Type": "application/json" if self.base == "litserve" else "application/octet-stream", **self.headers()})
        with urllib.request.urlopen(request, timeout=10) as answer:
            body = answer.read()
            length = answer.headers.get("Inference-Header-Content-Length")
        if self.base == "litserve":
            return np.asarray(json.loads(body)["output"], np.float32)
        return np.frombuffer(body[int(length or 0):], np.float32)

    def wait_ready(self, module):
        """Answers, and with what PyTorch computes."""
        import torch

        rows = np.random.default_rng(0).random((1, *SHAPE), dtype=np.float32)
        end = time.monotonic() + 90
        while True:
            try:
                answer = self.ask(rows)
                break
            except Exception as error:  # noqa: BLE001, whatever keeps it from answering is the reason to tell
                if self.process.poll() is not None or time.monotonic() > end:
                    self.log.flush()
                    lines = (self.folder / f"{self.name}.log").read_text(errors="replace").splitlines()
                    told = [line for line in lines if "Error" in line] or [line for line in lines if len(line) > 5] or [str(error)]
                    raise lab.BenchError(f"{self.name} does not start: {told[-1][:160]}") from error
                time.sleep(0.2)
        with torch.no_grad():
            wanted = module(torch.from_numpy(rows)).numpy().flatten()
        if not np.allclose(answer, wanted, rtol=1e-4, atol=1e-4):
            raise lab.BenchError(f"{self.name} answers something else than PyTorch")

    def stop(self):
        import signal

        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                try:
                    os.killpg(self.process.pid, number)
                    self.process.wait(8)
                except (subprocess.TimeoutExpired, ProcessLookupError):
                    continue
        self.log.close()

    def load(self, rate, seconds, gaps="exponential"):
        target = ["--model", "model"] if self.oip else ["--path", self.path, "--payload", str(self.payload)]
        words = [TRIREME, "load", "--url", f"http://127.0.0.1:{self.port}", *target, "--rate", f"{rate:.1f}", "--duration",
                 f"{seconds}s", "--gaps", gaps, "--timeout", "5s", "--json", "--seed", str(int(rate))]
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds + 60, check=False)
        if done.returncode != 0:
            raise lab.BenchError(f"{self.name}: {done.stderr.strip()[-200:]}")
        return json.loads(done.stdout)

    def wrk(self, seconds):
        if not shutil.which("wrk"):
            return None
        script = self.folder / f"{self.name}.lua"
        kind = "application/json" if self.base == "litserve" else "application/octet-stream"
        extra = "".join(f'wrk.headers["{k}"] = "{v}"\n' for k, v in self.headers().items())
        script.write_text(f'local f = io.open("{self.payload}", "rb")\nwrk.method = "POST"\nwrk.body = f:read("*a")\n'
                          f'wrk.headers["Content-Type"] = "{kind}"\n{extra}')
        out = subprocess.run(["wrk", "-t1", "-c16", f"-d{seconds}s", "--latency", "-s", str(script),
                              f"http://127.0.0.1:{self.port}{self.path}"], capture_output=True, text=True, timeout=seconds + 60, check=True).stdout
        wanted = {"Requests/sec:": "requests_per_s", "50%": "p50", "99%": "p99", "Non-2xx": "refused"}
        return {key: line.split()[-1] for line in out.splitlines() for word, key in wanted.items() if line.strip().startswith(word)}


def sustained(server, start, seconds):
    """The highest rate of the ladder with p99 within the limit and nothing refused."""
    def good(rate):
        got = server.load(rate, seconds)
        return got["ok"] == got["sent"] and got["p99_ms"] <= LIMIT_MS

    level = round(math.log(start, STEP))
    if good(STEP**level):
        while level < 120 and good(STEP ** (level + 1)):
            level += 1
        return STEP**level
    while level > 0:
        level -= 1
        if good(STEP**level):
            return STEP**level
    return 0.0


def bare_forward_ms(folder):
    """The median of one row through the model, without a server: what serve --profile-model measures."""
    done = subprocess.run([TRIREME, "serve", "serve.toml", "--profile-model", "model"], cwd=folder, capture_output=True, text=True, check=True)
    return 1e3 * json.loads(done.stdout)["times"][0]["seconds"]


def run_model(name, names, rounds, seconds):
    rates, wrk, refused, overhead = {}, {}, {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        module = export_models(folder, name)
        for turn in range(rounds):
            for server_name in (names if turn % 2 == 0 else names[::-1]):
                if server_name in refused:
                    continue
                server = None
                try:
                    server = Server(server_name, folder)
                    server.wait_ready(module)
                    server.load(50, 1)
                    previous = rates.get(server_name)
                    rates.setdefault(server_name, []).append(sustained(server, previous[-1] if previous else 300, seconds))
                    if turn == 0:
                        wrk[server_name] = server.wrk(seconds)
                        low = server.load(40, 2 * seconds, "even")
                        overhead[server_name] = low["p50_ms"]
                    print(f"{name} round {turn + 1} {server_name}: {rates[server_name][-1]:.0f} requests/s", flush=True)
                except (lab.BenchError, OSError, subprocess.SubprocessError) as error:
                    refused[server_name] = str(error)[:200]
                    print(f"{name} {server_name}: left out: {error}", flush=True)
                finally:
                    if server:
                        server.stop()
        bare = bare_forward_ms(folder)
    return {"rates": rates, "wrk": wrk, "left_out": refused, "p50_at_40_per_s_ms": overhead, "bare_forward_ms": bare}


def summary(result):
    """Rows: server, median rate, ours / theirs with interval."""
    ours = result["rates"].get("trireme", [])
    rows = []
    for name, rates in result["rates"].items():
        ratios = [a / b for a, b in zip(ours, rates) if b > 0]
        low, high = lab.median_interval(ratios) or (None, None)
        rows.append({"server": name, "requests_per_s": lab.median(rates), "ours_over_it": lab.median(ratios) if ratios else None,
                     "interval": [low, high], "wrk": result["wrk"].get(name), "p50_at_40_per_s_ms": result["p50_at_40_per_s_ms"].get(name)})
    return rows


def write(results, rounds, seconds, short):
    out = ROOT / ("bench/out" if short else "bench/results")
    out.mkdir(exist_ok=True)
    for result in results.values():
        result["summary"] = summary(result)
    about = {"limit_p99_ms": LIMIT_MS, "rounds": rounds, "seconds": seconds, "processors": os.cpu_count(), "load_average_at_end": os.getloadavg()}
    (out / "serve.json").write_text(json.dumps({"about": about, "models": results}, indent=1) + "\n")
    lines = ["# Serving: highest rate within a p99", "",
             f"Written by `make bench-serve`: open-loop Poisson load, one row a request, p99 ≤ {LIMIT_MS} ms, nothing refused; "
             f"{rounds} alternating rounds; {os.cpu_count()} processors shared by server and client.", ""]
    for name, result in results.items():
        lines += [f"## {name}", "", f"Bare forward pass of one row: {result['bare_forward_ms']:.3f} ms.", "",
                  "| server | requests/s | trireme / it (95 %) | wrk, 16 connections: requests/s, p99 | p50 at 40/s |", "| --- | --- | --- | --- | --- |"]
        for row in result["summary"]:
            ratio = f"{row['ours_over_it']:.2f}" if row["ours_over_it"] else "–"
            if row["interval"][0] is not None:
                ratio += f" ({row['interval'][0]:.2f}–{row['interval'][1]:.2f})"
            wrk = f"{row['wrk']['requests_per_s']}, {row['wrk']['p99']}" if row["wrk"] else "–"
            low = f"{row['p50_at_40_per_s_ms']:.2f} ms" if row["p50_at_40_per_s_ms"] else "–"
            lines.append(f"| {row['server']} | {row['requests_per_s']:.0f} | {ratio} | {wrk} | {low} |")
        lines += [""] + [f"Left out: {who}: {why}" for who, why in result["left_out"].items()] + [""]
    (out / "serve.md").write_text("\n".join(lines))
    print("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="one round of one second each, first model; results go to bench/out")
    parser.add_argument("--only", default="", help="these servers, by comma")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    everyone = ["trireme", "uvicorn", "mosec", "mosec+onnx", "mosec+openvino", "litserve", "pytriton", "pytriton+onnx"]
    names = args.only.split(",") if args.only else everyone
    rounds, seconds = (1, 1) if args.short else (args.rounds, 3)
    models = list(MODELS)[:1] if args.short else list(MODELS)
    write({name: run_model(name, names, rounds, seconds) for name in models}, rounds, seconds, args.short)


if __name__ == "__main__":
    main()
