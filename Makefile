# make             set up (packages, .venv) and build build/release/trireme
# make quickstart  the above, then train a real model plain and compressed on two local processes
# make test        the above, then every test; ends with "N passed, N failed"
# make fuzz        what reads from connections, for 60 s (FUZZ_SECONDS) with libFuzzer
# make bench-serve ours beside other model servers (a venv for them under bench/out)
# make bench-search deployment searches over measured tables (BoTorch goes to bench/out)
# make bench-ddp   ours beside PyTorch DDP (needs root for network namespaces)
# make bench-transport  our wires beside gloo and Open MPI (likewise)
# make bench-stats one-bit statistics beside NumPy, then their reference tables
# make test-wheel  the wheel, used where torch is not installed
PY := .venv/bin/python
BUILD ?= build/release

.PHONY: all setup build quickstart test lint fuzz bench-ddp bench-transport bench-serve test-cuda-wheel bench-search bench-stats test-wheel clean
all: build

setup:
	@tools/setup.sh

build: setup
	@mkdir -p build && cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build --preset release
	@ln -sfn "$(CURDIR)/$(BUILD)/trireme" .venv/bin/trireme

quickstart: build
	@examples/voyage/voyage.sh

test: build
	@$(PY) tools/run_tests.py

lint: setup
	@tools/lint.sh

FUZZ_SECONDS ?= 60
fuzz: setup
	@mkdir -p build/fuzz-corpus && cmake --preset fuzz >build/configure-fuzz.log 2>&1 || { cat build/configure-fuzz.log; exit 1; }
	@cmake --build build/fuzz --target transport_fuzz
	@cd build && fuzz/transport_fuzz -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -print_final_stats=1 fuzz-corpus ../tests/fuzz/corpus/transport

bench-ddp: build
	@$(PY) bench/bench_ddp.py

bench-serve: build
	@bench/scenario/serve/rivals/setup.sh
	@$(PY) bench/scenario/serve/bench_serve.py

bench-search: build
	@$(PY) -m pip install -q --no-deps --target bench/out/botorch -r bench/scenario/search/requirements.txt
	@PYTHONPATH=bench/out/botorch $(PY) bench/scenario/search/bench_search.py

bench-stats: build
	@$(PY) bench/scenario/stats/bench_stats.py
	@$(PY) bench/scenario/stats/tables.py

bench-transport: build
	@$(PY) bench/bench_transport.py

test-cuda-wheel: setup
	@tools/test_cuda_wheel.sh

test-wheel: setup
	@tools/test_wheel.sh

clean:
	rm -rf build
