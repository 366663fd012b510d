#!/usr/bin/env bash
# Both ways between simgap and lerobot 0.6.1: it loads, trains on and edits what we write; we read what it records and what it
# makes of ours, and run policies that it saved as it runs them itself. lerobot lives in its own Python 3.12 environment (about 5 GB, minutes to install).
set -euo pipefail
cd "$(dirname "$0")/../.."

LEROBOT_VERSION=0.6.1
python312() {
  for candidate in ${PYTHON312:-} python3.12 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12.*/bin/python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then echo "$candidate"; return; fi
  done
  echo "no Python 3.12 found; install one or set PYTHON312" >&2
  return 1
}

if ! .venv-compat/bin/python -c "from importlib.metadata import version; assert version('lerobot') == '$LEROBOT_VERSION' and version('diffusers')" 2>/dev/null; then
  [ -x .venv-compat/bin/python ] || "$(python312)" -m venv .venv-compat
  .venv-compat/bin/pip install -q "lerobot[dataset,diffusion]==$LEROBOT_VERSION"
fi

work="$(mktemp -d)"
trap "rm -rf $work" EXIT
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 HF_HOME="$work/hf" HF_LEROBOT_HOME="$work/hf/lerobot" TOKENIZERS_PARALLELISM=false HF_DATASETS_DISABLE_PROGRESS_BARS=1 TQDM_DISABLE=1
ours=.venv/bin/python
theirs() {  # without the long traceback of a video library that is not there, but with that of a failure
  if ! .venv-compat/bin/python "$@" 2>"$work/log"; then tail -n 40 "$work/log" >&2; return 1; fi
  grep '^ok' "$work/log" >&2
}

.venv/bin/simgap generate arm-pick -n 3 --out "$work/generated" --quiet >/dev/null
"$ours" tests/compat/make_dataset.py "$work"
theirs tests/compat/check_lerobot.py "$work" h264 av1 png generated tub car hdf5
theirs tests/compat/train_lerobot.py "$work"/{h264,av1,png,generated,car,hdf5}
theirs tests/compat/edit_lerobot.py "$work" h264 av1 png
theirs tests/compat/write_lerobot.py "$work"
"$ours" tests/compat/check_ours.py "$work"
theirs tests/compat/check_lerobot.py "$work" both

"$ours" tests/compat/check_bridge.py observations "$work"
theirs tests/compat/build_policies.py "$work"
"$ours" tests/compat/check_bridge.py check "$work"

served=.venv-compat/served  # the wheels of two peers, without what they depend on
if [ ! -d "$served/open" ]; then
  .venv/bin/python -m pip download -q --no-deps vla-eval==0.8.0 openpi-client==0.1.2 -d "$served"
  mkdir "$served/part"
  for wheel in "$served"/*.whl; do "$ours" -m zipfile -e "$wheel" "$served/part"; done
  mv "$served/part" "$served/open"
fi
PYTHONPATH="$served/open" "$ours" tests/compat/check_served.py
