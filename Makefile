# make demo | test | compat | plain | thorough | setup. PYTHON=python3.12 make ... chooses the interpreter of a new .venv.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test compat plain sabotage audit lock setup lint unit thorough clean
.DEFAULT_GOAL := test

demo: setup
	@$(BIN)/simgap demo || [ $$? -eq 1 ]  # 1: done, and the loop missed; the page says how

# Once installed, about five minutes on two cores.
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

# Everything at the version and with the hash of constraints.txt, pip itself first: an old one reads no hashes there.
# torch on its own before the rest: the long download is then kept when a later package fails. A folder that pip is told of
# (PIP_FIND_LINKS) may hold PyTorch's own build without CUDA for Linux and CPython 3.11: that one is taken, and is smaller.
TORCH_CPU := sha256:6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "simgap needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { echo "$(PYTHON) cannot make a venv; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@sed -n '/^pip==/,/[^\\]$$/p' constraints.txt >.venv/pip.txt
	$(BIN)/python -m pip install --quiet --requirement .venv/pip.txt
	@printf '%s --hash=$(TORCH_CPU)\n' "$$(grep -o '^torch==[^ ;]*' constraints.txt)" >.venv/torch.txt
	$(BIN)/python -m pip install --quiet --no-index --no-deps --requirement .venv/torch.txt 2>/dev/null || \
	  $(PIP) "$$(grep -o '^torch==[^ ;]*' constraints.txt)"
	$(PIP) $$($(BIN)/python tests/direct_dependencies.py)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# constraints.txt anew from pyproject.toml, for every platform and Python: versions stay where they still fit (UPGRADE=--upgrade
# lifts them). torch's build without CUDA is added.
lock:
	@test -x .venv-lock/bin/uv || { $(PYTHON) -m venv .venv-lock && .venv-lock/bin/pip install --quiet uv; }
	sed -i '/$(TORCH_CPU)/d' constraints.txt
	.venv-lock/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --quiet $(UPGRADE) --output-file constraints.txt
	sed -i '/^torch==/a\    --hash=$(TORCH_CPU) \\' constraints.txt

# Known vulnerabilities of the pinned versions, asked of the package index; what cannot be asked fails, and is no pass.
audit:
	@test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit && .venv-audit/bin/pip install --quiet pip-audit; }
	.venv-audit/bin/pip-audit --strict --no-deps --disable-pip --require-hashes --requirement constraints.txt

# One planted fault at a time, in a copy: do the tests that reach it notice? FAULTS=20 SEED=3 make sabotage; a minute a fault.
FAULTS ?= 60
SEED ?= 0
sabotage: setup
	$(BIN)/python tests/sabotage/run.py -n $(FAULTS) --seed $(SEED)

# Everything that takes minutes, and a longer look for counterexamples.
thorough: setup
	$(BIN)/python -m pytest -n 2 --dist loadscope -m "slow or not slow" --hypothesis-profile thorough

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
