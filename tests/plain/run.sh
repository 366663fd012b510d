#!/usr/bin/env bash
# The wheel as a user gets it: built from this tree, installed into a fresh environment with the dependencies that pip
# takes by default, and used from an empty folder: generate, train with the pixel probe, select, screen, trial, quick demo.
# Nothing is pinned here: what breaks with a new release of a dependency breaks here first.
set -euo pipefail
cd "$(dirname "$0")/../.."

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
{ "$work/venv/bin/pip" wheel --no-deps --wheel-dir "$work/wheel" . && "$work/venv/bin/pip" install "$work"/wheel/simgap-*.whl; } >"$work/log" 2>&1 ||
  { tail -n 20 "$work/log" >&2; echo "plain: the wheel cannot be built and installed" >&2; exit 1; }
cd "$work" # the source is not importable from here
export PATH="$work/venv/bin:$PATH"
unset PYTHONPATH
python - <<'PYTHON'
import sys
from importlib.metadata import PackageNotFoundError, version

def found(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"

names = ("simgap", "torch", "triton", "mujoco", "numpy", "scipy", "pyarrow", "gymnasium", "av", "pillow")
print("python", sys.version.split()[0], *(f"{name} {found(name)}" for name in names))
PYTHON

step() { # a finding (exit code 1) is a result; a crash or a refusal is not
  echo "plain: simgap $*"
  local code=0
  simgap "$@" --quiet >"$work/log" 2>&1 || code=$?
  if ((code > 1)); then tail -n 20 "$work/log" >&2; echo "plain: simgap $1 ended with exit code $code" >&2; exit 1; fi
}

step generate arm-pick -n 20 --size 48 --out data
step train data --cameras front --steps 60 --keep 2 --out policy # one camera: few enough pixels for the probe to be trained
ls data/cache/pixels-*.json >/dev/null # and it was
step select policy -n 16 --report-n 16
step screen policy -n 16
step trial policy -n 2
step demo --quick --out demo --cache cache
test -s demo/report.html
echo "plain: done"
