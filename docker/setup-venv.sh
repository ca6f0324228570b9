#!/bin/sh
# Makes the virtual environment of this project from requirements.lock.
#   docker/setup-venv.sh PYTHON VENV
set -eu
python=$1 venv=$2

fail() { printf '%s\n' "$@" >&2; exit 1; }

command -v "$python" >/dev/null 2>&1 || fail \
    "No '$python' on this machine." \
    "Install Python 3.11, 3.12 or 3.13, or name one: make lab PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || fail \
    "$("$python" --version) can't run the labs: they need Python 3.11, 3.12 or 3.13." \
    "Name another one: make lab PYTHON=python3.12"
"$python" -c 'import ensurepip, venv' 2>/dev/null || fail \
    "$python has no 'venv' module, which the set-up needs." \
    "On Debian and Ubuntu: sudo apt-get install python3-venv"

if [ ! -x "$venv/bin/python" ]; then
    echo "Making the virtual environment $venv ..."
    "$python" -m venv "$venv"
fi
echo "Installing the versions of requirements.lock (the first time this takes some minutes) ..."
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements.lock || fail \
    "The packages could not be installed: pip's message above says why." \
    "No network? Try again where PyPI can be reached. Disk full? The environment needs about 3 GB (8 GB with CUDA)." \
    "Nothing is lost: run the same command again and it goes on from there."
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
echo "Done."
