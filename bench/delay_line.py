"""Two hosts joined by a line that delays packets: a TUN device in each network namespace, and a process that carries
packets from one to the other after a fixed time. netem would do this in the kernel, where the kernel has it.

TCP's large packets pass whole (checksum and segmentation offload), so that the line costs little processor time. Rates
are the token buckets of tools/netlab.sh on the TUN devices.
"""

import collections
import ctypes
import fcntl
import multiprocessing
import os
import select
import signal
import struct
import subprocess
import time

from lab import INTERFACE, BenchError, Lab

TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
OFFLOADS = 0x01 | 0x02  # TUN_F_CSUM | TUN_F_TSO4
CLONE_NEWNET = 0x40000000
PACKET = 65536 + 64


def open_tun(namespace):
    """A TUN device named net0 in the namespace; the caller's process stays there."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/var/run/netns/{namespace}", "rb") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), IFF_TUN | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(tun, TUNSETOFFLOAD, OFFLOADS)
    return tun


class Direction:
    """Packets under way from one device to the other."""

    def __init__(self, source, sink, delay):
        self.source, self.sink, self.delay = source, sink, delay
        self.packets = collections.deque()

    def take(self, now):
        for _ in range(64):
            try:
                self.packets.append((now + self.delay, os.read(self.source, PACKET)))
            except BlockingIOError:
                return

    def release(self, now):
        while self.packets and self.packets[0][0] <= now:
            try:
                os.write(self.sink, self.packets.popleft()[1])
            except OSError:  # the receiving side's queue is full: lost, as on a real line
                pass


def carry(namespaces, delay, ready):
    """The process behind the line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    first, second = (open_tun(name) for name in namespaces)
    directions = [Direction(first, second, delay), Direction(second, first, delay)]
    ready.set()
    poller = select.epoll()
    for direction in directions:
        poller.register(direction.source, select.EPOLLIN)
    while True:
        due = min((d.packets[0][0] for d in directions if d.packets), default=None)
        poller.poll(None if due is None else max(0.0, due - time.monotonic()))
        now = time.monotonic()
        for direction in directions:
            direction.take(now)
            direction.release(now)


class DelayedLab(Lab):
    """Two hosts and a delay of `round_trip` seconds between them, half of it each way."""

    def __init__(self, round_trip, rate="unlimited"):
        super().__init__(2, rate)
        self.round_trip = round_trip
        self.line = None

    def __enter__(self):
        self.namespaces = [f"{self.environment['NETLAB']}{host}" for host in range(2)]
        try:
            for name in self.namespaces:
                self._ip("netns", "add", name)
                self._ip("-n", name, "link", "set", "lo", "up")
            ready = multiprocessing.Event()
            self.line = multiprocessing.Process(target=carry, args=(self.namespaces, self.round_trip / 2, ready), daemon=True)
            self.line.start()
            if not ready.wait(10):
                raise BenchError("the delay line did not start")
            for host, name in enumerate(self.namespaces):
                self._ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", INTERFACE)
                self._ip("-n", name, "link", "set", INTERFACE, "txqueuelen", "1000", "up")
            self.set_rate(self.rate)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception):
        if self.line is not None:
            self.line.kill()
            self.line.join()
        self._netlab("down")

    @staticmethod
    def _ip(*words):
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"ip {' '.join(words)}: {done.stderr.strip()}")
