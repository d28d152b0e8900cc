"""A short run of tests/fuzz/fuzz_serve.py: the corpus as it is, then damaged."""
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
import fuzz_serve


@pytest.fixture(scope="module")
def server():
    with tempfile.TemporaryDirectory() as folder, fuzz_serve.own_server(Path(folder)) as running:
        yield running


@pytest.mark.parametrize("file", sorted(fuzz_serve.CORPUS.glob("*.http")), ids=lambda file: file.stem)
def test_the_corpus_itself_is_answered(server, file):
    answer = fuzz_serve.exchange(server.port, file.read_bytes())
    assert b"HTTP/1.1 200 OK" in answer, answer
    assert fuzz_serve.finding(file.read_bytes(), answer) is None


def test_damaged_requests_are_refused_and_the_server_lives(server):
    sent, found = fuzz_serve.fuzz(server.port, seed=7, count=1500)
    assert sent == 1500 and not found, found[:3]
    assert server.call("GET", "/v2/health/ready")[0] == 200
