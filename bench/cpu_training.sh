#!/usr/bin/env bash
# Training throughput of GPT-2 124M (B 4, T 64, one AdamW step with clipping) beside PyTorch: the same model, start,
# batch and number of threads, in turns in one run. Machines are noisy: the ratio is the median of the pairs' ratios.
#   bench/cpu_training.sh [rounds]      default: 5; the comparison needs python3-torch and libopenblas0-openmp
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ -n "${MESHPLAN_SKIP_SETUP:-}" ] || "$root/scripts/setup.sh" release meshplan
meshplan=$root/build/release/cli/meshplan
rounds=${1:-5}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT

/usr/bin/python3 "$root/bench/random_tokens.py" "$work/tokens.u16" 50257 60000

plan() { # plan PRECISION
  "$meshplan" simulate --model gpt2-124m --cluster cpu-host --gpus 1 --global-batch 4 --micro-batch 4 --seq-len 64 \
    --precision "$1" --out "$work/$1.json" >/dev/null
}
plan fp32; plan bf16

ours() { # ours THREADS PRECISION -> tokens/s
  "$meshplan" run "$work/$2.json" --steps 6 --data "$work/tokens.u16" --threads-per-rank "$1" --no-binding \
    --any-placement --json | awk -F'[:,]' '/"tokens_per_s"/ {printf "%.2f", $2}'
}
# The malloc settings keep pages; without them PyTorch loses a quarter.
theirs() { # theirs THREADS [--bf16]
  MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 MALLOC_TOP_PAD_=268435456 OMP_NUM_THREADS=$1 \
    /usr/bin/python3 "$root/bench/pytorch_step.py" --threads "$1" "${@:2}"
}
median() { sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

if ! /usr/bin/python3 -c 'import torch' 2>/dev/null; then
  echo "no PyTorch here (apt-get install python3-torch): our figures only"
  theirs() { echo nan; }
else
  theirs 1 --describe --steps 2  # also ends here if PyTorch would multiply with the reference BLAS
fi
echo "$(lscpu | sed -n 's/^Model name: *//p'), $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
printf '%-8s %-6s %14s %14s %8s %16s\n' threads dtype "meshplan tok/s" "PyTorch tok/s" ratio "(its range)"
for threads in $(printf '1\n%d\n' "$(nproc)" | sort -u); do
  for precision in fp32 bf16; do
    flag=$([ "$precision" = bf16 ] && echo --bf16 || true)
    : >"$work/pairs"
    for _ in $(seq "$rounds"); do
      a=$(ours "$threads" "$precision")
      b=$(theirs "$threads" $flag)
      awk -v a="$a" -v b="$b" 'BEGIN {print a, b, (b + 0 > 0) ? a / b : "nan"}' >>"$work/pairs"
    done
    column() { awk -v i="$1" '{print $i}' "$work/pairs" | sort -g; }
    printf '%-8s %-6s %14s %14s %8.2f %16s\n' "$threads" "$precision" "$(column 1 | median)" "$(column 2 | median)" \
      "$(column 3 | median)" "$(printf '%.2f to %.2f' "$(column 3 | head -1)" "$(column 3 | tail -1)")"
  done
done
