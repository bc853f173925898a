# Two commands do everything on a machine with Python 3.11+, make and a package registry: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q
# Where packages come from is each machine's own affair, and uv writes it into a lock file only if it is told to.
LOCK   := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -q

.PHONY: help install demo test quick check docs torture fuzz mutate mutants spark-matrix bench lock clean
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed ## the package and what it needs, into .venv

demo: $(VENV)/.spark ## install, then write, look up, compare and attack a million rows, in Spark too
	$(BIN)/bloomseal demo

test: $(VENV)/.dev check docs ## all tests but the long ones; the site is built, too
	$(BIN)/python -m pytest -n 2 --dist loadfile

QUICK := core encryption thrift sbbf format policy storage read write test_public_names.py test_writers.py
quick: $(VENV)/.dev check ## what to run before a commit: style, types, and the tests of what all else leans on
	$(BIN)/python -m pytest -q -n 2 --dist loadfile $(addprefix tests/,$(QUICK))

check: $(VENV)/.dev ## style, types and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.docs ## the documentation site and the manual pages, into build; a broken link fails
	$(BIN)/python tools/commands.py page docs/commands.md
	$(BIN)/python tools/commands.py man build/man/man1
	$(BIN)/zensical build --clean --strict

torture: $(VENV)/.dev ## the whole interop matrix and long crash runs
	$(BIN)/python -m pytest -n 2 --dist loadfile -m ""

fuzz: $(VENV)/.fuzz ## coverage-guided fuzzing of every parser: make fuzz FUZZ="--seconds 600 where csv"
	$(BIN)/python tests/fuzz/cover.py $(FUZZ)

mutate: $(VENV)/.dev ## mutants of files and of what stands beside them: make mutate MUTATE="--state ~/mutants.json --seconds 3600"
	$(BIN)/python tests/tamper/run.py $(MUTATE)

mutants: $(VENV)/.mutants ## mutation testing of the most dangerous modules: make mutants MUTANTS="encryption/cipher.py"
	$(BIN)/python tests/mutants.py $(MUTANTS)

spark-matrix: $(VENV)/.installed ## the most important ways through Spark 4.0 to 4.3, Java 17, 21, 25: make spark-matrix SPARK="pyspark==4.1.4"
	$(BIN)/python tests/spark/matrix.py $(SPARK)

bench: $(VENV)/.bench ## ratios against peers, in one run: make bench BENCH="--size small --only write"
	$(BIN)/python -m bench $(BENCH)

lock: $(VENV)/.dev ## resolve the dependencies again, with hashes
	$(BIN)/python -m pip -q install uv
	$(LOCK) pyproject.toml --group build -o requirements/runtime.lock
	$(LOCK) pyproject.toml --group build --extra spark --extra jvm -c requirements/runtime.lock -o requirements/spark.lock
	$(LOCK) pyproject.toml --group dev --extra spark --extra jvm --extra aws --extra vault --extra pkcs11 --extra gcp --extra azure \
	    --extra delta --extra iceberg --extra report -c requirements/spark.lock -o requirements/dev.lock
	$(LOCK) --group bench -c requirements/dev.lock -o requirements/bench.lock
	$(LOCK) --group docs -c requirements/dev.lock -o requirements/docs.lock
	$(LOCK) --group fuzz -o requirements/fuzz.lock
	$(LOCK) --group mutants -c requirements/dev.lock -o requirements/mutants.lock

clean: ## remove what was installed and generated
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache bench/out build docs/commands.md

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python requirements/runtime.lock pyproject.toml
	$(PIP) install --require-hashes -r requirements/runtime.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q src # or each process compiles it anew, where PYTHONDONTWRITEBYTECODE is set
	@touch $@

$(VENV)/.spark: $(VENV)/.installed requirements/spark.lock
	$(PIP) install --require-hashes -r requirements/spark.lock
	@touch $@

$(VENV)/.dev: $(VENV)/.installed requirements/dev.lock
	$(PIP) install --require-hashes -r requirements/dev.lock
	@touch $@

$(VENV)/.bench: $(VENV)/.dev requirements/bench.lock
	$(PIP) install --require-hashes -r requirements/bench.lock
	@touch $@

$(VENV)/.docs: $(VENV)/.installed requirements/docs.lock
	$(PIP) install --require-hashes -r requirements/docs.lock
	@touch $@

$(VENV)/.fuzz: $(VENV)/.dev requirements/fuzz.lock
	$(PIP) install --require-hashes -r requirements/fuzz.lock
	@touch $@

$(VENV)/.mutants: $(VENV)/.dev requirements/mutants.lock
	$(PIP) install --require-hashes -r requirements/mutants.lock
	@touch $@
