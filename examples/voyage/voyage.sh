#!/usr/bin/env bash
# The voyage: one model travels through all parts. Today: export -> search -> train (plain, then 16-bit
# gradients) -> report -> serve.
#   examples/voyage/voyage.sh [--short] [--out DIR]
# Two local processes over a link that Trireme itself holds to 100 Mbit/s, so that it runs anywhere without privileges.
set -euo pipefail
cd "$(dirname "$0")/../.."
steps=200 out=runs/voyage probe_minutes=0.2
while [ $# -gt 0 ]; do
  case $1 in
    --short) steps=12 probe_minutes=0.05; shift ;;
    --out) out=$2; shift 2 ;;
    *) echo "usage: $0 [--short] [--out DIR]" >&2; exit 2 ;;
  esac
done
trireme=${TRIREME_BIN:-build/release/trireme}
python=.venv/bin/python
rm -rf "$out/plain" "$out/bf16" "$out"/search.*   # train refuses the folder of an earlier run
mkdir -p "$out"

echo "== export: a byte-level GPT from PyTorch to model.pt2"
PYTHONPATH=python $python -m trireme.export gpt --layers 4 --width 128 --heads 4 --context 128 --seed 0 -o "$out/gpt.pt2"

echo "== search: one or two processes, behind a slow or a fast link? Example prices; probes are real steps of this training"
printf 'instance,usd_per_hour,max_nodes\n100mbit,1,2\n1gbit,1.5,2\n' >"$out/search.offers.csv"
cat >"$out/search.toml" <<TOML
[job]
samples = 200000
[goal]
scenario = "fastest"
[space]
offers = "search.offers.csv"
nodes = [1, 2]
[probe]
kind = "trireme"
config = "$PWD/examples/voyage/train.toml"
global_batch = 16
sets = ["model.graph='$(realpath "$out")/gpt.pt2'", "transport.rate_limit={instance}"]
minutes = "$probe_minutes"
longest = 8
TOML
"$trireme" search "$out/search.toml"

echo "== train: Moby-Dick on 2 processes, 100 Mbit/s between them, float32 gradients"
"$trireme" train examples/voyage/train.toml --nproc 2 --out "$out/plain" \
  --set "model.graph='$out/gpt.pt2'" --set train.steps=$steps

echo "== the same with 16-bit gradients on the wire"
"$trireme" train examples/voyage/train.toml --nproc 2 --out "$out/bf16" \
  --set "model.graph='$out/gpt.pt2'" --set train.steps=$steps --set precision.reduce=bf16

echo "== report"
"$trireme" report "$out/plain" "$out/bf16" -o "$out/report.html"
$python tools/result_table.py "$out/plain" "$out/bf16"
echo "== serve: the weights just trained, behind the Open Inference Protocol, under a small load"
PYTHONPATH=python $python -m trireme.export gpt --layers 4 --width 128 --heads 4 --context 128 --inference -o "$out/serving.pt2"
cat >"$out/serve.toml" <<TOML
[server]
http_port = 0
grpc_port = -1
[[model]]
name = "gpt"
path = "$out/serving.pt2"
weights = "$out/bf16/checkpoints/step_$steps"
TOML
"$trireme" serve "$out/serve.toml" 2>"$out/serve.log" &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
until grep -q "info: ready" "$out/serve.log"; do
  kill -0 $server 2>/dev/null || { cat "$out/serve.log" >&2; exit 1; }
  sleep 0.2
done
port=$(sed -n 's/.*HTTP on 127\.0\.0\.1:\([0-9]*\).*/\1/p' "$out/serve.log")
"$trireme" load --url "http://127.0.0.1:$port" --model gpt --rate 10 --duration 3s
$python examples/voyage/ask.py "http://127.0.0.1:$port" "Call me Ishmael. Some years ago"
kill -TERM $server
wait $server
trap - EXIT

echo
echo "result: $out/bf16/summary.json   weights: $out/bf16/checkpoints/   report: $out/report.html"
