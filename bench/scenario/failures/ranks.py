"""Ranks of one run started by hand, as on several machines: nobody but they themselves notices what happens to one."""
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def program():
    return str(Path(os.environ.get("TRIREME_BIN", ROOT / "build/release/trireme")).resolve())


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Ranks:
    """`trireme train` on `count` ranks; killed at the end of the with block. by_rank: further words of each; prefix:
    what stands before the program's name."""

    def __init__(self, config, out, count, *words, by_rank=lambda rank: [], prefix=lambda rank: [], host="127.0.0.1",
                 port=None):
        self.out = Path(out)
        self.port = port or free_port()
        self.processes, self.logs = [], []
        for rank in range(count):
            variables = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(count), MASTER_ADDR=host,
                             MASTER_PORT=str(self.port), OMP_NUM_THREADS="1")
            command = [*prefix(rank), program(), "train", config, *words, *by_rank(rank)]
            if rank == 0:
                command += ["--out", out]
            log = tempfile.TemporaryFile("w+")
            self.logs.append(log)
            self.processes.append(subprocess.Popen([str(c) for c in command], env=variables,
                                                   stdout=subprocess.DEVNULL, stderr=log))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for log in self.logs:
            log.close()

    def signal(self, rank, number):
        self.processes[rank].send_signal(number)

    def steps(self):
        metrics = self.out / "metrics.jsonl"
        return metrics.read_text().count("\n") if metrics.exists() else 0

    def running(self):
        return [rank for rank, process in enumerate(self.processes) if process.poll() is None]

    def wait_for(self, condition, what, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"waited {seconds} s: {what}"
            assert len(self.running()) == len(self.processes), f"a rank ended: {self.ends(10)}"
            time.sleep(0.01)

    def wait_for_steps(self, count):
        self.wait_for(lambda: self.steps() >= count, f"{count} steps")

    def text(self, rank):
        """What a rank has said so far."""
        log = self.logs[rank]
        log.seek(0)
        return log.read()

    def read_until(self, rank, text, seconds):
        """The line of a rank's output that holds `text`."""
        end = time.monotonic() + seconds
        while True:
            for line in self.text(rank).splitlines():
                if text in line:
                    return line
            assert time.monotonic() < end, f"rank {rank} did not say '{text}' within {seconds} s"
            time.sleep(0.05)

    def ends(self, seconds, ranks=None):
        """{rank: (exit code, last line)} of the ranks, which have `seconds` to end."""
        end = time.monotonic() + seconds
        found = {}
        for rank in range(len(self.processes)) if ranks is None else ranks:
            code = self.processes[rank].wait(timeout=max(0.1, end - time.monotonic()))
            lines = self.text(rank).splitlines()
            found[rank] = (code, lines[-1] if lines else "")
        return found


def losses(out):
    """{step: loss}, as they were written."""
    rows = [json.loads(line) for line in (Path(out) / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows}


KILL = signal.SIGKILL
