# Calibrate this GPU, plan for it, predict plans, run them, compare operation by operation; to be sourced.
source "$root/scripts/measured_plans.sh"

# What the parts of the loop, which are shells of their own, share.
loop_workload() {
  out=$results
  mkdir -p "$out/plans"
  if [ "$DEVICE" = cpu ]; then
    loop_model=tiny-gpt2 vocabulary=256 seq_len=64 global_batch=8 precision=fp32 micro_batches=1,2
  else
    loop_model=gpt2-124m vocabulary=50257 seq_len=1024 global_batch=32 precision=bf16 micro_batches=1,2,4,8
  fi
  workload_of $loop_model "$out/here.json"
}

loop_calibrate() { # loop_calibrate SECONDS
  loop_workload
  measure $loop_model "$out/here.json" "$micro_batches" --device "$DEVICE" --precision "$precision" --max-tp 1 \
    --ranks 1 --operator-seconds "$1"
}

loop_plan() {
  loop_workload
  "$meshplan" plan "${workload[@]}" --ranks 1 --out "$out/choice.json"
}

loop_simulate() { # loop_simulate "FLAGS" ...: a plan for each
  loop_workload
  local flags number=0
  for flags; do
    # shellcheck disable=SC2086
    simulate "$((++number))$(tr -d ' -' <<<"$flags")" --ranks 1 $flags
  done
  ls "$out/plans"
}

loop_trial() {
  loop_workload
  "$PYTHON" "$root/bench/random_tokens.py" "$out/tokens.u16" $vocabulary 400000
  "$meshplan" trial --rounds 2 --most-rounds 2 --steps 6 --data "$out/tokens.u16" \
    --markdown "$out/trial.md" "$out"/plans/*.json
}

loop_compare() {
  loop_workload
  "$meshplan" simulate "$out/choice.json" --trace "$out/predicted.json" >/dev/null
  "$meshplan" run "$out/choice.json" --steps 6 --data "$out/tokens.u16" --device "$DEVICE" --quiet \
    --trace "$out/measured.json"
  "$meshplan" compare "$out/predicted.json" "$out/measured.json"
}

# loop CALIBRATION_SECONDS FLAGS...: the whole loop, with a plan for each FLAGS
loop() {
  step calibrate $(($1 + 30)) loop_calibrate "$1" || return
  shift
  step plan 30 loop_plan || return
  step simulate 30 loop_simulate "$@" || return
  step trial 120 loop_trial
  step compare 60 loop_compare
}
