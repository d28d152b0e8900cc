"""The wires between processes: collectives, a peer that dies, one that leaves early, idleness, namespaces."""
import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from conftest import ROOT, environment, program

COMM_RUN = Path(program()).with_name("comm_run")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def without_warnings(stderr):
    """Without those of torch's store, e.g. of an address that has no name."""
    return re.sub(r"(?m)^\[W.*\n", "", stderr)


class Ranks:
    """comm_run as `size` processes; whatever still runs at the end of the test is killed."""

    def __init__(self, size, *words, prefix=lambda rank: [], own=lambda rank: [], host="127.0.0.1", start=None):
        """`own` and `prefix` give a rank's own words; `start` the ranks that start at once, by default all."""
        self.port = free_port()
        self.command = lambda r: [*prefix(r), str(COMM_RUN), "--rank", str(r), "--size", str(size), "--host", host,
                                  "--port", str(self.port), *map(str, words), *map(str, own(r))]
        self.processes = []
        for r in range(size) if start is None else start:
            self.start(r)

    def start(self, rank):
        self.processes.append(subprocess.Popen(self.command(rank), env=environment(), stdout=subprocess.PIPE,
                                               stderr=subprocess.PIPE, text=True))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.processes:
            if p.poll() is None:
                p.kill()
            p.communicate()

    def ends(self, timeout=60):
        """(exit code, stdout, stderr) of every rank."""
        end = time.monotonic() + timeout
        out = []
        for p in self.processes:
            stdout, stderr = p.communicate(timeout=max(0.1, end - time.monotonic()))
            out.append((p.returncode, stdout, without_warnings(stderr)))
        return out

    def results(self, timeout=60):
        """The JSON of every rank, which ended well and without a word on standard error."""
        ends = self.ends(timeout)
        for code, stdout, stderr in ends:
            assert (code, stderr) == (0, ""), (code, stdout, stderr)
        return [json.loads(stdout) for _, stdout, _ in ends]


TCP = ["--kind", "tcp", "--interface", "lo"]
TCP_MANY = ["--kind", "tcp", "--connections", "4"]
UCX_TCP = ["--kind", "ucx", "--interface", "lo"]
UCX_ANY = ["--kind", "ucx"]
WIRES = pytest.mark.parametrize("wire", [TCP, TCP_MANY, UCX_TCP, UCX_ANY],
                                ids=["tcp", "tcp-4-connections", "ucx-tcp", "ucx-shared-memory"])


@pytest.mark.parametrize("size,strategy,codec,words", [
    (2, "ring", "none", TCP), (3, "two_phase", "bf16", TCP_MANY), (4, "ring", "bf16", TCP_MANY),
    (2, "two_phase", "none", [*TCP, "--rate", "800mbit"]), (2, "ring", "none", [*TCP[:-1], "lo,lo"]),
    (2, "ring", "none", UCX_TCP), (3, "two_phase", "bf16", UCX_TCP), (3, "ring", "bf16", UCX_ANY)])
def test_collectives_are_right(size, strategy, codec, words):
    with Ranks(size, "--mode", "check", "--codec", codec, "--strategy", strategy, *words) as ranks:
        assert [r["ok"] for r in ranks.results()] == [True] * size


@WIRES
@pytest.mark.parametrize("elements", [1000, 5_000_000])
def test_a_killed_rank_is_named_within_seconds(wire, elements):
    with Ranks(3, "--mode", "loop", "--elements", elements, "--timeout", "60", *wire) as ranks:
        for p in ranks.processes:
            assert p.stdout.readline() == "running\n"
        ranks.processes[1].send_signal(signal.SIGKILL)
        begin = time.monotonic()
        ends = ranks.ends(timeout=10)
        assert time.monotonic() - begin < 10
    assert ends[1][0] == -signal.SIGKILL
    told = [stderr for code, _, stderr in (ends[0], ends[2]) if code == 1 and stderr.count("\n") == 1]
    assert len(told) == 2, ends
    assert all("all-reduce: " in line for line in told)
    # One of the two may hear of the other's end first; that message carries the first cause.
    assert all("rank 1 is gone" in line for line in told), told


