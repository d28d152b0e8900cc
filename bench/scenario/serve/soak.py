#!/usr/bin/env python3
"""Minutes of mixed load against `trireme serve`: soak.py [--minutes 10]

At once: a steady open-loop load that must be answered whole, large requests, damaged requests (tests/fuzz), clients that send slowly,
connections that stay silent or vanish half-way, reloads. Ends with code 1 on a lost answer, a finding, or memory that grew. Writes
bench/results/serve_soak.json.
"""
import argparse
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/multi"), str(ROOT / "tests/fuzz"), str(ROOT / "python")]
import fuzz_serve  # noqa: E402
from conftest import program  # noqa: E402
from serving import serving  # noqa: E402

GROWTH = 64 << 20  # bytes of resident memory from the end of the first fifth to the end


def export_models(folder):
    import torch

    from trireme import export, models

    torch.manual_seed(0)
    export.inference_graph(torch.nn.Linear(4, 2), (torch.rand(2, 4),), folder / "line.pt2")
    export.inference_graph(models.MLP(2, 512).eval(), models.digits(2)[:1], folder / "mlp.pt2")


class Nuisance(threading.Thread):
    """Repeats one kind of bad behaviour until the end."""

    def __init__(self, act, end):
        super().__init__(daemon=True)
        self.act, self.end, self.done = act, end, 0

    def run(self):
        rng = random.Random(self.act.__name__)
        while time.monotonic() < self.end:
            try:
                self.act(rng)
            except OSError:
                pass  # the server may well close on such a client
            self.done += 1


def nuisances(server, end):
    post = (fuzz_serve.CORPUS / "plain.http").read_bytes()

    def connect():
        return socket.create_connection(("127.0.0.1", server.port), timeout=10)

    def slow_sender(rng):
        with connect() as s:
            for i in range(0, len(post), 20):
                s.sendall(post[i:i + 20])
                time.sleep(rng.random() * 0.1)
            assert b" 200 " in s.recv(65536)

    def silent(rng):
        with connect() as s:
            s.sendall(post[:rng.randrange(len(post))])
            time.sleep(rng.random() * 3)

    def vanish(rng):
        s = connect()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset instead of a goodbye
        s.sendall(post[:rng.randrange(1, len(post))] if rng.random() < 0.5 else post)
        s.close()

    def large(rng):
        body = b'{"inputs":[{"name":"images","datatype":"FP32","shape":[32,1,28,28],"data":[' + b",".join([b"0.5"] * (32 * 784)) + b"]}]}"
        status, _, _ = server.call("POST", "/v2/models/mlp/infer", body)
        assert status in (200, 503)
        time.sleep(rng.random() * 0.2)

    def reload(_):
        server.call("POST", "/v2/repository/models/mlp/load", b"")
        time.sleep(10)

    return [Nuisance(act, end) for act in (slow_sender, silent, vanish, large, reload)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    args = parser.parse_args()
    os.environ.setdefault("TRIREME_BIN", str(ROOT / "build/release/trireme"))
    seconds = 60 * args.minutes
    models = "".join(f'[[model]]\nname = "{name}"\npath = "{name}.pt2"\n' for name in ("line", "mlp"))
    with tempfile.TemporaryDirectory() as folder:
        export_models(Path(folder))
        with serving(Path(folder), models, "idle_timeout = '5s'\nrequest_timeout = '5s'") as server:
            end = time.monotonic() + seconds
            load = subprocess.Popen([program(), "load", "--url", f"http://{server.url}", "--model", "mlp", "--rate", "100",
                                     "--duration", f"{seconds:.0f}s", "--json"], stdout=subprocess.PIPE, text=True)
            others = nuisances(server, end)
            for thread in others:
                thread.start()
            memory, fuzzed, findings = [], 0, []
            while time.monotonic() < end:
                sent, found = fuzz_serve.fuzz(server.port, len(memory), seconds=min(5, max(0.1, end - time.monotonic())))
                fuzzed, findings = fuzzed + sent, findings + [what for what, _ in found]
                memory.append(server.rss())
            for thread in others:
                thread.join(30)
            report = json.loads(load.communicate(timeout=120)[0])
    grew = memory[-1] - memory[len(memory) // 5]
    whole = report["ok"] == report["sent"]
    result = {"minutes": args.minutes, "load": report, "damaged_requests": fuzzed, "findings": findings, "rss_bytes": memory,
              "grew_bytes": grew, "nuisances": {t.act.__name__: t.done for t in others}, "passed": whole and not findings and grew < GROWTH}
    (ROOT / "bench/results/serve_soak.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{report['ok']} of {report['sent']} answered, {fuzzed} damaged requests, {len(findings)} findings, memory {memory[0] >> 20} to "
          f"{memory[-1] >> 20} MiB ({grew / 2**20:+.1f} MiB since a fifth of the time)")
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
