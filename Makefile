# make demo | test | compat | plain | thorough | setup. PYTHON=python3.12 make ... chooses the interpreter of a new .venv.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test compat plain sabotage audit setup lint unit thorough clean
.DEFAULT_GOAL := test

demo: setup
	@$(BIN)/simgap demo || [ $$? -eq 1 ]  # 1: done, and the loop missed; the page says how

# Once installed, everything below stays under three minutes on two cores.
test: setup lint unit

compat: setup
	bash tests/compat/run.sh

# The wheel as a user gets it: a fresh environment and whatever pip takes by default (torch with CUDA: gigabytes).
plain:
	PYTHON=$(PYTHON) bash tests/plain/run.sh

setup: $(STAMP)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: setup
	$(BIN)/python -m pytest -n 2 --dist loadscope

# torch on its own first: the long download is then kept when a later package fails,
# and pip settles the rest against the build that is already there.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "simgap needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { echo "$(PYTHON) cannot make a venv; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

# Known vulnerabilities of the pinned versions, asked of the package index; what cannot be asked fails, and is no pass.
audit:
	@test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit && .venv-audit/bin/pip install --quiet pip-audit; }
	.venv-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

# One planted fault at a time: do the tests of its room notice? FAULTS=20 SEED=3 make sabotage; hours for many.
FAULTS ?= 60
SEED ?= 0
sabotage: setup
	$(BIN)/python tests/sabotage/run.py -n $(FAULTS) --seed $(SEED)

# Everything that takes minutes, and a longer look for counterexamples.
thorough: setup
	$(BIN)/python -m pytest -n 2 --dist loadscope -m "slow or not slow" --hypothesis-profile thorough

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
