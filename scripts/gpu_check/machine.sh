# What the machine has: GPUs, the toolkit, libraries, programs; to be sourced.

num_gpus=0
no_gpu_reason="this machine has no NVIDIA driver"
if command -v nvidia-smi >/dev/null 2>&1; then
  num_gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | grep -c '^[0-9]')
  no_gpu_reason="there is a driver, but nvidia-smi finds no device"
fi

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)

# use_dependencies: unpacks DEPS once and puts its programs and libraries into the paths
use_dependencies() {
  deps=
  if [ -f "$DEPS" ]; then
    deps=$BUILD/deps
    # newer than what was unpacked: again
    if [ ! -d "$deps" ] || [ "$DEPS" -nt "$deps/.unpacked" ]; then
      rm -rf "$deps"
      extract "$DEPS" "$BUILD" && touch "$deps/.unpacked" ||
        { echo "gpu_check: $DEPS cannot be unpacked" >&2; exit 2; }
    fi
  elif [ -d "$DEPS" ]; then
    deps=$DEPS
  fi
  [ -z "$deps" ] || PATH=$deps/bin:$PATH LD_LIBRARY_PATH=$deps/lib:${LD_LIBRARY_PATH:-}
}

# Folders in which Python keeps NVIDIA's wheels.
site_packages() {
  if [ -n "$SITE_PACKAGES" ]; then
    echo "$SITE_PACKAGES"
  else
    "$PYTHON" -c 'import site, sysconfig
print(*dict.fromkeys([sysconfig.get_path("purelib"), *site.getsitepackages(), site.getusersitepackages()]), sep="\n")' \
      2>/dev/null
  fi
}

# Folder of the toolkit. Asked of nvcc, since what is called nvcc may be a wrapper that lies elsewhere.
toolkit() {
  local programs
  programs=$("$nvcc" --dryrun -x cu -c /dev/null 2>&1 | sed -n 's/^#\$ _HERE_=//p')
  [ -n "$programs" ] && readlink -f "$programs/.."
}

toolkit_has() { # toolkit_has LIBRARY
  local folder
  for folder in "$(toolkit)"/{lib64,lib,targets/x86_64-linux/lib} /usr/lib/x86_64-linux-gnu; do
    [ ! -e "$folder/lib$1.so" ] || return 0
  done
  return 1
}

# The libraries of NVIDIA's wheels have no plain .so names, which linkers ask for. Links to all of them, in
# $BUILD/nvidia: plain names for what the toolkit lacks, names with versions for what programs load.
link_wheels() {
  local links=$BUILD/nvidia site library wheel file
  rm -rf "$links"
  for library in cudart:cu13 cublasLt:cu13 cudnn:cudnn nccl:nccl; do
    wheel=${library#*:} library=${library%:*}
    [ -z "$nvcc" ] || [ -n "$SITE_PACKAGES" ] || ! toolkit_has "$library" || continue
    while read -r site; do
      [ -d "$site/nvidia/$wheel/lib" ] || continue
      mkdir -p "$links/lib" "$links/include"
      for file in "$site/nvidia/$wheel"/lib/*.so.*; do ln -sfn "$file" "$links/lib/"; done
      for file in "$site/nvidia/$wheel/lib/lib$library".so.*; do
        [ -e "$file" ] && ln -sfn "$file" "$links/lib/lib$library.so"
      done
      # headers of this library alone: those of the toolkit belong to its compiler
      for file in "$site/nvidia/$wheel/include/${library%Lt}"*.h; do
        [ ! -e "$file" ] || ln -sfn "$file" "$links/include/"
      done
      break
    done < <(site_packages)
  done
  [ ! -d "$links/lib" ] || LD_LIBRARY_PATH=$links/lib:${LD_LIBRARY_PATH:-}
}

# use_programs: where they are, and the libraries that they load
use_programs() {
  link_wheels
  programs=${PROGRAMS:-$BUILD}
  if [ -f "$programs" ]; then
    programs=$BUILD/programs
    rm -rf "$programs"
    extract "$PROGRAMS" "$programs" || { echo "gpu_check: $PROGRAMS cannot be unpacked" >&2; exit 2; }
    programs=$programs/build/programs
  elif [ -d "$programs/programs/cli" ]; then
    programs=$programs/programs
  fi
  meshplan=$programs/cli/meshplan
  MESHPLAN=$meshplan  # for measured_plans.sh
}

# describe_machine: what a result page must say of it, KEY<tab>VALUE
describe_machine() {
  fact() { [ -z "$2" ] || printf '%s\t%s\n' "$1" "$2"; }
  fact date "$(date -u +%Y-%m-%d)"
  fact commit "${COMMIT:-$(git -C "$root" rev-parse --short HEAD 2>/dev/null)}"
  fact GPUs "$num_gpus"
  [ "$num_gpus" -eq 0 ] || nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null |
    sort | uniq -c | while read -r count words; do fact GPU "$count x $words"; done
  fact CPU "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores"
  fact system "$(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-}")"
  fact nvcc "$([ -z "$nvcc" ] || "$nvcc" --version 2>/dev/null | sed -n 's/.*release .*, V//p')"
  fact compiler "$(c++ --version 2>/dev/null | head -n 1)"
  [ ! -x "$programs/cli/meshplan-cuda" ] ||
    ldd "$programs/cli/meshplan-cuda" 2>/dev/null | awk '$3 ~ /^\// {print $3}' |
    xargs -r "$PYTHON" "$sheet/library_versions.py" 2>/dev/null
}
