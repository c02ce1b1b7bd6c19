#!/usr/bin/env bash
# Packs what meshplan is built and run with, apart from CUDA and the compiler, into one archive: for a
# machine with a GPU on which nothing can be installed. Needs the packages of scripts/setup.sh here.
#   scripts/pack_dependencies.sh [ARCHIVE]      default: .deps/deps.tar.xz (ignored by git)
# There, scripts/gpu_check.sh unpacks it by itself.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/gpu_check/closure.sh"
archive=${1:-$root/.deps/deps.tar.xz}
most_mib=30  # what travels to a machine with every session there must stay small
mkdir -p "$(dirname "$archive")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dest=$work/deps
mkdir -p "$dest/include" "$dest/lib"

# What the build needs is what set-up installs; the compiler, CMake and Python are the other machine's.
eval "$(sed -n '/^packages=(/,/)$/p' "$root/scripts/setup.sh")"
for package in "${packages[@]}"; do
  case $package in g++ | cmake | ninja-build | mpich | python3*) continue ;; esac
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
    { echo "pack_dependencies: $package is not installed: scripts/setup.sh" >&2; exit 1; }
  # The folders below /usr stay as they are, for CMake's files of a package find it relative to
  # themselves. Nobody needs the manuals.
  dpkg -L "$package" | grep -E '^/usr/(include|lib|share/(cmake|nlohmann|pkgconfig))' |
    while read -r file; do
      [ -f "$file" ] || continue
      # Parts of the packages that nothing here is linked with.
      case ${file##*/} in libicuio.* | libicutest.* | libicutu.* | libmpichcxx.* | libmpichfort.* | *.mod) continue ;; esac
      case $file in *.a) [[ ${file##*/} =~ ^lib(benchmark|Catch2|pugixml) ]] || continue ;; esac
      mkdir -p "$dest$(dirname "$file")"
      case $file in
        *.so*) # once, under the name that CMake's files know; the others are links to it
          real=$(readlink -f "$file")
          soname=$(objdump -p "$real" | awk '/SONAME/ {print $2}')
          [ -e "$dest/lib/$(basename "$real")" ] || cp "$real" "$dest/lib/"
          for name in "$(basename "$file")" "$(basename "$real")"; do
            ln -sf "$(realpath --relative-to "$(dirname "$dest$file")" "$dest/lib/$(basename "$real")")" "$(dirname "$dest$file")/$name"
          done
          [ "$soname" = "$(basename "$real")" ] || ln -sf "$(basename "$real")" "$dest/lib/$soname" ;;
        *) cp -L "$file" "$dest$file" ;;
      esac
    done
done

pack_libraries "$dest/lib" "$dest"/lib/*.so*
pack_mpich "$dest"
find "$dest/lib" -name '*.a' -delete
pack_archive "$archive" "$work" "$most_mib" deps
