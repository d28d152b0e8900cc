"""trireme.search from Python: the package is the function; probes by a Python function; errors as exceptions."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

import trireme

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data" / "deploy"


@pytest.fixture
def offers(tmp_path):
    path = tmp_path / "offers.csv"
    path.write_text("instance,usd_per_hour,max_nodes\nsmall,1,8\nlarge,3,8\n")
    return path


def speed(instance, nodes):
    return {"small": 10, "large": 40}[instance] * nodes / (1 + (nodes / 6) ** 2)


def run(offers, measure, **changes):
    sections = {"goal": {"scenario": "budget", "budget_usd": 40}, "space": {"offers": str(offers), "nodes": [1, 2, 4, 8]}} | changes
    return trireme.search({"samples": 1e6}, probe=measure, **sections)


def test_a_job_file_answers_as_the_program_does(tmp_path):
    result = trireme.search(DATA / "cnn-60000.toml", state=tmp_path / "s")
    assert result["feasible"] and result["chosen"] == {"instance": "t2.xlarge", "nodes": 8, "spot": False}
    assert trireme.search(str(DATA / "cnn-60000.toml"), state=tmp_path / "s") == result
    seven = trireme.search(DATA / "cnn-60000.toml", goal={"budget_usd": 7})
    assert seven["total"]["usd"] <= 7


def test_a_function_is_the_profiler(offers):
    seen = []

    def measure(instance, nodes):
        seen.append((instance, nodes))
        return speed(instance, nodes)

    result = run(offers, measure)
    assert result["feasible"] and result["total"]["usd"] <= 40
    assert seen == [(p["instance"], p["nodes"]) for p in result["probes"]]
    assert [p["hours"] for p in result["probes"][:2]] == pytest.approx([10 / 60, 10 / 60])


def test_a_dict_says_more_and_exceptions_are_failed_probes(offers):
    def measure(instance, nodes, needed):
        if instance == "small":
            raise MemoryError("no room")
        return {"samples_per_s": speed(instance, nodes), "hours": 0.05, "relative_sd": 0.01, "samples_trained": 100}

    result = run(offers, measure)
    failed = [p for p in result["probes"] if p.get("error")]
    assert failed and all("no room" in p["error"] and p["usd"] > 0 for p in failed)
    good = [p for p in result["probes"] if not p.get("error")]
    assert all(p["hours"] == 0.05 and p["samples_trained"] == 100 for p in good)
    assert result["samples_left"] == 1e6 - 100 * len(good)


def test_probes_side_by_side_run_at_the_same_time(offers):
    result = run(offers, speed, search={"parallel": 2})
    assert result["spent"]["hours"] < sum(p["hours"] for p in result["probes"])


def test_nonsense_is_a_failed_probe(offers):
    result = run(offers, lambda instance, nodes: "fast")
    assert not result["feasible"] and "neither a number" in result["probes"][0]["error"]


def test_explanations_go_to_a_function(offers):
    texts = []
    trireme.search({"samples": 1e6}, probe=speed, explain=texts.append, goal={"scenario": "fastest"},
                   space={"offers": str(offers), "nodes": [1, 2, 4]})
    assert "initial design" in texts[0] and "stop" in texts[-1]


@pytest.mark.parametrize(("changes", "message"), [
    ({"goal": {"scenario": "budget"}}, "needs goal.budget_usd"),
    ({"goal": {"scenario": "fastest", "budget": 3}}, "goal.budget"),
    ({"space": {"offers": "none.csv"}}, "none.csv"),
    ({"places": {}}, "unknown section places"),
])
def test_wrong_input_is_a_value_error(offers, changes, message):
    with pytest.raises(ValueError, match=message):
        run(offers, speed, **changes)


def test_neither_torch_nor_numpy_is_needed(offers):
    code = ("import sys; sys.modules['torch'] = None; sys.modules['numpy'] = None; import trireme; "
            f"print(trireme.search({{'samples': 10}}, space={{'offers': {str(offers)!r}}}, probe=lambda m, n: 1.0)['feasible'])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False,
                          env=os.environ | {"PYTHONPATH": str(ROOT / "python")})
    assert done.stdout.strip() == "True", done.stderr
