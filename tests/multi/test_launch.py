"""Ranks as processes: --nproc, plain variables, torchrun; output, failures, signals, nobody left behind."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import environment, program, trireme

LONG = 100_000  # steps: more than any test waits for


def children(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == pid and state != "Z":
            found.append(int(stat.parent.name))
    return found


def running(pids):
    def lives(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False

    return [pid for pid in pids if lives(pid)]


def rank_of(pid):
    return int(dict(v.split("=", 1) for v in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in v)["RANK"])


def wait_until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s: {what}"
        time.sleep(0.05)


class Run:
    """A running `trireme train --nproc`; killed at the end of the test if it is still there."""

    def __init__(self, config, out, ranks, *words):
        self.metrics = out / "metrics.jsonl"
        self.log = open(out.with_suffix(".log"), "w+")
        self.process = subprocess.Popen(
            [program(), "train", str(config), "--nproc", str(ranks), "--out", str(out), "--set", f"train.steps={LONG}",
             "--set", "transport.timeout=20s", *words], env=environment(), stdout=self.log, stderr=self.log)
        self.ranks = ranks

    def wait_for_steps(self, count):
        wait_until(lambda: self.process.poll() is not None or self.steps() >= count, f"{count} steps")
        assert self.process.poll() is None, self.output()
        self.pids = sorted(children(self.process.pid), key=rank_of)
        assert len(self.pids) == self.ranks

    def steps(self):
        return len(self.metrics.read_text().splitlines()) if self.metrics.exists() else 0

    def output(self):
        return Path(self.log.name).read_text()

    def end(self, seconds=40):
        return self.process.wait(timeout=seconds)


@pytest.fixture
def start(config, tmp_path):
    runs = []

    def begin(ranks=2, *words):
        runs.append(Run(config, tmp_path / "run", ranks, *words))
        return runs[-1]

    yield begin
    for run in runs:
        run.process.kill()
        run.process.wait()
        run.log.close()


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


# --- --nproc --------------------------------------------------------------------------------------------------------


def test_ranks_train_together_and_every_line_says_whose_it_is(train, tmp_path):
    done = train("--nproc", "3")
    assert done.returncode == 0, done.stderr
    assert summary(tmp_path / "run")["world_size"] == 3
    lines = (done.stdout + done.stderr).splitlines()
    own = [line for line in lines if not re.match(r"\[rank [012]\] ", line)]
    assert own == ["trireme info: starting ranks 0 to 2 of 3 (--nproc; all on this machine); "
                   f"output folder {tmp_path / 'run'}"]
    for rank in range(3):
        assert any(line.startswith(f"[rank {rank}] ") and f"rank {rank} of 3 (--nproc" in line for line in lines)


def test_one_rank_needs_no_network(train, tmp_path):
    done = train("--nproc", "1")
    assert done.returncode == 0, done.stderr
    assert summary(tmp_path / "run")["world_size"] == 1


def test_wrong_input_is_found_before_ranks_start(train):
    done = train("--nproc", "2", sets={"train.steps": 0})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "[rank" not in done.stderr


def test_exit_code_is_that_of_the_first_failure(train, tmp_path):
    done = train("--nproc", "2", sets={"model.graph": tmp_path / "absent.pt2"})
    assert done.returncode == 2
    assert re.search(r"^trireme error: rank [01] ended with exit code 2", done.stderr, re.M)
    assert re.search(r"^\[rank [01]\] trireme: input: .*absent\.pt2", done.stderr, re.M)


def test_a_killed_rank_is_named_and_the_others_are_stopped(start):
    run = start(3)
    run.wait_for_steps(2)
    os.kill(run.pids[1], signal.SIGKILL)
    assert run.end() == 1
    assert re.search(r"^trireme error: rank 1 was ended by SIGKILL; stopping the others", run.output(), re.M)
    assert running(run.pids) == []


def test_a_rank_that_does_not_stop_is_killed(start):
    run = start(2)
    run.wait_for_steps(2)
    os.kill(run.pids[1], signal.SIGSTOP)
    os.kill(run.pids[0], signal.SIGKILL)
    assert run.end(30) == 1
    assert "rank 0 was ended by SIGKILL" in run.output()
    assert running(run.pids) == []


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_run_with_a_checkpoint(start, train, tmp_path, sent):
    run = start(2)
    run.wait_for_steps(3)
    run.process.send_signal(sent)
    assert run.end() == 1
    assert f"{sent.name}: forwarded to 2 ranks" in run.output()
    assert re.search(r"^\[rank 0\] trireme: cancelled: ", run.output(), re.M)
    assert running(run.pids) == []
    steps = run.steps()
    assert [p.name for p in (tmp_path / "run/checkpoints").iterdir()] == [f"step_{steps}"]
    done = train("--resume", tmp_path / "run", "--nproc", "2", sets={"train.steps": steps + 2})
    assert done.returncode == 0, done.stderr
    assert summary(tmp_path / "run")["steps"] == steps + 2


def test_a_signal_while_waiting_for_other_ranks_ends_at_once(config, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    rank = subprocess.Popen([program(), "train", str(config), "--out", str(tmp_path / "run")], text=True,
                            env=environment(RANK=0, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port),
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    rank.stderr.readline()  # "rank 0 of 2 …": the watch for signals is set up right after
    wait_until(lambda: len(list(Path(f"/proc/{rank.pid}/task").iterdir())) > 2, "the store's thread")
    rank.terminate()
    assert rank.wait(timeout=10) == -signal.SIGTERM


def test_ranks_die_with_their_launcher(start):
    run = start(2)
    run.wait_for_steps(1)
    run.process.kill()
    run.process.wait()
    wait_until(lambda: running(run.pids) == [], "ranks outlive their launcher", 10)


def test_default_folder_is_named_after_the_configuration(config, tmp_path):
    done = trireme("train", config, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"job-\d{8}-\d{6}", folder.name)
    resolved = (folder / "config.toml").read_text()
    assert f"steps = 4  # {config}:" in resolved and "seed = 0  # default" in resolved


# --- other launchers ------------------------------------------------------------------------------------------------


def test_plain_variables(config, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ranks = [subprocess.Popen([program(), "train", str(config), "--out", str(tmp_path / f"out{rank}")],
                              env=environment(RANK=rank, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(2)]
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    for rank, output in enumerate(outputs):
        assert f"rank {rank} of 2 (RANK and WORLD_SIZE; store at 127.0.0.1:{port})" in output
        assert f"trireme [rank {rank}] info: " in output
    assert summary(tmp_path / "out0")["world_size"] == 2
    assert summary(tmp_path / "out1")["world_size"] == 2, "a rank with a folder of its own writes it"


def test_torchrun_restarts_after_a_rank_that_never_joined(config, tmp_path):
    """Its agent's store still holds the addresses of the first attempt's ranks."""
    script = tmp_path / "rank.sh"
    script.write_text(f"""#!/bin/sh
[ "$RANK$TORCHELASTIC_RESTART_COUNT" = 10 ] && {{ sleep 3; exit 1; }}
exec {program()} train {config} --out {tmp_path}/run --set transport.timeout=20s
""")
    script.chmod(0o755)
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python",
                           "--nproc-per-node", "2", "--max-restarts", "1", str(script)],
                          env=environment(), capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert summary(tmp_path / "run")["world_size"] == 2
