#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make a virtual environment with all packages of another one, and DataHub's client. The client
# and three of its dependencies are published as source only, one of them in C: `make test` and
# `make demo` do not need them.
#
# Usage: make_datahub_venv.sh FOLDER OTHER CONSTRAINTS
set -eu

venv=$1
other=$2
constraints=$3

if ! command -v "${CC:-cc}" >/dev/null 2>&1; then
  echo "DataHub's client is built with a C compiler: install one (Debian: apt-get install gcc libc6-dev python3-dev) and try again." >&2
  exit 1
fi
if ! "$other/bin/python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'; then
  echo "DataHub's client is built with Python's headers: install them (Debian: apt-get install python3-dev) and try again." >&2
  exit 1
fi

echo "changelane: making $venv with DataHub's client (once, about a minute)"
"$other/bin/python" -m venv --clear "$venv"
purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
site=$("$venv/bin/python" -c "$purelib")
# addsitedir, because editable packages are .pth files there
echo "import site; site.addsitedir('$("$other/bin/python" -c "$purelib")')" >"$site/changelane_other.pth"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$constraints" \
  "changelane[datahub]"
