#!/usr/bin/env bash
# Debian packages and .venv, from the pinned lists; safe to run twice, silent when nothing is to do, asks nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=$(sed 's/#.*//' tools/debian-packages.txt | awk 'NF {print $1}')
missing=()
for p in $packages; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
  root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: needs root (or sudo) to install: ${missing[*]}" >&2; exit 2; }
    root=(sudo)
  fi
  echo "setup: installing ${#missing[@]} Debian packages"
  "${root[@]}" apt-get update -q >/dev/null
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
fi

torch=$(awk '$1 == "tested" {print $2}' python/torch-version.txt)
want=$( (echo "torch==$torch"; cat python/requirements.txt) | sha256sum | cut -d' ' -f1)
if [ "$(cat .venv/.requirements 2>/dev/null)" != "$want" ]; then
  echo "setup: Python environment .venv (torch $torch)"
  [ -x .venv/bin/python ] || python3 -m venv .venv
  .venv/bin/python -m pip install -q --disable-pip-version-check "torch==$torch"
  .venv/bin/python -m pip install -q --disable-pip-version-check -r python/requirements.txt
  echo "$want" >.venv/.requirements
fi
# The package itself is used from the tree, so that an edit needs no reinstall.
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$PWD/python" >"$site/trireme-in-tree.pth"
