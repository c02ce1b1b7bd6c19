#!/usr/bin/env bash
# Keeps one core busy in random bursts, a fifth of the time: what somebody else's programs do to a
# measurement. Bursts last 0.1 to 0.9 s, pauses 0.4 to 3.6 s; the same ones for a seed. Ends with a signal.
#   scripts/disturber.sh [seed]      default: 1
set -u
RANDOM=${1:-1}

# uniform LOW HIGH: milliseconds
uniform() { ms=$(($1 + RANDOM * ($2 - $1) / 32768)); }

while true; do
  uniform 100 900
  # Microseconds of the clock; in German and French locales its point is a comma.
  end=$((${EPOCHREALTIME/[.,]/} + ms * 1000))
  while ((${EPOCHREALTIME/[.,]/} < end)); do :; done
  uniform 400 3600
  sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))" &
  pause=$!
  trap 'kill "$pause" 2>/dev/null; exit 0' TERM INT
  wait "$pause"
done
