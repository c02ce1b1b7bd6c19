# rest: the second command of the first loan; to be sourced.

# watched STEP: the command of a step of quick, small enough to be watched by compute-sanitizer; empty: there is none
watched() {
  local name
  case $1 in
    kernel_tests) echo kernel_tests ;;
    graphs_and_none | twenty_times) echo graphs_and_none ;;
    attention_check) echo kernel_tests "[attention]" ;;
    gradients_*_bf16) name=${1#gradients_} && echo certify_one "${name%_bf16}" bf16 ;;
    gradients_*) echo certify_one "${1#gradients_}" fp32 ;;
    bf16_beside_torch | families | *_any_order | *_deterministic) echo certify_one tiny-llama bf16 ;;
    tp_pp | dp_zero | ep | rank_tests | *_by_nccl) echo rank_tests 1 ;;
  esac
}

# watch COMMAND...: its programs under compute-sanitizer, whose own words would be in the way of theirs
watch() {
  local code=0
  rm -f "$results"/sanitizer.*.txt
  wrap="compute-sanitizer --tool memcheck --target-processes all --error-exitcode 9 --log-file $results/sanitizer.%p.txt"
  "$@" || code=$?
  cat "$results"/sanitizer.*.txt 2>/dev/null | tail -n 200 || true
  return $code
}

run_rest() {
  local failed name command
  [ -f "$WORK/quick/steps.tsv" ] || { echo "gpu_check: rest: no run of quick in $WORK" >&2; exit 2; }
  failed=$(awk -F '\t' '$2 == "FAILED" {print $1}' "$WORK/quick/steps.tsv")
  begin_run rest 200 ""
  group rest 200
  if [ -z "$failed" ]; then
    loop 60 "--micro-batch 2" "--micro-batch 8" "--micro-batch 8 --recompute selective"
    return
  fi
  command -v compute-sanitizer >/dev/null || { skip compute-sanitizer "no compute-sanitizer"; return; }
  for name in $failed; do
    command=$(watched "$name")
    # shellcheck disable=SC2086
    if [ -n "$command" ]; then step "$name" 60 watch $command; else skip "$name" "nothing of it runs under compute-sanitizer"; fi
  done
}
