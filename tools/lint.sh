#!/usr/bin/env bash
# Format, layers, spelling, shell. `tools/lint.sh --fix` rewrites the format; `--tidy [files]` adds clang-tidy.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
mapfile -t cxx < <(git ls-files '*.cc' '*.h')
mapfile -t shell < <(git ls-files '*.sh' '.ci/run')
rc=0
if [ "${1:-}" = --fix ]; then
  clang-format-14 -i "${cxx[@]}"
else
  clang-format-14 --dry-run --Werror "${cxx[@]}" 2>&1 | grep -E 'error|warning' | head -20
  [ "${PIPESTATUS[0]}" -eq 0 ] || { echo "lint: run tools/lint.sh --fix"; rc=1; }
fi
python3 tools/check_layers.py || rc=1
mapfile -t text < <(git ls-files '*.md' '*.h' '*.cc' '*.py' '*.sh')
codespell -q 3 -L crate,nd,ans,te,fo,inout "${text[@]}" || rc=1
shellcheck -S warning "${shell[@]}" || rc=1
if [ "${1:-}" = --tidy ]; then
  shift
  [ $# -gt 0 ] || mapfile -t args < <(git ls-files 'src/*.cc' | grep -v _torch)
  clang-tidy-14 -p build/dev --quiet "${@:-${args[@]}}" || rc=1
fi
exit $rc
