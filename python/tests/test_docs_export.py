"""The Python of docs/guides/export.md runs as it stands there."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/guides/export.md"


def test_snippets_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(snippets) == 2
    scope = {}
    for number, snippet in enumerate(snippets):
        # torch.export reads source lines of the module's code for its messages; a file gives it some.
        path = tmp_path / f"snippet{number}.py"
        path.write_text(snippet)
        exec(compile(snippet, str(path), "exec"), scope)
    assert sorted(p.name for p in tmp_path.glob("*.pt2")) == ["gpt2.pt2", "regression.pt2"]
