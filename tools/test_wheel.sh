#!/usr/bin/env bash
# Builds the wheel as `pip install .` does and uses it where torch is not installed: trireme.stats works there, and the
# program says what it needs. Minutes the first time (the program is compiled); `make test-wheel` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Against the torch of .venv, whose build requirements are there already.
.venv/bin/python -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps -w "$folder" \
  -C build-dir=build/wheel .
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps "$folder"/trireme-*.whl
mapfile -t pinned < <(grep -E '^(numpy|scikit-learn|scipy)==' python/requirements.txt)
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check "${pinned[@]}"

cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import importlib.util, pathlib, sysconfig

import numpy as np

assert importlib.util.find_spec("torch") is None
import trireme.stats as stats

assert pathlib.Path(stats.__file__).is_relative_to(sysconfig.get_path("purelib"))
X = np.random.default_rng(0).standard_normal((4000, 30))
fit = stats.DitheredCovariance(gamma=4.0, random_state=0).fit(X)
assert np.abs(fit.covariance_ - np.eye(30)).max() < 0.5
stats.OneBitLasso(gamma=4.0, alpha=0.1, random_state=0).fit(X, X[:, 0])
stats.OneBitMean(random_state=0).fit(X)
at = np.random.default_rng(1).integers(0, 9, (500, 2))
stats.OneBitMatrixCompletion(gamma=1.0, bound=1.0, random_state=0).fit(at, np.full(500, 0.5), (9, 9))
PY
said=$("$folder/venv/bin/trireme" --help 2>&1) && { echo "wheel: the program ran without torch" >&2; exit 1; }
grep -q "torch is not installed" <<<"$said" || { echo "wheel: without torch the program said: $said" >&2; exit 1; }
echo "wheel: trireme.stats works where torch is not installed"
