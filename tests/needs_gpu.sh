#!/usr/bin/env bash
# needs_gpu.sh COMMAND...: runs it where there is a GPU; else says so and ends with 77, "skipped".
if [ ! -e /dev/nvidiactl ]; then
  echo "skipped: no GPU (there is no /dev/nvidiactl)"
  exit 77
fi
exec "$@"
