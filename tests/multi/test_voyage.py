"""The newcomer's path: the short voyage and the README's own commands are run as they are printed."""
import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(command, **options):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_short_voyage_trains_both_ways_and_reports(tmp_path):
    out = run(["examples/voyage/voyage.sh", "--short", "--out", str(tmp_path / "voyage")])
    plain = json.loads((tmp_path / "voyage/plain/summary.json").read_text())
    bf16 = json.loads((tmp_path / "voyage/bf16/summary.json").read_text())
    assert plain["world_size"] == bf16["world_size"] == 2
    # 16-bit gradients halve the payload; the rest (loss, weights at the start) is small beside it.
    assert 0.45 < bf16["bytes_sent_per_step"] / plain["bytes_sent_per_step"] < 0.55
    losses = [json.loads(line)["loss"] for line in (tmp_path / "voyage/plain/metrics.jsonl").read_text().splitlines()]
    assert len(losses) == 12 and losses[-1] < losses[0] - 0.3
    assert "| plain |" in out and "| bf16 |" in out
    assert " ok, 0 rejected, 0 failed" in out
    assert "Call me Ishmael. Some years ago" in out
    assert "<svg" in (tmp_path / "voyage/report.html").read_text()


def test_readme_commands_run_as_printed():
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    own = [line for block in blocks for line in block.splitlines() if not line.startswith("make ")]
    assert own, "README.md shows no commands"
    for line in own:
        run(["bash", "-c", line])


def test_readme_links_lead_somewhere():
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]:
        for name in re.findall(r"\b(?:docs|bench|tools|examples)/[\w/.-]+\.(?:md|py|sh|json|toml)\b", page.read_text()):
            assert (ROOT / name).exists(), f"{page.relative_to(ROOT)} names {name}, which does not exist"
