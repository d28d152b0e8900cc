"""What the others do when a rank dies, stops, is cut off, or is merely slow; strangers at the rendezvous."""
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from conftest import ROOT, environment, program

sys.path.insert(0, str(ROOT / "bench/scenario/failures"))
from kill_ranks import kill_ranks  # noqa: E402
from ranks import Ranks, free_port  # noqa: E402

LONG = ["--set", "train.steps=100000", "--set", "transport.timeout=30s"]
SOON = ["--set", "transport.heartbeat_timeout=2s"]


def pairs(**sets):
    return [word for key, value in sets.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


def test_killed_ranks_are_named_and_a_resumed_run_repeats_the_losses(tmp_path):
    found = kill_ranks(tmp_path, kills=3)
    assert found["kills"] == 3 and found["while_writing_a_checkpoint"] == 1
    assert found["named_within_s"]["longest"] < 10
    assert found["runs_finished_with_equal_losses"] >= 1


@pytest.mark.parametrize("victim", [0, 1])
def test_a_stopped_rank_is_named_by_the_others(config, tmp_path, victim):
    with Ranks(config, tmp_path / "run", 3, *LONG, *SOON) as run:
        run.wait_for_steps(3)
        run.signal(victim, signal.SIGSTOP)
        others = [rank for rank in range(3) if rank != victim]
        for rank, (code, line) in run.ends(10, others).items():
            assert code == 1 and f"rank {victim} has given no sign of life for 2" in line, (rank, line)
            # With what it was doing, and since when.
            assert f"rank {rank}: " in line and "has waited" in line, line
        run.signal(victim, signal.SIGCONT)
        code, line = run.ends(10, [victim])[victim]
        assert code == 1, line


def hold_main_thread(pid, seconds):
    """As a debugger would: one thread stands still, the others of the process go on."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    seize, interrupt, detach = 0x4206, 0x4207, 17
    assert libc.ptrace(seize, pid, None, None) == 0, os.strerror(ctypes.get_errno())
    assert libc.ptrace(interrupt, pid, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(pid, 0x40000000)  # __WALL
    time.sleep(seconds)
    assert libc.ptrace(detach, pid, None, None) == 0, os.strerror(ctypes.get_errno())


def test_a_slow_rank_is_not_lost(config, tmp_path):
    with Ranks(config, tmp_path / "run", 2, *LONG, *pairs(transport__heartbeat_timeout="1s")) as run:
        run.wait_for_steps(3)
        hold_main_thread(run.processes[1].pid, 3)
        assert run.running() == [0, 1], run.ends(1)
        run.wait_for_steps(run.steps() + 20)


def test_ranks_that_disagree_about_their_number_do_not_begin(config, tmp_path):
    port = free_port()
    ranks = [subprocess.Popen([program(), "train", str(config), "--out", str(tmp_path / f"out{rank}")],
                              env=environment(RANK=rank, WORLD_SIZE=2 + rank, MASTER_ADDR="127.0.0.1", MASTER_PORT=port),
                              stderr=subprocess.PIPE, text=True) for rank in range(2)]
    for rank in ranks:
        told = rank.communicate(timeout=60)[1]
        assert rank.returncode == 2 and "rank 1 belongs to a run of 3 ranks, rank 0 to one of 2" in told, told
    assert not (tmp_path / "out0").exists()


def test_two_processes_with_one_number(config, tmp_path):
    with Ranks(config, tmp_path / "run", 2, *LONG) as run:
        run.wait_for_steps(2)
        done = subprocess.run([program(), "train", str(config), *LONG], capture_output=True, text=True, timeout=60,
                              env=environment(RANK=1, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=run.port),
                              check=False)
        assert done.returncode == 2 and "two processes have the same rank" in done.stderr, done.stderr
        run.wait_for_steps(run.steps() + 3)


# --- a cut link, a disk that hangs


@pytest.fixture
def lab():
    """Two namespaces joined by a veth pair; yields the tool, with which a test changes them."""
    env = dict(os.environ, NETLAB=f"cut{os.getpid()}-", NETLAB_NET="10.78.2")
    tool = str(ROOT / "tools/netlab.sh")
    subprocess.run([tool, "up", "2", "unlimited"], env=env, check=True)
    time.sleep(1)  # UCX may say "no such device" of an interface that has just come up
    yield lambda host, *words: ["ip", "netns", "exec", f"{env['NETLAB']}{host}", *words]
    subprocess.run([tool, "down"], env=env, check=True)


def test_a_cut_link_is_named_on_both_sides(config, tmp_path, lab):
    with Ranks(config, tmp_path / "run", 2, *LONG, *SOON, *pairs(transport__interface="net0"),
               prefix=lambda rank: lab(rank), host="10.78.2.1") as run:
        run.wait_for_steps(3)
        subprocess.run(lab(1, "ip", "link", "set", "net0", "down"), check=True)
        for rank, (code, line) in run.ends(10).items():
            assert code == 1 and f"rank {1 - rank} " in line, (rank, line)
    checkpoints = [path.name for path in (tmp_path / "run/checkpoints").glob("step_*")]
    assert checkpoints == [] or all(name.startswith("step_") for name in checkpoints)


@pytest.fixture
def freezing_disk(tmp_path):
    """A folder on a filesystem of its own; within frozen() every write on it waits."""
    image, folder = tmp_path / "disk.img", tmp_path / "disk"
    folder.mkdir()
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["/usr/sbin/mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)

    class Disk:
        path = folder

        @contextlib.contextmanager
        def frozen(self):
            subprocess.run(["/usr/sbin/fsfreeze", "-f", str(folder)], check=True)
            try:
                yield
            finally:  # at once: a process that waits for the disk cannot even be killed
                subprocess.run(["/usr/sbin/fsfreeze", "-u", str(folder)], check=True)

    yield Disk()
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_hangs_holds_up_but_loses_nobody(config, tmp_path, freezing_disk):
    out = tmp_path / "run"
    out.mkdir()
    folder = freezing_disk.path / "checkpoints"  # the disk itself holds lost+found
    folder.mkdir()
    (out / "checkpoints").symlink_to(folder)
    words = [*LONG, *pairs(transport__timeout="2s", transport__heartbeat_timeout="1s", train__checkpoint_every=20)]
    with Ranks(config, out, 2, *words) as run:
        run.wait_for(lambda: list(folder.glob("step_*")), "a checkpoint")
        with freezing_disk.frozen():
            time.sleep(6)  # three times what a wait may take without a sign
            assert run.running() == [0, 1]
            assert run.steps() % 20 == 0, "all wait where the next checkpoint is due"
        run.wait_for_steps(run.steps() + 100)
        # And a rank that dies while it hangs is named all the same, though no process can end before the disk answers.
        with freezing_disk.frozen():
            time.sleep(1)
            run.signal(1, signal.SIGKILL)
            line = run.read_until(0, "rank 1's process has ended", 10)
            assert "rank 0" in line, line
        assert run.ends(25, [0])[0][0] == 1


# --- strangers


def test_strangers_at_the_rendezvous_do_no_harm(config, tmp_path):
    with Ranks(config, tmp_path / "run", 2, *LONG) as run:
        run.wait_for_steps(2)
        idle = [socket.create_connection(("127.0.0.1", run.port)) for _ in range(800)]
        for noise in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"", b"\x00" * 3, b"\xff" * 4):
            with socket.create_connection(("127.0.0.1", run.port)) as stranger:
                stranger.sendall(noise)
        run.wait_for_steps(run.steps() + 20)
        for connection in idle:
            connection.close()
        run.wait_for_steps(run.steps() + 20)
        run.signal(0, signal.SIGINT)
        code, line = run.ends(60, [0])[0]
        assert code == 1 and "stopped by a signal" in line, line
        told = run.text(0)
        assert "rendezvous: refused 127.0.0.1:" in told and "connections in all" in told, told[-3000:]


@pytest.fixture
def secret(tmp_path):
    def write(name, text="0123456789abcdef0123456789abcdef\n"):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    return write


def joining(config, tmp_path, files):
    """(exit code, last line) of two ranks that were given these secret files."""
    def words(rank):
        return ["--set", f"transport.secret_file={files[rank]}"] if files[rank] else []

    with Ranks(config, tmp_path / "run", 2, "--set", "transport.timeout=4s", by_rank=words) as run:
        return run.ends(30)


def test_a_rank_with_another_secret_is_refused(config, tmp_path, secret):
    ends = joining(config, tmp_path, [secret("a"), secret("b", "another secret of sufficient length")])
    assert ends[1][0] == 2 and "has another secret" in ends[1][1], ends
    assert ends[0][0] == 1 and "rank 1 did not join" in ends[0][1], ends


def test_a_rank_without_the_secret_is_refused(config, tmp_path, secret):
    ends = joining(config, tmp_path, [secret("a"), None])
    assert ends[1][0] == 2 and "without transport.secret_file" in ends[1][1], ends


def test_a_short_secret_is_refused(config, tmp_path, secret):
    ends = joining(config, tmp_path, [secret("short", "short")] * 2)
    assert ends[0][0] == ends[1][0] == 2 and "at least 16" in ends[0][1], ends


def test_ranks_that_share_a_secret_train(config, tmp_path, secret):
    words = ["--set", "transport.kind=tcp", "--set", f"transport.secret_file={secret('a')}"]
    with Ranks(config, tmp_path / "run", 2, *words) as run:
        assert all(code == 0 for code, _ in run.ends(60).values())
