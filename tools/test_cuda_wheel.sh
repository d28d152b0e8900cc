#!/usr/bin/env bash
# Configures, compiles and links the program against a CUDA build of torch, without a CUDA toolkit. Needs about 5 GB of
# disk under build/cuda-wheel; what is there already is used again.
#   tools/test_cuda_wheel.sh [TORCH_VERSION]    default: `cuda` in python/torch-version.txt
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-$(awk '$1 == "cuda" {print $2}' python/torch-version.txt)}
folder=build/cuda-wheel/$version
python=.venv/bin/python

if [ ! -e "$folder/torch/lib/libtorch_cuda.so" ]; then
  mkdir -p "$folder"
  echo "cuda-wheel: fetching torch $version"
  $python -m pip download -q --disable-pip-version-check --no-deps -d "$folder" "torch==$version"
  # Headers and libraries alone; the Python half of torch is not looked at.
  $python - "$folder" <<'PY'
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
(wheel,) = folder.glob("torch-*.whl")
with zipfile.ZipFile(wheel) as archive:
    wanted = [n for n in archive.namelist() if n.startswith(("torch/include/", "torch/lib/")) or n == "torch/version.py"]
    archive.extractall(folder, wanted)
wheel.unlink()
PY
fi
[ -e "$folder/torch/lib/libtorch_cuda.so" ] || {
  echo "cuda-wheel: torch $version is a CPU build here: give another version as argument" >&2
  exit 1
}

cmake --preset release -B "$folder/build" -DTRIREME_TORCH_DIR="$PWD/$folder/torch" -DTRIREME_TESTS=OFF
cmake --build "$folder/build" --target trireme
# The CUDA kernels register themselves when their library loads, so it must be among those that the program names.
needed=$(readelf -d "$folder/build/trireme" | awk -F'[][]' '/NEEDED/ {print $2}')
for library in libtorch_cuda.so libc10_cuda.so libtorch_cpu.so; do
  grep -qx "$library" <<<"$needed" || { echo "cuda-wheel: the program does not name $library" >&2; exit 1; }
done
echo "cuda-wheel: the program links against torch $version with CUDA$(command -v nvcc >/dev/null || echo ", without nvcc")"
