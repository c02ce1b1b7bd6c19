# What is slow, and what is wrong in ways that results do not show; to be sourced.

# slowest_kernels MODEL: Nsight Compute on the first launches of a step, the six kernels that take longest
slowest_kernels() {
  command -v ncu >/dev/null || { echo "skipped: no ncu"; return 77; }
  local plan=$results/$1.no-deterministic.bf16.plan.json
  ncu --section SpeedOfLight --launch-count 250 --target-processes all --csv --log-file "$results/ncu.csv" \
    "$meshplan" run "$plan" --steps 1 --no-graphs --any-placement --device cuda --json >/dev/null
  "$PYTHON" "$sheet/ncu_table.py" "$results/ncu.csv" 6
}

# sanitize TOOL CASES...: kernel tests of these tags
sanitize() {
  command -v compute-sanitizer >/dev/null || { echo "skipped: no compute-sanitizer"; return 77; }
  wrap="compute-sanitizer --tool $1 --error-exitcode 9" kernel_tests "$2"
}
