# Several ranks that share the GPU, compared tensor by tensor with one rank on processor cores; to be sourced.

# certify_ranks NAME RANKS MODEL FLAGS -- OPTIONS...: plan flags; where ranks compute and how they communicate
certify_ranks() {
  local name=$1 ranks=$2 model=$3 flags=()
  shift 3
  while [ "$1" != -- ]; do
    flags+=("$1")
    shift
  done
  shift
  plan_of "$name" "$model" fp32 "$ranks" "${flags[@]}"
  $wrap "$meshplan" certify "$results/$name.plan.json" --device "$DEVICE" "$@" --out "$results/$name.certificate.json"
}

# by_host NAME RANKS MODEL FLAGS...: through pinned host memory, by MPI
by_host() { certify_ranks "$@" -- $([ "$DEVICE" = cpu ] || echo --comm mpi); }

# by_nccl NAME RANKS MODEL FLAGS...: docs/gpu_check.md, "Several ranks on one GPU"
by_nccl() { certify_ranks "$@" -- --comm nccl --share-gpu; }
