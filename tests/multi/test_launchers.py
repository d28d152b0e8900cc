"""One configuration under every launcher: the same losses, and the launcher is printed."""
import json
import os
import subprocess
import sys

import pytest
from conftest import environment, program, trireme
from one_node_slurm import OneNodeSlurm, free_ports

STEPS = 40
# Each exchange takes this long, so that a run can be killed in its middle.
SLOW = ["--set", "transport.latency=20ms"]


@pytest.fixture
def command(config, tmp_path):
    """The words of a training, without --nproc."""
    config.write_text(config.read_text().replace("steps = 4", f"steps = {STEPS}\ncheckpoint_every = 2\nkeep_last = 100"))

    def words(name):
        return [program(), "train", str(config), "--out", str(tmp_path / name), "--set", "transport.timeout=20s"]

    return words


def losses(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    return [row["loss"] for row in rows]


@pytest.fixture
def reference(command, tmp_path):
    """Losses under --nproc 2."""
    done = trireme(*command("reference")[1:], "--nproc", "2")
    assert done.returncode == 0, done.stderr
    return losses(tmp_path / "reference")


def run(words, **variables):
    done = subprocess.run([str(w) for w in words], env=environment(**variables), capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def torchrun(*words, restarts=0):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "2",
            "--max-restarts", restarts, *words]


def test_torchrun(command, reference, tmp_path):
    output = run(torchrun(*command("run")))
    assert "rank 0 of 2 (torchrun; store at" in output and "rank 1 of 2 (torchrun; store at" in output
    assert losses(tmp_path / "run") == reference


def test_torchrun_goes_on_from_the_last_checkpoint_after_a_restart(command, reference, tmp_path):
    """Rank 1 is killed once step 4 is saved; torchrun starts all ranks again."""
    script = tmp_path / "rank.sh"
    script.write_text(f"""#!/bin/sh
if [ "$RANK$TORCHELASTIC_RESTART_COUNT" = 10 ]; then
  {" ".join(command("run") + SLOW)} &
  until [ -e {tmp_path}/run/checkpoints/step_4 ]; do sleep 0.05; done
  kill -9 $!
  wait $!
else
  exec {" ".join(command("run") + SLOW)}
fi
""")
    script.chmod(0o755)
    output = run(torchrun(script, restarts=1))
    assert "resumed from" in output, output
    assert losses(tmp_path / "run") == reference


def test_torchrun_is_told_why_a_rank_failed(command):
    done = subprocess.run([str(w) for w in torchrun(*command("run"), "--set", "model.graph=absent.pt2")],
                          env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    summary = done.stderr[done.stderr.index("Root Cause"):]
    assert "input: absent.pt2" in summary, done.stderr


def test_open_mpi(command, reference, tmp_path):
    words = ["mpirun", "--oversubscribe", "-np", "2", *command("run")]
    output = run(words, OMPI_ALLOW_RUN_AS_ROOT=1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
    assert "rank 0 of 2 (Open MPI; store at 127.0.0.1:" in output and "rank 1 of 2 (Open MPI" in output
    assert losses(tmp_path / "run") == reference


def test_slurm(command, reference, tmp_path):
    folder = tmp_path / "slurm"
    folder.mkdir()
    with OneNodeSlurm(folder) as slurm:
        done = slurm.run("--ntasks=2", "--overcommit", *command("run"), OMP_NUM_THREADS=1)
    assert done.returncode == 0, done.stderr
    assert "rank 0 of 2 (Slurm; store at 127.0.0.1:" in done.stderr and "rank 1 of 2 (Slurm" in done.stderr
    assert losses(tmp_path / "run") == reference


def on_nodes(variables_of, words):
    """The command once on each of two "machines"; their outputs."""
    nodes = [subprocess.Popen(words, env=environment(**variables_of(node)), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) for node in range(2)]
    outputs = [node.communicate(timeout=120)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], outputs
    return outputs


def test_pet_variables_of_one_process_a_machine(command, reference, tmp_path):
    (port,) = free_ports(1)
    outputs = on_nodes(lambda node: {"PET_NNODES": 2, "PET_NPROC_PER_NODE": 1, "PET_NODE_RANK": node,
                                     "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": port}, command("run"))
    assert f"rank 1 of 2 (PET; store at 127.0.0.1:{port})" in outputs[1]
    assert losses(tmp_path / "run") == reference


def test_pet_starts_local_ranks(command, reference, tmp_path):
    output = run(command("run"), PET_NNODES=1, PET_NPROC_PER_NODE=2)
    assert "starting ranks 0 to 1 of 2 (PET; all on this machine)" in output and "[rank 1] " in output
    assert losses(tmp_path / "run") == reference


def test_skypilot_with_two_ranks_a_machine(config, tmp_path):
    words = [program(), "train", str(config), "--nproc", "2", "--set", "train.batch_per_rank=2",
             "--set", "transport.timeout=20s"]
    (port,) = free_ports(1)
    folders = [["--out", str(tmp_path / f"node{node}")] for node in range(2)]
    nodes = [subprocess.Popen(words + folders[node],
                              env=environment(SKYPILOT_NODE_RANK=node, SKYPILOT_NODE_IPS="127.0.0.1\n127.0.0.2",
                                              SKYPILOT_NUM_GPUS_PER_NODE=0, MASTER_PORT=port),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for node in range(2)]
    outputs = [node.communicate(timeout=120)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], outputs
    assert f"starting ranks 2 to 3 of 4 (SkyPilot; store at 127.0.0.1:{port})" in outputs[1]
    assert "[rank 3] " in outputs[1]
    assert json.loads((tmp_path / "node0/summary.json").read_text())["world_size"] == 4
    assert os.listdir(tmp_path / "node1"), "local ranks of other machines write where they are told to"


# --- --max-restarts


def test_nproc_starts_killed_ranks_again(command, reference, tmp_path):
    """A rank dies once, after step 2; the run ends as if nothing had happened."""
    wrapper = tmp_path / "once.sh"
    wrapper.write_text(f"""#!/bin/sh
# Kills rank 1 of the first attempt when the checkpoint of step 2 is there.
{" ".join(command("run") + SLOW)} --nproc 2 --max-restarts 1 &
parent=$!
until [ -e {tmp_path}/run/checkpoints/step_2 ]; do sleep 0.02; done
for pid in $(cat /proc/$parent/task/$parent/children); do
  tr '\\0' '\\n' </proc/$pid/environ | grep -qx RANK=1 && kill -9 $pid
done
wait $parent
""")
    wrapper.chmod(0o755)
    output = run([wrapper])
    assert "rank 1 was ended by SIGKILL; stopping the others" in output, output
    assert "starting all ranks again, restart 1 of 1" in output and "resumed from" in output
    assert losses(tmp_path / "run") == reference



def test_wrong_input_is_not_tried_again(command):
    done = trireme(*command("run")[1:], "--nproc", "2", "--max-restarts", "3", "--set", "model.graph=absent.pt2")
    assert done.returncode == 2
    assert "starting all ranks again" not in done.stderr


def test_restarts_need_local_ranks(command):
    done = trireme(*command("run")[1:], "--max-restarts", "3")
    assert done.returncode == 2
    assert "--max-restarts" in done.stderr and "--nproc" in done.stderr
