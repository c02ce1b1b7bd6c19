#!/usr/bin/env bash
# Installs what the build needs (Debian and Ubuntu) and builds Release. Does nothing that is already done.
#   scripts/setup.sh [preset [target...]]      default: release, everything
#   scripts/setup.sh preset --packages         only installs what it needs to build and test everything
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
preset=${1:-release}
targets=("${@:2}")
only_packages=false
[ "${2:-}" != --packages ] || { only_packages=true; targets=(); }
presets=$(sed -n '/"configurePresets"/,/"buildPresets"/s/.*"name": "\([a-z]*\)".*/\1/p' "$root/CMakePresets.json" | grep -v '^base$')
grep -qx -e "$preset" <<<"$presets" || {
  echo "setup: no preset '$preset'; there are ${presets//$'\n'/, }" >&2
  exit 2
}

packages=(g++ cmake ninja-build nlohmann-json3-dev libfmt-dev libcli11-dev libdnnl-dev
          mpich libmpich-dev libxxhash-dev libsodium-dev libicu-dev libpugixml-dev libyaml-cpp-dev
          libtomlplusplus-dev zlib1g-dev libmimalloc-dev catch2 libbenchmark-dev)
[ ${#targets[@]} -gt 0 ] || packages+=(python3)  # which tests are written in
if [ "$preset" = classroom ]; then  # for a browser: cmake/wasm32-wasi.cmake
  packages=(clang-19 lld-19 llvm-19 wasi-libc libc++-19-dev-wasm32 libc++abi-19-dev-wasm32
            libclang-rt-19-dev-wasm32 cmake ninja-build nlohmann-json3-dev libfmt-dev libcli11-dev)
fi
[ "$preset" != ci ] || packages+=(python3-dev pybind11-dev)  # for the Python package, elsewhere built where they are
# Groups of packages without which the rest goes on.
optional=()
case $preset in ci | asan) optional+=(ccache) ;; esac
if [ "$preset" = ci ] && [ ${#targets[@]} -eq 0 ]; then
  optional+=("clang-tidy-16 libomp-16-dev")  # scripts/tidy.sh
  browser="chromium nodejs"                  # tests/browser
  command -v npm >/dev/null || browser+=" npm"  # other packages of Node bring it along
  optional+=("$browser")
fi

# Those among the packages that are not installed, one a line.
missing_of() {
  local package
  for package; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done
}
installed=false
install() {
  local as_root=()
  echo "setup: installing $*" >&2
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: not root and no sudo; install: $*" >&2; return 1; }
    as_root=(sudo)
  fi
  local get=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get)
  "${get[@]}" install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 || {
    "${get[@]}" update -qq && "${get[@]}" install -y -qq --no-install-recommends "$@" >/dev/null
  } || { echo "setup: apt-get could not install: $*" >&2; return 1; }
  installed=true
}
mapfile -t missing < <(missing_of "${packages[@]}")
[ ${#missing[@]} -eq 0 ] || install "${missing[@]}" || exit 1
for group in "${optional[@]}"; do
  mapfile -t missing < <(missing_of $group)
  [ ${#missing[@]} -eq 0 ] || install "${missing[@]}" || echo "setup: going on without ${missing[*]}" >&2
done

! $only_packages || exit 0

# Passes on what ninja says of its progress: one line that is rewritten on a terminal, else one per tenth.
show_progress() {
  local line tenth=0
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\ +([0-9]+)\. ]] || continue
    local done=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]} seconds=${BASH_REMATCH[3]}
    if [ -t 2 ]; then
      printf '\rsetup: %d of %d, %d s ' "$done" "$all" "$seconds" >&2
    elif [ $((done * 10 / all)) -gt $tenth ]; then
      tenth=$((done * 10 / all))
      printf 'setup: %d of %d, %d s\n' "$done" "$all" "$seconds" >&2
    fi
  done
  [ ! -t 2 ] || echo >&2
}

build=$root/build/$preset
if [ ! -f "$build/build.ninja" ] || $installed; then  # CMake looks for optional packages only then
  echo "setup: configuring $preset" >&2
  (cd "$root" && cmake --preset "$preset" >/dev/null)
fi
if ! ninja -C "$build" -n "${targets[@]}" | grep -q 'no work to do'; then
  echo "setup: building $preset${targets[*]:+ (${targets[*]})} with $(nproc) cores" >&2
  NINJA_STATUS='[%f/%t %es] ' ninja -C "$build" "${targets[@]}" | tee "$build/build.log" | show_progress ||
    { tail -n 40 "$build/build.log" >&2; exit 1; }
fi
