#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make or refresh a virtual environment: .venv, which make targets use, or .venv-hudi for Hudi.
#
# Usage: make_venv.sh FOLDER EXTRAS CONSTRAINTS NEWEST
#
# NEWEST is the newest Python that its PySpark supports, as 13 for 3.13.
# PYTHON=... chooses the interpreter; else a supported one on the PATH is used, or a newer one.
set -eu

venv=$1
extras=$2
constraints=$3
newest=$4

stop() {
  echo "$1" >&2
  exit 1
}

# True when $1 runs and is Python 3.$2 to 3.$3.
is_python() {
  "$1" -c "import sys; sys.exit(not (3, $2) <= sys.version_info[:2] <= (3, $3))" >/dev/null 2>&1
}

choose_python() {
  if [ -n "${PYTHON:-}" ]; then
    if is_python "$PYTHON" 11 99; then
      echo "$PYTHON"
    fi
    return
  fi
  # supported versions first, then any newer one
  for name in python3 python3.13 python3.12 python3.11; do
    if is_python "$name" 11 "$newest"; then
      echo "$name"
      return
    fi
  done
  if is_python python3 11 99; then
    echo python3
  fi
}

python=$(choose_python)
if [ -z "$python" ]; then
  found=$("${PYTHON:-python3}" -c 'import platform; print(f", and found Python {platform.python_version()}")' 2>/dev/null) ||
    found=", and found none"
  stop "changelane needs Python 3.11 or newer$found: install it (Debian: apt-get install python3 python3-venv; PYTHON=path chooses one) and try again."
fi
if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
  stop "changelane needs Python's venv module, which $python lacks: install it (Debian: apt-get install python3-venv) and try again."
fi

# Recreate a venv if its interpreter is gone (an upgrade, a moved checkout).
if [ "$("$venv/bin/python" -c 'import sys; print(sys.prefix)' 2>/dev/null)" != "$(pwd -P)/$venv" ]; then
  echo "changelane: making $venv with $("$python" --version)"
  "$python" -m venv --clear "$venv"
fi

echo "changelane: installing its Python packages into $venv (once, about 2 minutes)"
# Wheels only, so that no compiler is needed. PySpark is published as source, but is pure Python;
# it is built with the pinned setuptools, not with the newest version.
install() {
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --constraint "$constraints" --only-binary :all: --no-binary pyspark "$@"
}
install setuptools wheel hatchling
install --no-build-isolation --editable ".[$extras]"
