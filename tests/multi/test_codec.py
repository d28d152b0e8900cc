"""trireme codec list and roundtrip."""
import json

import numpy
import pytest
from conftest import assert_refused, trireme

KEYS = {"name", "options", "stateful", "unbiased", "contractive", "payload", "rounds", "bits_per_element"}


def catalogue():
    done = trireme("codec", "list", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


CODECS = [c["name"] for c in catalogue()]


def roundtrip(folder, codec, values, *words):
    (folder / "g.f32").write_bytes(values.astype("<f4").tobytes())
    done = trireme("codec", "roundtrip", "--codec", codec, "--in", folder / "g.f32", "--wire", folder / "w.bin", "--out",
                   folder / "d.f32", *words)
    assert done.returncode == 0, done.stderr
    return (folder / "w.bin").read_bytes(), numpy.fromfile(folder / "d.f32", "<f4")


def gradient(n=40_000, seed=0):
    return numpy.random.default_rng(seed).standard_t(4, n).astype("f4") * 1e-3


def test_the_list_says_what_each_codec_promises():
    by_name = {c["name"]: c for c in catalogue()}
    assert {"none", "bf16", "fp16", "fp8", "int8", "int4", "onebit", "dither", "tbq", "terngrad", "qsgd", "topk", "dgc",
            "graddrop", "powersgd"} <= set(by_name)
    for c in by_name.values():
        assert KEYS <= set(c) and c["payload"] in ("summable", "two_phase", "gather_only")
    assert by_name["powersgd"]["rounds"] == 2
    assert all(by_name[name]["unbiased"] for name in ("dither", "terngrad", "qsgd"))
    assert by_name["dither"]["options"]["range"] == "max" and by_name["terngrad"]["options"]["clip"] == 0
    assert by_name["int8"]["options"]["rounding"] == "nearest"
    assert all(by_name[name]["options"]["ratio"] <= 0.01 for name in ("topk", "dgc", "graddrop"))
    assert trireme("codec", "list").stdout.count("\n") > len(by_name)


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_goes_there_and_back(tmp_path, codec):
    values = gradient()
    wire, first = roundtrip(tmp_path, codec, values, "--seed", 3, "--shape", "200x200")
    again, second = roundtrip(tmp_path, codec, values, "--seed", 3, "--shape", "200x200")
    assert wire == again and numpy.array_equal(first, second)
    assert first.shape == values.shape and numpy.isfinite(first).all()
    limits = {"onebit": 1.3, "dither": 1.3, "terngrad": 2.3, "int8": 8.8}
    assert 8 * len(wire) / values.size <= limits.get(codec, 33)


# With the same gradient over and over the mean of what comes out nears it; few bits and heavy tails take their time.
@pytest.mark.parametrize("codec,steps,error", [
    ("onebit", 200, 0.25), ("int8", 20, 0.001), ("int4", 20, 0.02), ("fp8", 20, 0.01), ("tbq", 200, 0.1), ("dither", 200, 0.25),
    ("terngrad", 200, 0.25), ("qsgd", 200, 0.2), ("topk", 400, 0.3), ("powersgd", 100, 0.7), ("randk", 400, 0.6)])
def test_steps_with_feedback_send_everything_in_the_end(tmp_path, codec, steps, error):
    values = gradient(10_000)
    _, mean = roundtrip(tmp_path, codec, values, "--steps", steps, "--shape", "100x100")
    assert numpy.linalg.norm(mean - values) < error * numpy.linalg.norm(values)


@pytest.mark.parametrize("words,parts", [
    (["--codec", "onebits"], ["did you mean 'onebit'"]),
    (["--codec", "onebit", "--option", "blok=128"], ["onebit", "blok"]),
    (["--codec", "onebit", "--option", "block"], ["key=value"]),
    (["--codec", "onebit", "--option", "block=100"], ["multiple of 128"]),
    (["--codec", "powersgd", "--shape", "3x4"], ["--shape 3x4", "elements"]),
    (["--codec", "powersgd", "--shape", "3"], ["ROWSxCOLUMNS"]),
    (["--codec", "onebit", "--steps", "0"], ["--steps"]),
])
def test_wrong_words_are_named(tmp_path, words, parts):
    gradient(10).tofile(tmp_path / "g.f32")
    assert_refused(trireme("codec", "roundtrip", "--in", tmp_path / "g.f32", "--out", tmp_path / "d.f32", *words), 2, *parts)


def test_wrong_files_are_named(tmp_path):
    (tmp_path / "short").write_bytes(b"12345")
    gradient(10).tofile(tmp_path / "good")
    numpy.array([1, 2, numpy.nan, 3], "f4").tofile(tmp_path / "nan")

    def attempt(name):
        return trireme("codec", "roundtrip", "--codec", "int8", "--in", tmp_path / name, "--out", tmp_path / "out")

    assert_refused(attempt("missing"), 2, "missing")
    assert_refused(attempt("short"), 2, "short", "5 bytes")
    assert_refused(attempt("nan"), 2, "nan", "element 2 is NaN")
    assert not (tmp_path / "out").exists()


def test_bench_measures_beside_memcpy():
    done = trireme("codec", "bench", "--codec", "onebit", "--size", "1MiB", "--rounds", 1, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["size_bytes"] == 1 << 20
    assert [row["error_feedback"] for row in answer["codecs"]] == [False, True]
    assert all(row[key] > 0 for row in answer["codecs"] for key in ("encode_bytes_per_s", "decode_bytes_per_s", "memcpy_bytes_per_s"))
    assert_refused(trireme("codec", "bench", "--codec", "onebits"), 2, "did you mean 'onebit'")
    assert_refused(trireme("codec", "bench", "--size", "5 parsecs"), 2, "5 parsecs")
