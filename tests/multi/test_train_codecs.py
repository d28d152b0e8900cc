"""Training with every codec: replicas stay equal, losses fall, a resumed run repeats the uninterrupted one."""
import json

import pytest
from conftest import assert_refused, trireme
from safetensors.torch import load_file
from test_ranks import GLOBAL_BATCH, gpt, losses, pairs, text_config  # noqa: F401

CODECS = [c["name"] for c in json.loads(trireme("codec", "list", "--json").stdout)]


def nproc(config, out, ranks, words=(), **sets):
    sets = {"train.batch_per_rank": GLOBAL_BATCH // ranks} | {key.replace("__", "."): value for key, value in sets.items()}
    return trireme("train", config, "--out", out, "--nproc", ranks, *words, *pairs(sets))


# check_replicas is on in the configuration; the model's sizes are odd multiples of nothing in particular.
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_trains_over_ucx(tmp_path, text_config, codec):
    done = nproc(text_config('kind = "sgd"\nlr = 0.3\nmomentum = 0.9', steps=8), tmp_path / "run", 2 + CODECS.index(codec) % 2,
                 sync__codec=codec, sync__bucket_bytes="30kB", sync__first_bucket_bytes="7kB",
                 **({"sync__codec_options": "{ratio=0.3}"} if codec == "randk" else {}))
    assert done.returncode == 0, done.stderr
    got = losses(tmp_path / "run")
    assert got[-1] < got[0] - 0.2, got
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["codec"] == codec
    if codec != "none":
        assert f"codec {codec} " in done.stderr, done.stderr


@pytest.mark.parametrize("codec", ["onebit", "topk"])
def test_five_ranks_stay_equal(tmp_path, text_config, codec):
    done = nproc(text_config('kind = "sgd"\nlr = 0.3', steps=3), tmp_path / "run", 5, sync__codec=codec)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("codec,strategy", [("onebit", "ring"), ("onebit", "gather"), ("powersgd", "two_phase"), ("none", "gather"),
                                            ("int8", "ring")])
def test_other_strategies_that_fit(tmp_path, text_config, codec, strategy):
    done = nproc(text_config('kind = "sgd"\nlr = 0.3', steps=3), tmp_path / "run", 3, sync__codec=codec, sync__strategy=strategy)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run/summary.json").read_text())["strategy"] == strategy


@pytest.mark.parametrize("codec", ["onebit", "dgc", "powersgd", "qsgd"])
def test_a_resumed_run_repeats_the_uninterrupted_one(tmp_path, text_config, codec):
    config = text_config('kind = "sgd"\nlr = 0.3\nmomentum = 0.9', steps=8, checkpoint_every=5)
    buckets = {"sync__bucket_bytes": "30kB", "sync__first_bucket_bytes": "7kB", "sync__codec": codec}
    assert nproc(config, tmp_path / "whole", 2, **buckets).returncode == 0
    assert nproc(config, tmp_path / "part", 2, train__steps=5, **buckets).returncode == 0
    done = nproc(config, tmp_path / "part", 2, ["--resume", tmp_path / "part"], **buckets)
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "part") == losses(tmp_path / "whole")
    a, b = (load_file(tmp_path / f"{name}/checkpoints/step_8/model.safetensors") for name in ("part", "whole"))
    assert a.keys() == b.keys() and all(a[key].equal(b[key]) for key in a)
    if codec != "qsgd":  # it remembers nothing; its random numbers depend on seed and step alone
        state = load_file(tmp_path / "whole/checkpoints/step_8/codec.safetensors")
        assert any(key.startswith("rank1/") for key in state)


def test_more_ranks_may_go_on(tmp_path, text_config):
    config = text_config('kind = "sgd"\nlr = 0.3', steps=4)
    assert nproc(config, tmp_path / "run", 2, sync__codec="onebit").returncode == 0
    done = nproc(config, tmp_path / "run", 3, ["--resume", tmp_path / "run"], sync__codec="onebit", train__steps=6)
    assert done.returncode == 0 and "codec state of 2 ranks" in done.stderr, done.stderr


def test_small_buckets_travel_without_codec(tmp_path, text_config):
    config = text_config('kind = "sgd"\nlr = 0.3', steps=2)
    sent = {}
    for limit in ("0", "1GB"):
        assert nproc(config, tmp_path / limit, 2, sync__codec="onebit", sync__min_bytes=limit).returncode == 0
        sent[limit] = json.loads((tmp_path / limit / "summary.json").read_text())["bytes_sent_per_step"]
    assert sent["0"] * 8 < sent["1GB"]


@pytest.mark.parametrize("sets,part", [
    ({"sync__codec": "topk", "sync__strategy": "two_phase"}, "sync.strategy"),
    ({"sync__codec": "dgc", "sync__strategy": "ring"}, "sync.strategy"),
    ({"sync__codec": "powersgd", "sync__strategy": "gather"}, "sync.strategy"),
    ({"sync__codec": "dither", "sync__codec_options": "{range='max'}", "sync__error_feedback": "true"}, "sync.error_feedback"),
    ({"sync__codec": "int8", "sync__codec_options": "{blocks=128}"}, "blocks"),
])
def test_pairs_without_meaning_are_refused(tmp_path, text_config, sets, part):
    words = pairs({key.replace("__", "."): value for key, value in sets.items()})
    assert_refused(trireme("train", text_config(), "--out", tmp_path / "run", *words), 2, part)
