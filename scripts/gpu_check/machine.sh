# What the machine has: GPUs, the toolkit, libraries, programs; to be sourced.

num_gpus=0
no_gpu_reason="no GPU: this machine has no NVIDIA driver"
if command -v nvidia-smi >/dev/null 2>&1; then
  num_gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | grep -c '^[0-9]')
  no_gpu_reason="no GPU: there is a driver, but nvidia-smi finds no device"
fi

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)

# unpack ARCHIVE FOLDER: once; again where the archive is newer than what was unpacked
unpack() {
  [ ! -f "$2/.unpacked" ] || [ "$1" -nt "$2/.unpacked" ] || return 0
  rm -rf "$2"
  extract "$1" "$2" && touch "$2/.unpacked" || { echo "gpu_check: $1 cannot be unpacked" >&2; exit 2; }
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
  [ -n "$nvcc" ] || return 0
  local programs
  programs=$("$nvcc" --dryrun -x cu -c /dev/null 2>&1 | sed -n 's/^#\$ _HERE_=//p')
  [ -n "$programs" ] && readlink -f "$programs/.."
}

# Folders with NVIDIA's libraries, best first. Wheels first: they are PyTorch's, beside which we are measured.
nvidia_folders() {
  local site
  site_packages | while read -r site; do printf '%s\n' "$site"/nvidia/{cu13,cudnn,nccl}/lib; done
  toolkit | while read -r site; do printf '%s\n' "$site"/{lib64,lib,targets/x86_64-linux/lib}; done
  echo /usr/lib/x86_64-linux-gnu
}

# link_nvidia FOLDER: FOLDER/lib gets links to NVIDIA's libraries, by the names that programs load and by plain .so
# names, which linkers ask for and wheels do not have; FOLDER/include to the headers of wheels.
link_nvidia() {
  local links=$1 folder library file
  rm -rf "$links"
  mkdir -p "$links/lib" "$links/include"
  while read -r folder; do
    for library in cudart cublas cublasLt cudnn nccl nvrtc nvJitLink; do
      [ ! -e "$links/lib/lib$library.so" ] || continue  # all of a library from one folder
      for file in "$folder/lib$library".so.* "$folder/lib${library}"[-_]*.so.*; do
        [ ! -e "$file" ] || ln -sfn "$(readlink -f "$file")" "$links/lib/${file##*/}"
      done
      for file in "$folder/lib$library".so.*; do
        [ ! -e "$file" ] || ln -sfn "$(readlink -f "$file")" "$links/lib/lib$library.so"
      done
      # those of these alone: the toolkit's belong to its compiler
      case $folder in
        */nvidia/*) for file in "$folder/../include/${library%Lt}"*.h; do
          [ ! -e "$file" ] || ln -sfn "$file" "$links/include/"
        done ;;
      esac
    done
  done < <(nvidia_folders)
}

# use_programs: unpacks PROGRAMS where it is an archive, and puts MPICH into the path
use_programs() {
  programs=$PROGRAMS
  commit=${COMMIT:-$(git -C "$root" rev-parse --short HEAD 2>/dev/null || true)}
  if [ -f "$programs" ]; then
    local pack=$WORK/pack/gpu_pack
    unpack "$PROGRAMS" "$WORK/pack"
    programs=$pack/programs
    commit=${COMMIT:-$(cat "$pack/COMMIT" 2>/dev/null || true)}
    [ ! -d "$pack/bin" ] || PATH=$pack/bin:$PATH
    link_nvidia "$pack/nvidia"
  fi
  meshplan=$programs/cli/meshplan
  MESHPLAN=$meshplan  # for measured_plans.sh
}

# describe_machine: what a result page must say of it, KEY<tab>VALUE
describe_machine() {
  fact() { [ -z "$2" ] || printf '%s\t%s\n' "$1" "$2"; }
  fact date "$(date -u +%Y-%m-%d)"
  fact commit "$commit"
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
