#!/usr/bin/env bash
# Packs what meshplan is built and run with, apart from CUDA and the compiler, into one archive: for a
# machine with a GPU on which nothing can be installed. Needs the packages of scripts/setup.sh here.
#   scripts/pack_dependencies.sh [ARCHIVE]      default: .deps/deps.tar.xz (ignored by git)
# There, scripts/gpu_check.sh unpacks it by itself.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
archive=${1:-$root/.deps/deps.tar.xz}
most_mib=30  # what travels to a machine with every session there must stay small
mkdir -p "$(dirname "$archive")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dest=$work/deps
mkdir -p "$dest/include" "$dest/lib" "$dest/bin"

packages=(nlohmann-json3-dev libfmt-dev libcli11-dev libdnnl-dev libmpich-dev libxxhash-dev libsodium-dev libicu-dev
          catch2 libbenchmark-dev)
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
    { echo "pack_dependencies: $package is not installed: scripts/setup.sh" >&2; exit 1; }
  # The folders below /usr stay as they are, for CMake's files of a package find it relative to
  # themselves. Nobody needs the manuals.
  dpkg -L "$package" | grep -E '^/usr/(include|lib|share/(cmake|nlohmann|pkgconfig))' |
    while read -r file; do
      [ -f "$file" ] || continue
      # Parts of the packages that nothing here is linked with.
      case ${file##*/} in libicuio.* | libicutest.* | libicutu.* | libmpichcxx.* | libmpichfort.* | *.mod) continue ;; esac
      case $file in *.a) [[ ${file##*/} =~ ^lib(benchmark|Catch2) ]] || continue ;; esac
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

# Programs of MPICH, and every library that the packed ones need, except the C library's own parts,
# which must be the other machine's.
cp "$(readlink -f "$(command -v mpiexec.hydra)")" "$dest/bin/mpiexec"
cp "$(readlink -f "$(command -v hydra_pmi_proxy)")" "$dest/bin/hydra_pmi_proxy"
for file in "$dest"/lib/*.so* "$dest/bin/mpiexec" "$dest/bin/hydra_pmi_proxy"; do ldd "$file" 2>/dev/null || true; done |
  awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  { grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*|libstdc\+\+|libgcc_s)\.so' || true; } |
  while read -r library; do
    [ -e "$dest/lib/$(basename "$library")" ] || cp -L "$library" "$dest/lib/$(basename "$library")"
  done
ucx=$(dirname "$(ldconfig -p | awk '$1 == "libucs.so.0" && !n++ {print $NF}')")/ucx
if [ -d "$ucx" ]; then cp -rL "$ucx" "$dest/lib/ucx"; fi  # UCX loads its transports at run time
find "$dest/lib" -name '*.so*' -type f -exec strip --strip-unneeded {} +
find "$dest/lib" -name '*.a' -delete
XZ_OPT=-6e tar -cJf "$archive" -C "$work" deps
bytes=$(stat -c %s "$archive")
awk -v name="$archive" -v bytes="$bytes" 'BEGIN {printf "%s: %.1f MiB\n", name, bytes / 1048576}'
[ "$bytes" -le $((most_mib << 20)) ] ||
  { echo "pack_dependencies: more than $most_mib MiB; the largest files are:" >&2
    find "$dest" -type f -printf '%s %P\n' | sort -rn | head -5 >&2; exit 1; }
