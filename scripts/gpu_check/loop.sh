# loop: calibrate this GPU, plan for it, predict six plans, run them, compare; to be sourced by gpu_check.sh.
source "$root/scripts/measured_plans.sh"

# Shared by the steps, which are shells of their own.
gpt2() {
  out=$results seq_len=1024 global_batch=32 precision=bf16
  mkdir -p "$out/plans"
  workload_of gpt2-124m "$out/here.json"
}

loop_calibrate() {
  gpt2
  measure gpt2-124m "$out/here.json" "1,2,4,8" --device cuda --precision bf16 --max-tp 1 --operator-seconds 90
}

loop_plan() {
  gpt2
  "$meshplan" plan "${workload[@]}" --gpus 1 --out "$out/choice.json"
}

loop_simulate() {
  gpt2
  simulate 1-mbs1 --gpus 1 --micro-batch 1
  simulate 2-mbs2 --gpus 1 --micro-batch 2
  simulate 3-mbs4 --gpus 1 --micro-batch 4
  simulate 4-mbs8 --gpus 1 --micro-batch 8
  simulate 5-mbs8-selective --gpus 1 --micro-batch 8 --recompute selective
  simulate 6-mbs8-full --gpus 1 --micro-batch 8 --recompute full
  ls "$out/plans"
}

loop_run() {
  gpt2
  "$PYTHON" "$root/bench/random_tokens.py" "$out/tokens.u16" 50257 400000
  "$meshplan" trial --rounds 2 --most-rounds 2 --steps 6 --data "$out/tokens.u16" --markdown "$out/trial.md" \
    "$out"/plans/*.json
}

loop_compare() {
  gpt2
  "$meshplan" simulate "$out/choice.json" --trace "$out/predicted.json" >/dev/null
  "$meshplan" run "$out/choice.json" --steps 6 --data "$out/tokens.u16" --quiet --trace "$out/measured.json"
  "$meshplan" compare "$out/predicted.json" "$out/measured.json"
  rm "$out/tokens.u16"
}

stage_loop() {
  step calibrate 180 loop_calibrate || return
  step plan 60 loop_plan || return
  step simulate 30 loop_simulate || return
  step run 150 loop_run || return
  step compare 60 loop_compare
}
