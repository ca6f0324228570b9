#!/bin/sh
# Writes requirements.lock: every package that the project needs, pinned, without hashes (the CPU and the
# CUDA build of one torch version differ).
#   docker/make-lock.sh PYTHON
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "torch==${TORCH:-2.13.0}" setuptools -e '.[lab,dev]'
{
    echo "# Made by 'make lock'. torch's own CUDA parts are left to torch: they differ between its builds."
    "$work/venv/bin/pip" freeze --all --exclude-editable |
        sed -E 's/\+(cpu|cu[0-9]+)$//' |
        grep -viE '^(pip|nvidia-(cublas|cuda|cudnn|cufft|cufile|curand|cusolver|cusparse|cusparselt|nccl|nvjitlink|nvshmem|nvtx).*|cuda-(bindings|pathfinder|toolkit)|triton)=='
} >requirements.lock
