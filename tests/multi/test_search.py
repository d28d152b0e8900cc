"""trireme search: the program as a user calls it; the arithmetic is tested beside the code (src/trireme/deploy)."""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from conftest import ROOT, assert_refused, environment, program, trireme

DATA = ROOT / "data" / "deploy"


@pytest.fixture
def job(tmp_path):
    for name in ("cnn-60000.toml", "cnn-60000-speeds.csv", "t2-offers.csv"):
        shutil.copy(DATA / name, tmp_path)
    return tmp_path / "cnn-60000.toml"


def search(job, *words, **sets):
    pairs = [w for key, value in sets.items() for w in ("--set", f"{key.replace('__', '.')}={value}")]
    done = trireme("search", job, "--json", *pairs, *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_result_keeps_the_budget_and_adds_up(job):
    result = search(job)
    assert result["feasible"] and result["total"]["usd"] <= 10 * 0.95
    assert result["chosen"] == {"instance": "t2.xlarge", "nodes": 8, "spot": False}
    assert [(p["instance"], p["nodes"]) for p in result["probes"][:4]] == [
        ("t2.medium", 4), ("t2.small", 8), ("t2.xlarge", 2), ("t2.2xlarge", 1)]
    for unit in ("hours", "usd"):
        assert result["spent"][unit] == pytest.approx(sum(p[unit] for p in result["probes"]))
        assert result["total"][unit] == pytest.approx(result["spent"][unit] + result["predicted"][unit])
    assert result["stop_reason"]


def test_second_call_pays_nothing_and_answers_the_same(job):
    first = search(job)
    state = job.with_suffix(".state").read_text()
    assert search(job) == first
    assert job.with_suffix(".state").read_text() == state


def test_search_goes_on_from_a_state_that_was_cut_short(job):
    whole = search(job)
    path = job.with_suffix(".state")
    state = json.loads(path.read_text())
    state["probes"] = state["probes"][:3]
    path.write_text(json.dumps(state))
    assert search(job) == whole


def test_another_goal_needs_another_state(job, tmp_path):
    search(job)
    done = trireme("search", job, "--set", "goal.budget_usd=7")
    assert_refused(done, 2, "belongs to another job", "--state")
    assert search(job, "--state", tmp_path / "seven.state", goal__budget_usd=7)["total"]["usd"] <= 7


def test_goals_and_methods(job, tmp_path):
    def run(**sets):
        return search(job, "--state", tmp_path / f"{len(list(tmp_path.iterdir()))}.state", **sets)

    cheap = run(goal__scenario="deadline", goal__deadline_hours=9, goal__budget_usd=1e6)
    assert cheap["feasible"] and cheap["total"]["hours"] <= 9 * 0.95
    assert cheap["total"]["usd"] < 9
    oracle = run(search__method="oracle", goal__margin=0)
    assert (oracle["chosen"]["instance"], oracle["chosen"]["nodes"]) == ("t2.2xlarge", 6)
    everything = run(search__method="exhaustive", goal__budget_usd=1000)
    assert len(everything["probes"]) == 24
    assert (everything["chosen"]["instance"], everything["chosen"]["nodes"]) == ("t2.xlarge", 20)
    assert everything["spent"]["usd"] == pytest.approx(9.49, abs=0.01)
    for method in ("bo", "cherrypick", "random", "ernest"):
        assert run(search__method=method)["probes"]


def test_a_budget_below_the_cheapest_probe_is_infeasible(job):
    result = search(job, goal__budget_usd=0.01)
    assert not result["feasible"] and result["chosen"] is None and result["probes"] == []
    assert result["spent"] == {"hours": 0, "usd": 0}


def test_table_and_explanation_for_people(job):
    done = trireme("search", job, "--explain")
    assert done.returncode == 0
    assert "chosen: t2.xlarge x 8" in done.stdout and "spent on probes" in done.stdout
    assert "probe next" in done.stderr and "upper bound" in done.stderr


@pytest.fixture
def command_job(job):
    """Probes by a script that answers from the table, writes down each call, and fails, hangs or babbles where told."""
    script = job.parent / "probe.sh"
    script.write_text("""#!/bin/sh
echo "$1 $2" >> calls.txt
case "$1 $2" in
  "t2.medium 4") echo "no capacity" >&2; exit 7 ;;
  "t2.small 4") sleep 600 ;;
  "t2.xlarge 4") echo nan ;;
  *) grep "^$1,$2," cnn-60000-speeds.csv | cut -d, -f3 ;;
esac
""")
    text = job.read_text().replace('kind = "replay"', 'kind = "command"').replace(
        'table = "cnn-60000-speeds.csv"', f'command = "cd {job.parent} && sh probe.sh {{instance}} {{nodes}}"')
    job.write_text(text.replace('"10 + floor((n-1)/3)"', '"0.01"').replace("[space]", "[space]\nnodes = [4, 8]"))
    return job


def calls(job):
    return (job.parent / "calls.txt").read_text().splitlines()


def test_failing_hanging_and_babbling_probes_are_charged_and_not_repeated(command_job):
    result = search(command_job)
    failed = {f"{p['instance']} {p['nodes']}": p for p in result["probes"] if p.get("error")}
    assert "exit code 7: no capacity" in failed["t2.medium 4"]["error"]
    assert "no speed within" in failed["t2.small 4"]["error"]
    assert "nan" in failed["t2.xlarge 4"]["error"]
    assert all(p["usd"] > 0 and p["samples_per_s"] is None for p in failed.values())
    assert len(calls(command_job)) == len(set(calls(command_job))) == len(result["probes"])
    assert result["feasible"]
    assert search(command_job) == result and len(calls(command_job)) == len(result["probes"])


def test_a_search_that_is_stopped_goes_on_where_it_was(command_job):
    script = command_job.parent / "probe.sh"
    script.write_text(script.read_text().replace("sleep 600", "echo waiting >> waits.txt; sleep 600"))
    command_job.write_text(command_job.read_text().replace('"0.01"', '"10"'))
    running = subprocess.Popen([program(), "search", str(command_job)], stderr=subprocess.PIPE, text=True, env=environment())
    deadline = time.monotonic() + 60
    while not (command_job.parent / "waits.txt").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    _, told = running.communicate(timeout=60)
    assert running.returncode == 1 and "goes on where this search was" in told
    state = json.loads(command_job.with_suffix(".state").read_text())
    before = calls(command_job)
    assert state["running"] == [] and state["probes"][-1]["interrupted"]
    assert 0 < state["probes"][-1]["hours"] < 10 / 60
    script.write_text(script.read_text().replace("sleep 600", "echo 218.3"))
    search(command_job)
    again = calls(command_job)[len(before):]
    assert set(again).isdisjoint(before[:-1])  # only the one that was cut off is made again


def test_skypilot_probes_through_a_recorded_sky(job):
    """`sky` on PATH answers from the table, as its launches print; each cluster is taken down."""
    folder = job.parent
    fake = folder / "bin" / "sky"
    fake.parent.mkdir()
    fake.write_text(f"""#!/bin/sh
echo "$*" >> {folder}/sky.log
[ "$1" = launch ] || exit 0
type=$(sed -n 's/.*instance_type: "\\(.*\\)"/\\1/p' "$5"); nodes=$(sed -n 's/^num_nodes: //p' "$5")
echo "I 12-02 08:43:15 provisioner.py:76] Launching on AWS us-east-1"
echo "(task, pid=2153) samples_per_s=$(grep "^$type,$nodes," {folder}/cnn-60000-speeds.csv | cut -d, -f3)"
""")
    fake.chmod(0o755)
    job.write_text(job.read_text().replace('kind = "replay"', 'kind = "skypilot"').replace(
        'table = "cnn-60000-speeds.csv"', 'run = "python train.py"').replace(
        "[space]", '[space]\ndeployments = "cnn-60000-speeds.csv"'))
    done = trireme("search", job, "--json", PATH=f"{fake.parent}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["feasible"] and not [p for p in result["probes"] if p.get("error")]
    log = (folder / "sky.log").read_text().splitlines()
    launched = [line.split()[3] for line in log if line.startswith("launch")]
    assert len(launched) == len(result["probes"])
    assert sorted(launched) == sorted(line.split()[2] for line in log if line.startswith("down"))
    task = (folder / "cnn-60000.runs" / f"{launched[0]}.yaml").read_text()
    assert "num_nodes: 4" in task and 'instance_type: "t2.medium"' in task and "  python train.py" in task


def test_real_training_as_probes_counts_and_leaves_a_checkpoint(tmp_path, config):
    """One and two local processes over a rate-limited link; each probe goes on where the one before stopped."""
    (tmp_path / "offers.csv").write_text("instance,usd_per_hour,max_nodes\n1gbit,2,2\n")
    job = tmp_path / "search.toml"
    job.write_text(f"""[job]
samples = 8000000
[goal]
scenario = "fastest"
[space]
offers = "offers.csv"
nodes = [1, 2]
[probe]
kind = "trireme"
config = "{config}"
global_batch = 8
sets = ["transport.rate_limit={{instance}}"]
minutes = "0.05"
longest = 10
[search]
method = "exhaustive"
""")
    done = trireme("search", job, "--json", timeout=240)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    good = [p for p in result["probes"] if not p.get("error")]
    assert len(good) == 2 and result["chosen"]
    trained = sum(p["samples_trained"] for p in good)
    assert trained > 0 and result["samples_left"] == 8000000 - trained
    steps = [int(p.name[5:]) for p in (tmp_path / "search.runs").glob("attempt-*/checkpoints/step_*")]
    assert max(steps) * 8 == trained


@pytest.mark.parametrize(("file", "text", "parts"), [
    ("cnn-60000-speeds.csv", "instance,nodes,samples_per_s\nt2.tiny,1,5\n", ("t2.tiny", "not among the offers")),
    ("cnn-60000-speeds.csv", "instance,nodes,samples_per_s\nt2.small,8,nan\n", (":2:", "samples_per_s = nan")),
    ("cnn-60000-speeds.csv", "instance,nodes,samples_per_s\nt2.small,8,1\nt2.small,8,2\n", (":3:", "twice")),
    ("cnn-60000-speeds.csv", "", ("empty",)),
    ("cnn-60000-speeds.csv", "instance,nodes\n", ("no column samples_per_s",)),
    ("t2-offers.csv", "instance,usd_per_hour,max_nodes\nt2.small,-1,80\n", (":2:", "usd_per_hour = -1")),
    ("t2-offers.csv", "instance,usd_per_hour,max_nodes\nt2.small,1,8\nt2.small,1,8\n", (":3:", "already in line 2")),
    ("cnn-60000.toml", "[job]\nsamples = 1\n", ("space.offers is missing",)),
    ("cnn-60000.toml", "[job]\nsamples = 'x'\n", ("job.samples",)),
])
def test_bad_input_is_one_line(job, file, text, parts):
    (job.parent / file).write_text(text)
    assert_refused(trireme("search", job, "--json"), 2, *parts)
    assert not job.with_suffix(".state").exists()


def test_help_fits_a_screen_and_its_example_works(tmp_path):
    done = trireme("search", "--help")
    assert done.returncode == 0 and len(done.stdout.splitlines()) <= 40
    assert "trireme search data/deploy/cnn-60000.toml" in done.stdout
    assert trireme("search", "data/deploy/cnn-60000.toml", "--state", tmp_path / "s", cwd=ROOT).returncode == 0
    assert "budget_usd" in trireme("search", "--help-job").stdout
