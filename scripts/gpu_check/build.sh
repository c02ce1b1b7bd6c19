# build: configures and compiles on the machine with the GPU; to be sourced by gpu_check.sh.

# use_dependencies: unpacks DEPS and puts MPICH into the path
use_dependencies() {
  deps=
  if [ -f "$DEPS" ]; then
    unpack "$DEPS" "$WORK/deps"
    deps=$WORK/deps/deps
  elif [ -d "$DEPS" ]; then
    deps=$DEPS
  fi
  [ -z "$deps" ] || PATH=$deps/bin:$PATH
}

configure() {
  local options=(-DCMAKE_BUILD_TYPE=Release -DMESHPLAN_CUDA=ON -DMESHPLAN_WERROR=OFF "-DMPIEXEC_PREFLAGS=-launcher;fork")
  # before the toolkit: CMake looks into prefixes first
  local prefixes=("$nvidia")
  if [ -n "$deps" ]; then
    local multiarch=$deps/usr/lib/x86_64-linux-gnu
    prefixes+=("$deps/usr")
    # DT_RPATH holds for what libraries load, too
    options+=("-DCMAKE_LIBRARY_PATH=$multiarch;$deps/lib" "-DCMAKE_BUILD_RPATH=$deps/lib"
              "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags,-rpath-link,$deps/lib"
              -DMPI_CXX_SKIP_MPICXX=ON -DMPI_ASSUME_NO_BUILTIN_MPI=ON -DMPI_CXX_COMPILER=NOTFOUND
              "-DMPI_CXX_HEADER_DIR=$deps/usr/include/x86_64-linux-gnu/mpich" -DMPI_CXX_LIB_NAMES=mpich
              "-DMPI_mpich_LIBRARY=$multiarch/libmpich.so" "-DMPIEXEC_EXECUTABLE=$deps/bin/mpiexec")
  fi
  options+=("-DCMAKE_PREFIX_PATH=$(IFS=';'; echo "${prefixes[*]}")")
  local architectures=${ARCHITECTURES:-}
  if [ -z "$architectures" ] && [ "$num_gpus" -gt 0 ]; then
    architectures=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -u |
      sed 's/$/-real/' | paste -sd';')
  fi
  [ -z "$architectures" ] || options+=("-DCMAKE_CUDA_ARCHITECTURES=$architectures")
  [ -f "$BUILD/CMakeCache.txt" ] || ! command -v ninja >/dev/null || options+=(-G Ninja)
  CUDACXX=$nvcc cmake -S "$root" -B "$BUILD" "${options[@]}"
}

run_build() {
  use_dependencies
  programs=$BUILD commit=${COMMIT:-$(git -C "$root" rev-parse --short HEAD 2>/dev/null || true)}
  nvidia=$BUILD/nvidia
  mkdir -p "$BUILD"
  link_nvidia "$nvidia"
  begin_run build 590 "$1"
  group build 590
  if [ -z "$nvcc" ]; then
    local reason="no CUDA toolkit: there is no nvcc; PROGRAMS names programs that were packed"
    if [ "$num_gpus" -eq 0 ]; then skip configure "$reason"; else refuse configure "$reason"; fi
    return
  fi
  step configure 150 configure || return
  local target
  for target in ${TARGETS-carried_to_gpus}; do
    step "build_$target" 590 cmake --build "$BUILD" -j "$JOBS" --target "$target" || return
  done
}
