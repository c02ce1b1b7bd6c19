#!/usr/bin/env bash
# As torchrun does: starts RANKS processes of COMMAND, which meet by its variables instead of MPI.
# Ends with the first status that is not 0, once all have ended. Usage: tcp_ranks.sh RANKS COMMAND...
set -u
ranks=$1
shift
port=$((20000 + RANDOM % 10000))
while (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
processes=()
for ((rank = 0; rank < ranks; ++rank)); do
  RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" &
  processes+=($!)
done
status=0
for process in "${processes[@]}"; do
  wait "$process" || { code=$?; [ "$status" -ne 0 ] || status=$code; }
done
exit "$status"
