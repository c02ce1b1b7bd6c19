#!/usr/bin/env bash
# Packs the build tree $1 for Debian and looks into the packages: names, dependencies, files, and what lintian says.
set -euo pipefail
build=$(cd "$1" && pwd)
for tool in cpack dpkg-deb dpkg-shlibdeps; do
  command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

(cd "$build" && cpack -G DEB -B "$work" >"$work/log" 2>&1) || { cat "$work/log"; fail "cpack"; }

# has PACKAGE FIELD PATTERN
has() {
  local value
  value=$(dpkg-deb -f "$work/$1"_*.deb "$2")
  grep -qE -- "$3" <<<"$value" || fail "$1: $2: $value"
}
# holds PACKAGE FILE...
holds() {
  local package=$1 listed
  shift
  listed=$(dpkg-deb -c "$work/$package"_*.deb | awk '{print $6}')
  for file in "$@"; do
    grep -qE "^\./$file$" <<<"$listed" || fail "$package lacks $file"
  done
  dpkg-deb -c "$work/$package"_*.deb | awk '$2 != "root/root" {exit 1}' || fail "$package: files that are not root's"
}

version=$("$build/cli/meshplan" --version | sed 's/meshplan //')
has meshplan Version "^$version-1$"
has meshplan Depends 'libc6 .*libfmt'
holds meshplan usr/bin/meshplan usr/share/man/man1/meshplan.1.gz usr/share/man/man1/meshplan-plan.1.gz \
  usr/share/bash-completion/completions/meshplan usr/share/zsh/vendor-completions/_meshplan \
  usr/share/fish/vendor_completions.d/meshplan.fish usr/share/doc/meshplan/copyright
if [ "$(grep -c '^MESHPLAN_RUNTIME:BOOL=ON' "$build/CMakeCache.txt")" = 1 ]; then
  has meshplan Depends 'libmpich'
  has meshplan Recommends mpich
fi

has libmeshplan-dev Depends 'nlohmann-json3-dev.*libfmt-dev'
holds libmeshplan-dev usr/lib/libmeshplan_planner.a usr/include/meshplan/planner/search/search.hpp \
  usr/lib/cmake/meshplan/meshplanConfig.cmake usr/lib/cmake/meshplan/meshplanConfigVersion.cmake

if ls "$work"/python3-meshplan_*.deb >/dev/null 2>&1; then
  has python3-meshplan Depends 'python3 \(>= 3\.[0-9]+\), python3 \(<< 3\.[0-9]+\).*libfmt'
  holds python3-meshplan usr/lib/python3/dist-packages/meshplan/__init__.py \
    usr/lib/python3/dist-packages/meshplan/__init__.pyi usr/lib/python3/dist-packages/meshplan/py.typed \
    'usr/lib/python3/dist-packages/meshplan/_meshplan.cpython.*so'
else
  echo "skipped: the Python package was not built"
fi

# --- what is packed works where it is unpacked
dpkg-deb -x "$work"/meshplan_*.deb "$work/root"
[ "$("$work/root/usr/bin/meshplan" --version)" = "meshplan $version" ] || fail "the packed command"

if command -v lintian >/dev/null; then
  # Who packs gives the address; there is no bug that an upload could close.
  lintian --allow-root --fail-on error --suppress-tags \
    root-in-contact,bogus-mail-host,bogus-mail-host-in-debian-changelog,initial-upload-closes-no-bugs \
    "$work"/*.deb || fail "lintian"
else
  echo "skipped: no lintian"
fi
echo "all passed"
