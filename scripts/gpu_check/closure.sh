# What programs need on a machine that has nothing but a C library, NVIDIA's driver and its libraries; to be sourced.

# Of the C library, which must be the other machine's; NVIDIA's, which its machine has as a toolkit or as wheels.
not_packed='/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*|libstdc\+\+|libgcc_s)\.so|'
not_packed+='/lib(cuda|cudart|cublas|cublasLt|cudnn[_a-z]*|nccl)\.so'

# needed_by FILE...: paths of the libraries that they load, and of those that these load, that are to be packed
needed_by() {
  local file
  for file; do ldd "$file" 2>/dev/null || true; done |
    awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | { grep -vE "$not_packed" || true; }
}

# pack_libraries FOLDER FILE...: copies what FILEs need into FOLDER, under the names by which it is asked for
pack_libraries() {
  local folder=$1 library
  shift
  mkdir -p "$folder"
  needed_by "$@" | while read -r library; do
    [ -e "$folder/${library##*/}" ] || cp -L "$library" "$folder/${library##*/}"
  done
}

# pack_mpich FOLDER: mpiexec and its helper into FOLDER/bin, their libraries into FOLDER/lib. mpiexec is a script that
# tells both where these are: what it starts needs no variable of ours.
pack_mpich() {
  local folder=$1 program
  mkdir -p "$folder/bin" "$folder/lib"
  for program in mpiexec.hydra hydra_pmi_proxy; do
    cp "$(readlink -f "$(command -v $program)")" "$folder/bin/$program"
    pack_libraries "$folder/lib" "$folder/bin/$program"
  done
  cat >"$folder/bin/mpiexec" <<'SH'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
LD_LIBRARY_PATH=$here/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$here/mpiexec.hydra" "$@"
SH
  chmod +x "$folder/bin/mpiexec"
  local ucx
  ucx=$(dirname "$(ldconfig -p | awk '$1 == "libucs.so.0" && !n++ {print $NF}')")/ucx
  if [ -d "$ucx" ]; then  # its transports, loaded at run time
    cp -rL "$ucx" "$folder/lib/ucx"
    pack_libraries "$folder/lib" "$folder"/lib/ucx/*.so*
  fi
}

# pack_archive ARCHIVE FOLDER MOST_MIB NAME...: NAMEs of FOLDER as .tar.xz; an error, with what is largest, beyond MOST_MIB.
# Programs hold the same kernels several times, which a window of 128 MiB finds.
pack_archive() {
  mkdir -p "$(dirname "$1")"
  local archive=$1 folder=$2 most=$3 bytes
  shift 3
  find "$folder" -name '*.so*' -type f -exec strip --strip-unneeded {} + 2>/dev/null || true
  tar -cf - -C "$folder" "$@" | xz -T0 --lzma2=preset=6,dict=128MiB >"$archive.part"
  bytes=$(stat -c %s "$archive.part")
  awk -v name="$archive" -v bytes="$bytes" 'BEGIN {printf "%s: %.1f MiB\n", name, bytes / 1048576}'
  if [ "$bytes" -gt $((most << 20)) ]; then
    echo "${0##*/}: more than $most MiB; the largest files are:" >&2
    find "$folder" -type f -printf '%s %P\n' | sort -rn | head -5 >&2
    rm "$archive.part"
    return 1
  fi
  mv "$archive.part" "$archive"
}
