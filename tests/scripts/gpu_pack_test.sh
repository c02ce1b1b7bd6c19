#!/usr/bin/env bash
# gpu_pack_test.sh BUILD: what scripts/gpu_pack.sh packs from this build tree is all that its programs ask for, by their own
# headers rather than by ldd, which packed it; and an archive that is too large is refused.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$root/tests/cli/expect.sh"
build=$1
[ -f "$build/carried_to_gpus.txt" ] || { echo "skipped: this build has no programs for GPUs"; exit 77; }
env BUILD="$build" "$root/scripts/gpu_pack.sh" "$work/pack/" || fail "gpu_pack.sh"
[ "$(wc -l <pack/COMMIT)" -eq 1 ] || fail "no commit: $(cat pack/COMMIT)"

# of the C library and the compiler's, and NVIDIA's, which are the machine's
theirs='^(libc|libm|libdl|librt|libpthread|libresolv|ld-linux-x86-64|libstdc\+\+|libgcc_s|libcudart|libcublasLt|libcudnn|libnccl)\.so'
needed() { readelf -d "$1" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }
count=0
while read -r file; do
  for name in $(needed "$file"); do
    count=$((count + 1))
    [[ $name =~ $theirs ]] || [ -e "pack/lib/$name" ] || fail "$file needs $name, which is not packed"
  done
done < <(find pack -type f)
[ $count -gt 100 ] || fail "only $count libraries are asked for: are these the programs?"
for library in mimalloc pugixml yaml-cpp tomlplusplus z mpich; do
  compgen -G "pack/lib/lib$library.so.*" >/dev/null || fail "lib$library is not packed"
done
! compgen -G "pack/lib/libcu[db]*" >/dev/null || fail "NVIDIA's libraries are packed: $(ls pack/lib)"
# a program finds what lies beside it, whatever LD_LIBRARY_PATH says, and so do its libraries
while read -r program; do
  up=$(dirname "$program" | sed 's#[^/]*#..#g')
  readelf -d "pack/programs/$program" | grep -qF "(RPATH)" || fail "$program has no DT_RPATH"
  readelf -d "pack/programs/$program" | grep -qF "\$ORIGIN/$up/../lib:\$ORIGIN/$up/../nvidia/lib" ||
    fail "$program looks elsewhere: $(readelf -d "pack/programs/$program" | grep PATH)"
done <"$build/carried_to_gpus.txt"
expect 0 "HYDRA|Usage" pack/bin/mpiexec --help

# --- sizes
mkdir -p large/some && head -c 2500000 /dev/urandom >large/some/noise
too_large() { (set -eu; source "$root/scripts/gpu_check/closure.sh"; pack_archive "$work/large.tar.xz" "$work/large" "$1" some); }
export -f too_large
export root work
expect 1 "more than 2 MiB; the largest files are:" bash -c "too_large 2"
[ ! -e large.tar.xz ] || fail "an archive that is too large is there"
expect 0 "large.tar.xz: 2.4 MiB" bash -c "too_large 3"
[ -f large.tar.xz ] || fail "no archive"

# --- what set-up installs to build is what is packed to build elsewhere
packages=$(eval "$(sed -n '/^packages=(/,/)$/p' "$root/scripts/setup.sh")"; echo "${packages[@]}")
case " $packages " in *" zlib1g-dev "*) ;; *) fail "set-up's packages are not read: $packages" ;; esac
finish
