# speed: training throughput beside PyTorch's on the same GPU, model and batch; to be sourced by gpu_check.sh.

# Rows of $results/speed.tsv: model, program, tokens/s. ours and theirs take what beside takes.
ours() {
  local model=$1 seq_len=$2 sequences=$3 micro_batch=$4 vocabulary=$5
  "$PYTHON" "$root/bench/random_tokens.py" "$results/$model.u32" "$vocabulary" $((seq_len * sequences * 4))
  "$meshplan" simulate --model "$model" --cluster dgx-h100 --gpus 1 --global-batch "$sequences" \
    --micro-batch "$micro_batch" --seq-len "$seq_len" --precision bf16 --out "$results/$model.plan.json" >/dev/null
  "$meshplan" run "$results/$model.plan.json" --steps 12 --data "$results/$model.u32" --any-placement --device cuda \
    --json >"$results/$model.run.json"
  rm "$results/$model.u32"
  local rate
  rate=$("$PYTHON" -c 'import json, sys; print(round(json.load(open(sys.argv[1]))["tokens_per_s"]))' "$results/$model.run.json")
  printf '%s\tmeshplan\t%s\n' "$model" "$rate" | tee -a "$results/speed.tsv"
}

theirs() {
  local model=$1 seq_len=$2 sequences=$3 micro_batch=$4
  # PyTorch's own libraries, not those of our programs
  unset LD_LIBRARY_PATH
  "$PYTHON" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null ||
    { echo "skipped: $PYTHON has no PyTorch with CUDA"; return 77; }
  "$PYTHON" "$root/bench/pytorch_step.py" --describe --device cuda
  local rate
  rate=$("$PYTHON" "$root/bench/pytorch_step.py" --device cuda --compile --bf16 --model "$model" --length "$seq_len" \
    --batch "$sequences" --micro-batch "$micro_batch" --steps 12)
  printf '%s\tPyTorch, torch.compile\t%s\n' "$model" "$rate" | tee -a "$results/speed.tsv"
}

# beside MODEL SEQ_LEN SEQUENCES MICRO_BATCH VOCABULARY
beside() {
  step "$1" 100 ours "$@"
  step "$1_pytorch" 130 theirs "$@"
}

stage_speed() { # 64 k tokens a step
  beside gpt2-124m 1024 64 16 50257
  beside llama3.2-1b 4096 16 1 128256
}
