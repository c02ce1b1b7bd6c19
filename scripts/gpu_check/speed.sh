# Training throughput beside the prediction, and beside PyTorch on the same GPU, model and batch; to be sourced.

# workload MODEL: length, sequences a step, sequences a micro-batch, vocabulary. 32 k tokens a step.
workload() {
  case $1 in
    gpt2-124m) echo 1024 32 16 50257 ;;
    gpt2-xl) echo 1024 32 4 50257 ;;
    llama3.2-1b) echo 4096 8 2 128256 ;;
    mixture) echo 4096 8 2 32000 ;;
    tiny-*) echo 64 8 4 256 ;;
  esac
}
models_timed() { if [ "$DEVICE" = cpu ]; then echo tiny-gpt2 tiny-llama; else echo gpt2-124m gpt2-xl llama3.2-1b; fi; }
models_of_torch() { if [ "$DEVICE" = cpu ]; then echo tiny-gpt2; else models_timed; fi; }

# cluster: the preset of this GPU, whose data sheet the prediction starts from
cluster() {
  [ "$DEVICE" != cpu ] || { echo cpu-host; return; }
  case $(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1) in *H200*) echo dgx-h200 ;; *) echo dgx-h100 ;; esac
}

# A mixture of experts that one GPU can train: 1.8 billion parameters, 8 experts, 2 a token.
mixture() {
  cat <<'JSON'
{"model_type": "mixtral", "hidden_size": 2048, "intermediate_size": 4096, "num_hidden_layers": 8,
 "num_attention_heads": 16, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
 "vocab_size": 32000, "max_position_embeddings": 4096, "hidden_act": "silu", "rms_norm_eps": 1e-5,
 "rope_theta": 1000000.0, "tie_word_embeddings": false}
JSON
}

# ours MODEL deterministic|no-deterministic [PRECISION]: a row of $results/speed.tsv: model, program, tokens/s, MFU, measured over predicted step time
ours() {
  local model=$1 deterministic=$2 precision=${3:-bf16} length sequences micro vocabulary name=$1.$2.${3:-bf16} config=$1
  [ "$model" != mixture ] || { config=$results/mixture.json; mixture >"$config"; }
  read -r length sequences micro vocabulary < <(workload "$model")
  "$PYTHON" "$root/bench/random_tokens.py" "$results/$model.u32" "$vocabulary" $((length * sequences * 4))
  "$meshplan" simulate --model "$config" --cluster "$(cluster)" --ranks 1 --global-batch "$sequences" \
    --micro-batch "$micro" --seq-len "$length" --precision "$precision" "--$deterministic" \
    --out "$results/$name.plan.json" --json >"$results/$name.predicted.json"
  $wrap "$meshplan" run "$results/$name.plan.json" --steps "${steps_timed:-6}" --data "$results/$model.u32" \
    --any-placement --device "$DEVICE" --json >"$results/$name.run.json"
  "$PYTHON" "$sheet/speed_row.py" "$model" "$precision" "$deterministic" "$results/$name".{predicted,run}.json | tee -a "$results/speed.tsv"
}

# theirs HOW MODEL...: rows of $results/speed.tsv by PyTorch: eager, blocks (torch.compile of each block) or compile
theirs() {
  has_torch || return
  local how=$1 model cases=()
  shift
  for model; do
    read -r length sequences micro _ < <(workload "$model")
    cases+=(--case "$model,$length,$sequences,$micro")
  done
  "$PYTHON" "$root/bench/pytorch_step.py" --device "$DEVICE" --threads "$(nproc)" "--$how" --bf16 \
    --steps "${steps_timed:-6}" "${cases[@]}" | tee -a "$results/speed.tsv"
}
