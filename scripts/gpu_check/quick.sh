# quick: first light; to be sourced. The budgets of its groups are those of docs/gpu_check.md.

# on_gpu NAME SECONDS COMMAND...: a step that only a GPU can do
on_gpu() {
  if [ "$num_gpus" -gt 0 ] && [ "$DEVICE" != cpu ]; then
    step "$@"
  else
    comes_later "$1" || skip "$1" "$([ "$DEVICE" = cpu ] && echo "only a GPU can do it" || echo "$no_gpu_reason")"
  fi
}

# anywhere NAME SECONDS COMMAND...: a step that is rehearsed on processor cores where DEVICE=cpu
anywhere() { if [ "$DEVICE" = cpu ]; then step "$@"; else on_gpu "$@"; fi; }

run_quick() {
  begin_run quick 560 "$1"
  local model
  group load 25
  step load 25 load_programs
  on_gpu driver 10 nvidia-smi
  group graphs 30
  anywhere graphs_and_none 30 graphs_and_none
  group kernels 45
  on_gpu kernel_tests 40 kernel_tests
  step library_tests 20 library_tests
  group attention 45
  on_gpu attention_check 45 attention_check
  group families 90
  for model in tiny-llama tiny-gpt2 tiny-moe; do
    anywhere "gradients_$model" 15 certify_one $model fp32
    anywhere "gradients_${model}_bf16" 15 certify_one $model bf16
  done
  anywhere families 60 families --families "$families_of_quick"
  anywhere bf16_beside_torch 60 bf16_beside_torch --model "$([ "$DEVICE" = cpu ] && echo tiny || echo gpt2-124m)"
  group speed 60
  for model in $(models_timed); do
    anywhere "${model}_any_order" 30 ours "$model" no-deterministic
    anywhere "${model}_deterministic" 30 ours "$model" deterministic
  done
  group torch 90
  anywhere torch_eager 45 theirs eager $(models_of_torch)
  on_gpu torch_compiled 80 theirs blocks $(models_timed)
  group ranks 60
  anywhere tp_pp 20 by_host tp_pp 4 tiny-llama --tp 2 --sp --pp 2
  anywhere dp_zero 20 by_host dp_zero 4 tiny-gpt2 --dp 2 --zero 3 --tp 2
  anywhere ep 20 by_host ep 4 tiny-moe --dp 2 --ep 2 --tp 2 --sp
  on_gpu rank_tests 40 rank_tests 4
  group repeats 45
  anywhere twenty_times 45 twenty_times tiny-llama
  group nccl 40
  on_gpu dp2_by_nccl 20 by_nccl dp2_by_nccl 2 tiny-llama --dp 2
  on_gpu tp2_by_nccl 20 by_nccl tp2_by_nccl 2 tiny-llama --tp 2
}
families_of_quick=llama,gpt2,gpt-oss,gemma2,deepseek_v3
