#!/usr/bin/env bash
# Breaks elastic training jobs at random moments and checks that they go on, that no state is lost beyond what was
# promised, that losses are those of uninterrupted runs, and that nothing is left behind.
# Usage: scripts/chaos.sh MINUTES SEED     MESHPLAN is the program (default build/release/cli/meshplan)
# Prints a line per fault and a table at the end; exit code 1 if a promise was broken. docs/elastic says what is broken.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# -eq 2 ] || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
meshplan=${MESHPLAN:-$root/build/release/cli/meshplan}
[ -x "$meshplan" ] || { echo "chaos: no $meshplan; build it first, or set MESHPLAN" >&2; exit 2; }
# Full disks are small ones that are mounted, in a mount namespace of their own.
own_mounts=()
for way in "unshare --mount" "unshare --map-root-user --mount"; do
  if $way mount -t tmpfs chaos "$root" 2>/dev/null; then
    read -ra own_mounts <<<"$way"
    break
  fi
done
exec "${own_mounts[@]}" python3 "$root/scripts/faults/chaos.py" "$meshplan" "$1" "$2"
