"""The run folder as others read it: Python's json, TensorBoard, safetensors."""

import json
import re
import xml.dom.minidom

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

FIELDS = {
    "step", "loss", "lr", "step_s", "forward_s", "backward_s", "optimizer_s", "exposed_comm_s", "codec_s",
    "bytes_sent", "bytes_received", "samples",
}  # fmt: skip
SUMMARY = {
    "world_size", "steps", "final_loss", "eval_loss", "median_step_s", "samples_per_s", "model_flops_per_s",
    "bytes_sent_per_step", "codec", "strategy", "transport", "device", "peak_rss_bytes",
}  # fmt: skip


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def scalars(folder, tag):
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


@pytest.fixture
def run(train, tmp_path):
    """A run of six steps over two ranks, with evaluation."""
    done = train("--nproc", "2", sets={"train.steps": 6, "train.eval_every": 3, "data.eval_share": 0.2,
                                       "train.checkpoint_every": 4})  # fmt: skip
    assert done.returncode == 0, done.stderr
    return tmp_path / "run"


def test_metrics_have_one_object_a_step_with_the_public_names(run):
    metrics = rows(run)
    assert [row["step"] for row in metrics] == [1, 2, 3, 4, 5, 6]
    assert all(FIELDS <= row.keys() for row in metrics)
    assert [row["samples"] for row in metrics] == [8 * step for step in range(1, 7)]
    assert [row["step"] for row in metrics if "eval_loss" in row] == [3, 6]
    for row in metrics:
        parts = row["forward_s"] + row["backward_s"] + row["optimizer_s"] + row["exposed_comm_s"]
        assert 0 < parts <= row["step_s"] * 1.001
        assert row["bytes_sent"] > 0 and row["bytes_received"] > 0


def test_summary_agrees_with_the_metrics(run):
    summary = json.loads((run / "summary.json").read_text())
    metrics = rows(run)
    assert SUMMARY <= summary.keys()
    assert summary["world_size"] == 2 and summary["steps"] == 6
    assert summary["final_loss"] == metrics[-1]["loss"]
    assert summary["eval_loss"] == metrics[-1]["eval_loss"]


def test_tensorboard_reads_the_same_curve(run):
    curve = scalars(run, "loss/train")
    assert [step for step, _ in curve] == [1, 2, 3, 4, 5, 6]
    assert [value for _, value in curve] == pytest.approx([row["loss"] for row in rows(run)], rel=1e-6)
    assert [step for step, _ in scalars(run, "loss/eval")] == [3, 6]


def test_tensorboard_shows_each_step_once_after_resume(run, train):
    done = train("--resume", run / "checkpoints/step_4", out=run,
                 sets={"train.steps": 8, "data.eval_share": 0.2})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [row["step"] for row in rows(run)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [step for step, _ in scalars(run, "loss/train")] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_trace_is_a_chrome_trace(run):
    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {"forward", "backward", "optimizer"} <= {event["name"] for event in spans}
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in spans)


def test_report_is_one_page_whose_charts_are_well_formed(run):
    page = (run / "report.html").read_text()
    charts = re.findall("<svg.*?</svg>", page, re.S)
    assert len(charts) == 5
    for chart in charts:
        xml.dom.minidom.parseString(chart)
    for outside in ("<script", "http:", "https:", "src="):
        assert outside not in page
