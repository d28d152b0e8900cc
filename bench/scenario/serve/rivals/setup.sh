#!/usr/bin/env bash
# A venv for the rivals under bench/out, apart from .venv, whose torch it borrows. Those that do not install are named and left out.
set -uo pipefail
cd "$(dirname "$0")/../../../.." || exit 1
venv=bench/out/serve-venv
mkdir -p bench/out
# Debian's Python: PyTriton carries an interpreter of its own, which does not read the library of every other 3.11.
[ -x $venv/bin/python ] || /usr/bin/python3 -m venv $venv
site=$($venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/zz-borrowed.pth"
for package in uvicorn httptools uvloop onnxruntime openvino mosec litserve onnx onnxscript nvidia-pytriton; do
  $venv/bin/python -m pip install -q --disable-pip-version-check "$package" >/dev/null 2>&1 || echo "setup: $package does not install here"
done