@pytest.mark.parametrize("wire", [TCP, UCX_TCP], ids=["tcp", "ucx"])
def test_a_stopped_rank_is_a_timeout(wire):
    with Ranks(2, "--mode", "loop", "--elements", "1000", *wire, "--timeout", "1") as ranks:
        for p in ranks.processes:
            assert p.stdout.readline() == "running\n"
        os.kill(ranks.processes[1].pid, signal.SIGSTOP)
        stdout, stderr = ranks.processes[0].communicate(timeout=10)
        assert ranks.processes[0].returncode == 1
        assert "rank 0: all-reduce: " in stderr and "rank 1 has waited 1" in stderr and stderr.count("\n") == 1, stderr


@WIRES
def test_a_rank_that_has_finished_is_not_lost(wire):
    with Ranks(3, "--mode", "leave", "--seconds", "1", *wire) as ranks:
        assert [r["ok"] for r in ranks.results()] == [True] * 3


@WIRES
def test_waiting_costs_no_processor_time(wire):
    with Ranks(2, "--mode", "idle", "--seconds", "4", *wire) as ranks:
        assert all(r["cpu_s"] < 0.08 for r in ranks.results()), "more than 2 % while nothing happens"


def alone(*words):
    """Rank 0 of two, without the other."""
    return subprocess.run([str(COMM_RUN), "--rank", "0", "--size", "2", "--port", str(free_port()), *words],
                          env=environment(), capture_output=True, text=True, timeout=20, check=False)


KINDS = pytest.mark.parametrize("kind", ["tcp", "ucx"])


@KINDS
def test_a_rank_that_never_comes_is_named(kind):
    done = alone("--kind", kind, "--timeout", "0.5")
    assert done.returncode == 1 and "rank 1 did not join within 500 ms" in done.stderr, done.stderr


@KINDS
def test_an_unknown_interface_is_named(kind):
    done = alone("--kind", kind, "--interface", "nosuch0")
    assert done.returncode == 2, done.stderr
    assert 'transport.interface = "nosuch0"' in done.stderr and "lo" in done.stderr, done.stderr


@pytest.fixture
def lab():
    """Two namespaces joined by a veth pair."""
    if os.geteuid() != 0 or subprocess.run(["ip", "netns", "list"], capture_output=True, check=False).returncode != 0:
        pytest.skip("network namespaces need root and iproute2")
    env = dict(os.environ, NETLAB=f"ct{os.getpid()}-", NETLAB_NET="10.78.1")
    tool = str(ROOT / "tools/netlab.sh")
    up = subprocess.run([tool, "up", "2", "100mbit"], env=env, capture_output=True, text=True, check=False)
    if up.returncode != 0:
        subprocess.run([tool, "down"], env=env, check=False)
        pytest.skip(f"network namespaces are not allowed here: {up.stderr.strip()}")
    time.sleep(1)  # UCX may say "no such device" of an interface that has just come up
    yield lambda rank: ["ip", "netns", "exec", f"{env['NETLAB']}{rank}"], env["NETLAB_NET"]
    subprocess.run([tool, "down"], env=env, check=True)


@KINDS
def test_between_namespaces_the_bytes_cross_the_link(lab, kind):
    prefix, net = lab
    with Ranks(2, "--mode", "bench", "--elements", "1000000", "--repeat", "5", "--kind", kind, "--interface", "net0", prefix=prefix,
               host=f"{net}.1") as ranks:
        for r in ranks.results():
            # 4 MB each way at 100 Mbit/s take 0.32 s, headers included a little more.
            assert 60 < r["float32_mbit_per_s"] < 105, r


@KINDS
def test_ranks_on_different_networks_are_told(lab, kind):
    prefix, net = lab
    with Ranks(2, "--kind", kind, "--timeout", "5", prefix=prefix, own=lambda r: ["--interface", ["lo", "net0"][r]],
               host=f"{net}.1") as ranks:
        for rank, (code, _, stderr) in enumerate(ranks.ends()):
            assert code == 1 and stderr.count("\n") == 1, stderr
            assert f"rank {rank}: no connection to rank {1 - rank}: " in stderr, stderr
            assert "transport.interface" in stderr, stderr
