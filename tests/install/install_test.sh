#!/usr/bin/env bash
# Installs the build tree $1 of the sources $2 into a folder, moves it, and uses what is there as a stranger would:
# the command, its manual, the examples as a project of their own, and the Python package where it was built.
set -euo pipefail
build=$(cd "$1" && pwd)
source=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The generator of the build is surely here; CMake's own choice, make, need not be.
CMAKE_GENERATOR=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$build/CMakeCache.txt")
export CMAKE_GENERATOR

fail() { echo "FAILED: $*"; exit 1; }

cmake --install "$build" --prefix "$work/first" >"$work/log" || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/prefix"
prefix=$work/prefix

# --- nothing names where it was built or first installed
if grep -rlE "$work/first|$source" "$prefix" --include='*.cmake' --include='*.py*' --include='meshplan*'; then
  fail "these files name the folder of the build"
fi

# --- the command
"$prefix/bin/meshplan" --version | grep -q '^meshplan [0-9]' || fail "meshplan --version"
"$prefix/bin/meshplan" models llama3-8b | grep -q llama3-8b || fail "meshplan models"
for file in man/man1/meshplan-plan.1* bash-completion/completions/meshplan zsh/site-functions/_meshplan \
    fish/vendor_completions.d/meshplan.fish; do
  # shellcheck disable=SC2086
  ls $prefix/share/$file >/dev/null || fail "no share/$file"
done

# --- the library: only a version that it is compatible with is found
probe=$work/probe
mkdir "$probe"
echo 'cmake_minimum_required(VERSION 3.25)
project(probe LANGUAGES CXX)
find_package(meshplan ${wanted} REQUIRED)' >"$probe/CMakeLists.txt"
finds() { cmake -S "$probe" -B "$probe/build" -DCMAKE_PREFIX_PATH="$prefix" -Dwanted="$1" >"$work/log" 2>&1; }
finds 0.1 || { cat "$work/log"; fail "find_package(meshplan 0.1)"; }
! finds 0.2 || fail "find_package(meshplan 0.2) finds an older one"
! finds 9 || fail "find_package(meshplan 9) finds an older one"

# --- every installed header compiles with what is installed
find "$prefix/include/meshplan" -name '*.hpp' -printf '#include "%P"\n' | sort >"$probe/headers.cpp"
[ "$(wc -l <"$probe/headers.cpp")" -gt 50 ] || fail "few headers: $(cat "$probe/headers.cpp")"
cp -r "$source/docs/examples" "$work/examples"
cat >>"$work/examples/CMakeLists.txt" <<'CMAKE'
add_library(headers OBJECT headers.cpp)
target_link_libraries(headers PRIVATE meshplan::core meshplan::models meshplan::program meshplan::sim meshplan::planner
                                      meshplan::reports)
CMAKE
cp "$probe/headers.cpp" "$work/examples"

# --- the examples, as a project that knows the prefix alone
cmake -S "$work/examples" -B "$work/examples/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 &&
  cmake --build "$work/examples/build" >>"$work/log" 2>&1 || { tail -40 "$work/log"; fail "the examples do not build"; }
(cd "$work/examples/build" && ctest --output-on-failure) || fail "the examples"

# --- the Python package
package=$(find "$prefix/lib" -type d -path '*/meshplan' -name meshplan ! -path '*/cmake/*')
if [ -z "$package" ]; then
  echo "skipped: the Python package was not built"
else
  PYTHONPATH=$(dirname "$package") PYTHONDONTWRITEBYTECODE=1 "${PYTHON:-/usr/bin/python3}" -c '
import importlib.metadata, meshplan
assert importlib.metadata.version("meshplan") == meshplan.__version__
found = meshplan.plan(model="tiny-llama", cluster="cpu-host", gpus=2, global_batch=8, seq_len=128)
print("Python:", found["ranked"][0]["description"])' || fail "the Python package"
  ls "$package/__init__.pyi" "$package/py.typed" >/dev/null || fail "no types"
fi
echo "all passed"
