"""Who may join: strangers at the data port, wrong secrets, half handshakes, idle connections."""
import os
import resource
import socket
import time

import pytest
from test_transport import TCP, Ranks, alone

GREETING = b"TRIREME\x01"


def listening_ports(pid):
    """TCP ports on which a process listens."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            link = os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            continue
        inodes |= {link[len("socket:["):-1]} if link.startswith("socket:[") else set()
    ports = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as file:
            rows = [line.split() for line in file.readlines()[1:]]
        ports |= {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[9] in inodes}
    return ports


def data_port(process, store_port, deadline=20):
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        ports = listening_ports(process.pid) - {store_port}
        if ports:
            return ports.pop()
        time.sleep(0.02)
    raise AssertionError("no data port was opened")


def attack(port, idle):
    """What strangers do; returns the sockets that stay open."""
    def stranger(*pieces):
        s = socket.create_connection(("127.0.0.1", port), timeout=5)
        for piece in pieces:
            s.sendall(piece)
        return s

    kept = [stranger(os.urandom(300)) for _ in range(20)]
    kept += [stranger(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(64))]
    kept += [stranger(GREETING + os.urandom(10)), stranger(GREETING + bytes(500))]
    # A whole greeting of rank 1 of 2 (purpose, rank, size, index, connections, no secret), then not the proof.
    claim = b"".join(n.to_bytes(4, "little") for n in (1, 1, 2, 0, 1, 0))
    kept += [stranger(GREETING + claim + bytes(32), os.urandom(32))]
    stranger().close()
    kept += [stranger() for _ in range(idle)]
    return kept


@pytest.fixture
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def secret(tmp_path, name, text="0123456789abcdef0123456789abcdef\n"):
    path = tmp_path / name
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("with_secret", [False, True], ids=["open", "secret"])
def test_strangers_do_not_keep_ranks_out(with_secret, many_descriptors, tmp_path):
    words = [*TCP, "--mode", "check", *(["--secret-file", secret(tmp_path, "secret")] if with_secret else [])]
    with Ranks(2, *words, start=[0]) as ranks:
        port = data_port(ranks.processes[0], ranks.port)
        kept = attack(port, idle=1000)
        ranks.start(1)
        (code, stdout, stderr), other = ranks.ends()
        for s in kept:
            s.close()
    assert (code, '"ok": true' in stdout) == (0, True), stderr
    assert other[0] == 0 and other[2] == "", other
    lines = stderr.splitlines()
    assert all("rank 0's data port refused" in line for line in lines), stderr
    assert 2 <= len(lines) <= 8, "a few are logged, then counted: " + stderr
    assert "connections in all" in lines[-1], stderr


def test_the_data_port_is_closed_once_all_are_there():
    with Ranks(2, *TCP, "--mode", "loop", "--elements", "1000") as ranks:
        for p in ranks.processes:
            assert p.stdout.readline() == "running\n"
        assert listening_ports(ranks.processes[0].pid) <= {ranks.port}
        assert listening_ports(ranks.processes[1].pid) == set()


def test_the_same_secret_lets_ranks_join(tmp_path):
    # White space at the end, as editors add it, is no part of the secret.
    files = [secret(tmp_path, "a"), secret(tmp_path, "b", "0123456789abcdef0123456789abcdef \n\n"), secret(tmp_path, "c")]
    with Ranks(3, *TCP, "--connections", "3", own=lambda r: ["--secret-file", files[r]]) as ranks:
        assert [r["ok"] for r in ranks.results()] == [True] * 3


def test_a_wrong_secret_is_refused_on_both_sides(tmp_path):
    files = [secret(tmp_path, "right"), secret(tmp_path, "wrong", "f" * 64)]
    with Ranks(2, *TCP, "--timeout", "3", own=lambda r: ["--secret-file", files[r]]) as ranks:
        server, client = ranks.ends()
    assert client[0] == 2, client
    assert "no connection to rank 0" in client[2] and "does not know the secret (transport.secret_file)" in client[2]
    assert server[0] == 1, server
    assert "rank 0's data port refused a connection from 127.0.0.1:" in server[2], server
    assert "no connection to rank 1" in server[2].splitlines()[-1], server


def test_a_secret_on_one_side_only_is_told(tmp_path):
    file = secret(tmp_path, "secret")
    with Ranks(2, *TCP, "--timeout", "3", own=lambda r: ["--secret-file", file] if r == 0 else []) as ranks:
        server, client = ranks.ends()
    assert server[0] == 1 and "this side has a transport.secret_file and the other none" in server[2], server
    assert client[0] != 0, client


@pytest.mark.parametrize("text,part", [(None, "No such file"), ("short\n", "too short for a secret")])
def test_an_unusable_secret_file_is_named(text, part, tmp_path):
    path = tmp_path / "secret" if text is None else secret(tmp_path, "secret", text)
    done = alone(*TCP, "--secret-file", str(path))
    assert done.returncode == 2 and str(path) in done.stderr and part in done.stderr, done.stderr


def test_a_secret_that_others_can_read_is_told(tmp_path):
    path = secret(tmp_path, "secret")
    path.chmod(0o644)
    done = alone(*TCP, "--timeout", "0.3", "--secret-file", str(path))
    assert "can be read by others" in done.stderr and "chmod 600" in done.stderr, done.stderr
