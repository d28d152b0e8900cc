"""What the scenario benches share: the network lab, rank processes, and the statistics of paired runs."""

import concurrent.futures
import math
import os
import re
import signal
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NETLAB = ROOT / "tools/netlab.sh"
INTERFACE = "net0"


class BenchError(RuntimeError):
    """The bench cannot go on; the message says why."""


class Lab:
    """Hosts as network namespaces, with a rate on every link. Needs root; leaves nothing behind."""

    def __init__(self, hosts, rate="unlimited"):
        self.hosts = hosts
        self.rate = rate
        # One name for each process, so that labs of two benches do not meet.
        self.environment = dict(os.environ, NETLAB=f"tb{os.getpid()}x", NETLAB_NET="10.77.0")

    def __enter__(self):
        try:
            self._netlab("up", str(self.hosts), self.rate)
        except BenchError:
            self._netlab("down")
            raise
        time.sleep(1)  # a fresh veth is not at once usable
        return self

    def __exit__(self, *exception):
        self._netlab("down")

    def set_rate(self, rate):
        self._netlab("rate", rate)
        self.rate = rate

    def address(self, host):
        return f"10.77.0.{host + 1}"

    def inside(self, host):
        """Command prefix that runs in that host."""
        return ["ip", "netns", "exec", f"{self.environment['NETLAB']}{host}"]

    def sent_bytes(self, host):
        """Bytes that the host's interface has sent, by the kernel's counter."""
        return int(self._netlab("bytes", str(host)).split()[0])

    def delivered_mbit(self, seconds=3):
        """TCP payload in both directions at once; the slower one, in Mbit/s."""
        text = self._netlab("verify", str(seconds))
        return min(float(rate) for rate in re.findall(r"([0-9.]+) Mbit/s", text))

    def _netlab(self, *arguments):
        done = subprocess.run(
            ["bash", str(NETLAB), *arguments], env=self.environment, capture_output=True, text=True, timeout=120
        )
        if done.returncode != 0:
            raise BenchError(f"netlab {' '.join(arguments)}: {done.stderr.strip() or 'failed'}")
        return done.stdout


def rate_mbit(rate):
    """Mbit/s of a tc rate; None for unlimited."""
    if rate == "unlimited":
        return None
    number, unit = re.fullmatch(r"([0-9.]+)([kmg])bit", rate).groups()
    return float(number) * {"k": 1e-3, "m": 1, "g": 1e3}[unit]


def run_ranks(commands, environments, timeout):
    """Runs one process for each command and returns their standard outputs. The first failure ends them all."""
    processes = [
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        for command, environment in zip(commands, environments)
    ]
    pool = concurrent.futures.ThreadPoolExecutor(len(processes))
    waits = {pool.submit(process.communicate): rank for rank, process in enumerate(processes)}
    try:
        for done in concurrent.futures.as_completed(waits, timeout):
            rank = waits[done]
            if processes[rank].returncode != 0:
                raise BenchError(f"rank {rank} of {' '.join(commands[rank])} failed:\n{done.result()[1][-2000:]}")
    except TimeoutError:
        raise BenchError(f"{' '.join(commands[0])}: no end after {timeout:.0f} s") from None
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        pool.shutdown()
    return [wait.result()[0] for wait in waits]


def median_interval(values, confidence=0.95):
    """Distribution-free interval of the median from order statistics; None when there are too few values for it."""
    ordered = sorted(values)
    n = len(ordered)
    # The median lies below the k-th value, or above the k-th from the end, with twice this binomial tail.
    best = None
    for k in range(n // 2):
        tail = sum(math.comb(n, i) for i in range(k + 1)) / 2**n
        if 1 - 2 * tail >= confidence:
            best = (ordered[k], ordered[n - 1 - k])
    return best


def median(values):
    return statistics.median(values)
