# Two commands do everything on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := .venv-peers
TEXTS ?=
STS ?=
CORPUS ?=
# Tests of jobs mostly wait for processes to start, so two files run at a time. The file is the
# unit: its tests share a connection to Ray and what its fixtures made. A process that dies ends the
# run: started again, it would have its files waited for in vain.
TWO := -n 2 --dist loadfile --max-worker-restart 0

.DEFAULT_GOAL := help
.PHONY: help install demo test check reference chaos soak wheel clean peers browser
.PHONY: bench bench-peers bench-embed bench-requests bench-feed bench-static bench-families bench-train bench-paper bench-scale bench-index bench-duplicates bench-kill pictures

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)  ## create .venv and install the tested versions

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo \
	  "error: $(PYTHON) is older than 3.11; remedy: make install PYTHON=/path/to/python3.11" >&2; exit 1; }
	@command -v $${CXX:-c++} >/dev/null 2>&1 || command -v g++ >/dev/null 2>&1 || { echo \
	  "error: no C++ compiler found and hnswlib is built from source; remedy: install one (Debian: apt-get install g++, Fedora: dnf install gcc-c++, macOS: xcode-select --install) and repeat" >&2; exit 1; }
	@echo "installing into $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[demo,dev]'
	@touch $(STAMP)

demo: $(STAMP)  ## the whole flow on this machine's Python docstrings; SMALL=1 for two minutes
	@$(BIN)/sbert demo $(if $(SMALL),--small)

quick: $(STAMP)  ## a minute: formatting, lint, types, import rules, every test without Ray
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/pytest -q $(TWO) -m 'not ray and not slow and not long'

test: $(STAMP)  ## a quarter of an hour: every test but the long forms of `make chaos`
	$(BIN)/pytest $(TWO) -m 'not long'

check: $(STAMP)  ## formatting, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_layers.py

reference: $(STAMP)  ## write docs/reference.md from the options of the commands
	$(BIN)/python -m pipelines.cli.reference > docs/reference.md

browser:  ## install Chromium for the tests of the report (Debian and Ubuntu)
	@command -v chromium chromedriver >/dev/null || \
	  (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver)

bench: $(STAMP)  ## encoder speed against sentence-transformers; TEXTS=file.parquet for your own
	$(BIN)/python tests/bench/encode.py $(if $(TEXTS),--texts $(TEXTS))

peers: $(STAMP)
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip install -qq --disable-pip-version-check \
	  -c constraints.txt -e '.[demo,dev]' onnx onnxruntime openvino accelerate datasets \
	  nncf torchao semhash datasketch

bench-peers: peers  ## the same with ONNX Runtime and OpenVINO; STS=folder CORPUS=file for number formats
	$(PEERS)/bin/python tests/bench/encode.py $(if $(TEXTS),--texts $(TEXTS))
	$(if $(STS),$(PEERS)/bin/python tests/bench/formats.py --sts $(STS) \
	  $(if $(CORPUS),--corpus $(CORPUS)) $(if $(TEXTS),--texts $(TEXTS)))

bench-embed: $(STAMP)  ## the embed job against the encoder alone and a pipeline written by hand
	$(BIN)/python tests/bench/embed.py $(if $(TEXTS),--texts $(TEXTS))

bench-requests: $(STAMP)  ## store requests of the embed job as its rows grow: the exponent
	$(BIN)/python tests/bench/store_requests.py

bench-feed: $(STAMP)  ## CPU time around a forward pass that costs nothing; TEXTS=file.parquet
	$(BIN)/python tests/bench/feed.py $(if $(TEXTS),--texts $(TEXTS))

bench-static: $(STAMP)  ## a static model against its bare tokenizer; FOLDER=model
	$(BIN)/python tests/bench/static.py $(FOLDER) $(if $(TEXTS),--texts $(TEXTS))

bench-families: $(STAMP)  ## model families: layout, exactness, loss of each number format
	$(BIN)/python tests/bench/families.py

bench-train: peers  ## fine-tuning against sentence-transformers' trainer; PAIRS=scored.parquet
	$(PEERS)/bin/python tests/bench/train.py --pairs $(PAIRS)

bench-paper: $(STAMP)  ## a table of the paper; TABLE=1..7 DATA=folder BASE=model
	$(BIN)/python tests/bench/paper.py --table $(TABLE) --data $(DATA) --base $(or $(BASE),demo)

bench-scale: $(STAMP)  ## memory of the embed job at 200k and 2M rows, planning at 1M and 20M
	$(BIN)/python tests/bench/scale.py
	$(BIN)/python tests/bench/scale.py --plan --rows 1000000 20000000

bench-index: $(STAMP)  ## indexes against hnswlib and FAISS called directly; VECTORS=artifact
	$(BIN)/python tests/bench/index.py build $(if $(VECTORS),--vectors $(VECTORS))
	$(BIN)/python tests/bench/index.py memory
	$(BIN)/python tests/bench/index.py latency

bench-duplicates: peers  ## pairs and clusters beside peers; VECTORS=artifact DATA=labelled sets
	for part in join growth million update; do \
	  $(PEERS)/bin/python tests/bench/duplicates.py $$part --vectors $(VECTORS) || exit 1; done
	$(PEERS)/bin/python tests/bench/duplicates.py leaders
	$(if $(DATA),$(PEERS)/bin/python tests/bench/duplicates.py quality --data $(DATA))

pictures: $(STAMP) browser  ## pictures of a report for the README; PAGE=report.html
	$(BIN)/python tests/bench/pictures.py $(or $(PAGE),demo-out/run/report.html)

bench-kill: $(STAMP)  ## a transcript: kill -9 in the middle of embed, the same bytes in the end
	$(BIN)/python tests/bench/killed.py

chaos: $(STAMP)  ## kills at random moments, faults of stores, 2,000 broken inputs, 500 random edits
	SBERT_CHAOS_KILLS=20 SBERT_CHAOS_ROUNDS=4 SBERT_FUZZ_CASES=2000 SBERT_UPDATE_STEPS=500 \
	  $(BIN)/pytest -s tests/chaos
	$(BIN)/pytest -m long tests/pipelines

soak: $(STAMP)  ## half an hour of embed in a loop: nothing may grow
	$(BIN)/python tests/chaos/soak.py $(if $(SECONDS),--seconds $(SECONDS))

wheel: $(STAMP)  ## build the wheel, install it in a clean environment, run it from there
	@rm -rf dist build/wheel-check
	$(BIN)/python -m build --wheel --outdir dist .
	$(PYTHON) -m venv build/wheel-check
	build/wheel-check/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt dist/*.whl
	cd build && wheel-check/bin/sbert --help
	@rm -rf build/wheel-check

clean:  ## remove what demo, bench and builds left
	rm -rf demo-out bench-out build dist
