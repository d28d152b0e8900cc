"""trireme doctor: its checks as text and JSON, and what it says about peers."""
import json
import os
import socket

from conftest import assert_refused, trireme


def checks(done):
    return {c["check"]: c for c in json.loads(done.stdout)["checks"]}


def test_checks_pass_on_this_machine(tmp_path):
    done = trireme("doctor", "--json", "--folder", tmp_path)
    assert done.returncode == 0, done.stdout
    found = checks(done)
    assert int(found["cores"]["detail"].split(",")[0]) == len(os.sched_getaffinity(0))
    assert "GB" in found["memory"]["detail"]
    assert found["torch"]["detail"].startswith("2.")
    assert "127.0.0.1" in found["interface lo"]["detail"]
    assert found["transport ucx"]["ok"]
    assert list(tmp_path.iterdir()) == []
    lines = trireme("doctor", "--folder", tmp_path).stdout.splitlines()
    assert len(lines) == len(found) and all(line.startswith("ok ") for line in lines)


def test_peers_that_answer_and_that_do_not():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = trireme("doctor", "--json", "--peer", f"127.0.0.1:{port}")
    assert done.returncode == 0
    assert checks(done)[f"peer 127.0.0.1:{port}"]["detail"].startswith("connects in ")
    done = trireme("doctor", "--json", "--peer", f"127.0.0.1:{port}", "--peer", "no-such-host.invalid:1")
    assert done.returncode == 1 and not json.loads(done.stdout)["ok"]
    assert checks(done)[f"peer 127.0.0.1:{port}"] == {
        "check": f"peer 127.0.0.1:{port}", "ok": False, "detail": "Connection refused"}
    assert not checks(done)["peer no-such-host.invalid:1"]["ok"]


def test_a_folder_that_cannot_be_written(tmp_path):
    done = trireme("doctor", "--folder", tmp_path / "absent")
    assert done.returncode == 1
    assert any(line.startswith("FAIL folder") and "No such file" in line for line in done.stdout.splitlines())


def test_wrong_calls():
    assert_refused(trireme("doctor", "--peer", "nohost"), 2, "--peer nohost", "host:port")
    assert_refused(trireme("doctor", "--timeout", "soon"), 2, "soon")
