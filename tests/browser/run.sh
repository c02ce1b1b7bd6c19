#!/usr/bin/env bash
# Runs a script of this folder, or another by its path, in Node with playwright-core, which drives Debian's Chromium.
# Usage: run.sh SCRIPT FOLDER ARGUMENTS...: FOLDER keeps what npm installs.
# 77 (skipped) where there is no Chromium, Node or playwright-core, with the reason.
set -u
here=$(cd "$(dirname "$0")" && pwd)
script=$1 folder=$2
shift 2
[[ $script = */* ]] && script=$(realpath "$script") || script=$here/$script

skip() {
  echo "skipped: $1"
  exit 77
}
for name in chromium chromium-browser google-chrome; do
  CHROMIUM=$(command -v "$name") && break
done
[ -n "$CHROMIUM" ] || skip "no Chromium here (apt-get install chromium)"
command -v node >/dev/null || skip "no Node here (apt-get install nodejs npm)"
[ "$(node -p 'process.versions.node.split(".")[0]')" -ge 18 ] || skip "Node is older than 18"

# The scripts find their packages beside themselves, so they are copied to where these are.
mkdir -p "$folder"
cp "$script" "$here"/*.mjs "$here"/package.json "$here"/package-lock.json "$folder"/ || exit 1
cd "$folder" || exit 1
if ! cmp -s package-lock.json installed-lock.json; then
  command -v npm >/dev/null || skip "no npm here to install playwright-core (apt-get install npm)"
  npm ci --silent --no-audit --no-fund >npm.log 2>&1 || skip "npm cannot install playwright-core: $(tail -n 1 npm.log)"
  cp package-lock.json installed-lock.json
fi
CHROMIUM=$CHROMIUM exec node "$(basename "$script")" "$@"
