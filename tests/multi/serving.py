"""What the tests of `trireme serve` share: a server process, its models, and plain HTTP."""
import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import threading
import time

from conftest import environment, program

WAIT = 60


class Server:
    """A running `trireme serve`; its log is in `lines`."""

    def __init__(self, config, cwd, **variables):
        self.lines = []
        words = [program(), "serve", str(config), "--set", "server.http_port=0", "--set", "server.grpc_port=0"]
        self.process = subprocess.Popen(words, cwd=cwd, env=environment(**variables), stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, errors="replace")
        self._new_line = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        ports = re.search(r":(\d+), gRPC on port (\d+);", self.wait_for("HTTP on"))
        self.port, self.grpc_port = int(ports.group(1)), int(ports.group(2))

    def _read(self):
        for line in self.process.stderr:
            with self._new_line:
                self.lines.append(line.rstrip())
                self._new_line.notify_all()
        with self._new_line:
            self.lines.append("(end)")
            self._new_line.notify_all()

    def wait_for(self, text, count=1):
        """The count-th log line with this text."""
        def found():
            return [line for line in self.lines if text in line]
        with self._new_line:
            done = self._new_line.wait_for(lambda: len(found()) >= count or "(end)" in self.lines, WAIT)
            assert done and len(found()) >= count, self.lines
            return found()[count - 1]

    @property
    def url(self):
        return f"127.0.0.1:{self.port}"

    def call(self, verb, path, body=None, headers=None):
        """Status, headers (names in lower case) and body of one exchange on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        with contextlib.closing(connection):
            connection.request(verb, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()

    def infer(self, model, *inputs, **fields):
        status, _, body = self.call("POST", f"/v2/models/{model}/infer", json.dumps({"inputs": inputs, **fields}),
                                    {"Content-Type": "application/json"})
        return status, json.loads(body)

    def send_raw(self, data, wait=WAIT):
        """Everything that comes back for these bytes until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as connection:
            connection.sendall(data)
            got = b""
            while True:
                part = connection.recv(65536)
                if not part:
                    return got
                got += part

    def metric(self, name, **labels):
        text = self.call("GET", "/metrics")[2].decode()
        total = 0.0
        for line in text.splitlines():
            match = re.fullmatch(re.escape(name) + r"(?:\{(.*)\})? (\S+)", line)
            if match and all(f'{k}="{v}"' in (match.group(1) or "") for k, v in labels.items()):
                total += float(match.group(2))
        return total

    def rss(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) * 1024

    def stop(self, signal_number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        try:
            code = self.process.wait(WAIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self._reader.join(WAIT)
        return code


@contextlib.contextmanager
def serving(folder, models, server="", **variables):
    """A server for the time of the block; `models` is the TOML of its [[model]] tables."""
    config = folder / "serve.toml"
    config.write_text(f"[server]\n{server}\n{models}")
    running = Server(config, folder, **variables)
    try:
        running.wait_for("info: ready")
        yield running
    finally:
        code = running.stop()
    assert code == 0, running.lines


def eventually(condition, what):
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)


def fp32(name, array):
    return {"name": name, "datatype": "FP32", "shape": list(array.shape), "data": array.flatten().tolist()}
