#!/usr/bin/env bash
# attention_check_test.sh PROGRAM: `cuda_attention_bench --check` on an emulated GPU, which has our kernels and no cuDNN.
set -u
source "$(cd "$(dirname "${BASH_SOURCE[0]}")/../../cli" && pwd)/expect.sh"
expect 1 "^NOT all agree" "$1" --check 16
[ "$(grep -cE "own, (deterministic|in any order): off by" stdout)" -eq 8 ] || fail "not four shapes of our own: $(cat stdout)"
[ "$(grep -c "cuDNN, .*: REFUSED: " stdout)" -eq 6 ] || fail "what is refused does not fail: $(cat stdout)"
finish
