#!/usr/bin/env bash
# Installs what the build needs (Debian and Ubuntu) and builds Release. Does nothing that is already done.
#   scripts/setup.sh [preset [target...]]      default: release, everything
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=${1:-release}
targets=("${@:2}")

packages=(g++ cmake ninja-build nlohmann-json3-dev libfmt-dev libcli11-dev libdnnl-dev
          mpich libmpich-dev libxxhash-dev libicu-dev libpugixml-dev catch2 libbenchmark-dev)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: installing ${missing[*]}" >&2
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: not root and no sudo; install: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
  fi
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      "${missing[@]}" >/dev/null 2>&1; then
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      "${missing[@]}" >/dev/null ||
      { echo "setup: apt-get could not install: ${missing[*]}" >&2; exit 1; }
  fi
fi

build=$root/build/$preset
if [ ! -f "$build/build.ninja" ]; then
  echo "setup: configuring $preset" >&2
  (cd "$root" && cmake --preset "$preset" >/dev/null)
fi
if ! ninja -C "$build" -n "${targets[@]}" | grep -q 'no work to do'; then
  echo "setup: building $preset with $(nproc) cores" >&2
  ninja -C "$build" "${targets[@]}" >"$build/build.log" || { tail -n 40 "$build/build.log" >&2; exit 1; }
fi
