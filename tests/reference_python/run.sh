#!/usr/bin/env bash
# Runs a script of this folder with a Python that has PyTorch; 77 (skipped) where there is none.
# Usage: run.sh SCRIPT ARGUMENTS...
here=$(dirname "$0")
script=$here/$1
shift
for python in python3 /usr/bin/python3; do
  "$python" -c "import torch, numpy" 2>/dev/null && exec "$python" -B "$script" "$@"
done
echo "skipped: no Python with PyTorch and NumPy here; install python3-torch python3-numpy"
exit 77
