"""The bench of data-parallel training runs and checks its answer, and its statistics are right."""

import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT, program

sys.path.insert(0, str(ROOT / "bench"))
import bench_ddp  # noqa: E402
import lab  # noqa: E402


def namespaces_work():
    """Whether this user may make network namespaces and shape their links (a container often may not)."""
    name = f"tbprobe{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode != 0:
        return False
    try:
        link = ["ip", "-n", name, "link", "add", "net0", "type", "veth", "peer", "name", "net1"]
        shape = ["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "net0", "root", "tbf", "rate", "1gbit",
                 "burst", "128kb", "latency", "20ms"]  # fmt: skip
        return all(subprocess.run(c, capture_output=True, check=False).returncode == 0 for c in (link, shape))
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.mark.skipif(not namespaces_work(), reason="needs the right to make network namespaces and shape links")
def test_quick_run_measures_both_sides_over_a_checked_link(tmp_path):
    before = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench/bench_ddp.py"), "--quick", "--trireme", program(), "--out", str(tmp_path)],
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "ddp.json").read_text())
    (row,) = report["rows"]
    assert (row["job"], row["link"], row["mode"]) == ("mlp", "1gbit", "fp32")
    assert len(row["pairs"]) == 2 and row["ratio_interval"] is None
    assert row["theirs_s"].keys() == {"fp32", "fp32@5"}
    # 5.82 M float32 gradients travel once a step between two ranks, with headers; neither side may send much more.
    for key in ("ours_sent_per_step", "theirs_sent_per_step"):
        assert 23.2e6 < row[key] < 26e6, key
    assert "MLP, 5.82 M" in done.stdout
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert set(left.split()) <= set(before.split())


def test_interval_of_the_median_holds_95_percent():
    # Binomial tails: of 7 values the whole range holds 98 %, of 5 even that holds only 94 %; of 9 the next to last do.
    assert lab.median_interval([5, 1, 7, 3, 2, 6, 4]) == (1, 7)
    assert lab.median_interval([1, 2, 3, 4, 5]) is None
    assert lab.median_interval(list(range(9))) == (1, 7)


def test_rates_are_read_as_tc_writes_them():
    assert lab.rate_mbit("1gbit") == 1000
    assert lab.rate_mbit("100mbit") == 100
    assert lab.rate_mbit("unlimited") is None


def test_no_ratio_is_printed_over_a_link_that_missed_its_rate():
    row = {"job": "gpt", "link": "1gbit", "mode": "fp32", "ours_s": 0.5, "theirs_s": {"fp32": 0.6, "fp32@5": 0.55},
           "best": "fp32@5", "ratio": 1.1, "ratio_interval": [1.0, 1.2], "ours_sent_per_step": 44e6,
           "theirs_sent_per_step": 44e6, "link_mbit": [940.0, 850.0], "link_good": False}  # fmt: skip
    report = {"date": "d", "torch": "t", "machine": "m", "commit": "c", "rows": [row]}
    assert "1.10" not in bench_ddp.markdown(report)
    assert "link under 90 %" in bench_ddp.markdown(report)
    assert "**1.10** [1.00, 1.20]" in bench_ddp.markdown(report | {"rows": [row | {"link_good": True}]})


def test_different_losses_stop_the_bench():
    pair = {"ours_loss": 2.0, "theirs_loss": {"fp32": 2.01}}
    with pytest.raises(lab.BenchError, match="do not train the same model"):
        bench_ddp.Bench.check_losses("gpt", "fp32", pair)
    bench_ddp.Bench.check_losses("gpt", "bf16", pair)


def test_a_rank_that_fails_ends_the_others_at_once():
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    failing = [sys.executable, "-c", "import sys; sys.exit('broken')"]
    for commands in ([failing, sleeper], [sleeper, failing]):
        with pytest.raises(lab.BenchError, match="broken"):
            lab.run_ranks(commands, [dict(os.environ)] * 2, timeout=30)


def test_ranks_that_do_not_end_are_ended():
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(lab.BenchError, match="no end after 1 s"):
        lab.run_ranks([sleeper] * 2, [dict(os.environ)] * 2, timeout=1)


@pytest.mark.parametrize(
    ("words", "says"),
    [(["--jobs", "cnn"], "cnn is none of gpt, mlp"), (["--pairs", "3"], "at least 7"), (["--trireme", "/no"], "run `make`")],
)
def test_wrong_calls_are_explained(words, says, capsys):
    with pytest.raises(SystemExit) as stop:
        bench_ddp.arguments(words)
    assert stop.value.code == 2
    assert says in capsys.readouterr().err
