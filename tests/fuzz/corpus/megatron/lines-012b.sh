NNODES=
DISTRIBUTED_ARGS=(""--nodes "
" --num-layers)
if "";then D=("""")
fi("")if "";then fi
"${DISTRIBUTED_ARGS[@]}" ".py"""