# build: configures and compiles, kernel tests and benches first; to be sourced by gpu_check.sh.

configure() {
  local options=(-DCMAKE_BUILD_TYPE=Release -DMESHPLAN_CUDA=ON -DMESHPLAN_WERROR=OFF "-DMPIEXEC_PREFLAGS=-launcher;fork")
  local prefixes=()
  if [ -n "$deps" ]; then
    local multiarch=$deps/usr/lib/x86_64-linux-gnu
    prefixes+=("$deps/usr")
    options+=("-DCMAKE_LIBRARY_PATH=$multiarch;$deps/lib" "-DCMAKE_BUILD_RPATH=$deps/lib"
              "-DCMAKE_EXE_LINKER_FLAGS=-Wl,-rpath-link,$deps/lib"
              -DMPI_CXX_SKIP_MPICXX=ON -DMPI_ASSUME_NO_BUILTIN_MPI=ON -DMPI_CXX_COMPILER=NOTFOUND
              "-DMPI_CXX_HEADER_DIR=$deps/usr/include/x86_64-linux-gnu/mpich" -DMPI_CXX_LIB_NAMES=mpich
              "-DMPI_mpich_LIBRARY=$multiarch/libmpich.so" "-DMPIEXEC_EXECUTABLE=$deps/bin/mpiexec")
  fi
  # before the toolkit: CMake looks into prefixes first
  [ ! -d "$BUILD/nvidia" ] || prefixes=("$BUILD/nvidia" "${prefixes[@]}")
  [ ${#prefixes[@]} -eq 0 ] || options+=("-DCMAKE_PREFIX_PATH=$(IFS=';'; echo "${prefixes[*]}")")
  local architectures=${ARCHITECTURES:-}
  if [ -z "$architectures" ] && [ "$num_gpus" -gt 0 ]; then
    architectures=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -u |
      sed 's/$/-real/' | paste -sd';')
  fi
  [ -z "$architectures" ] || options+=("-DCMAKE_CUDA_ARCHITECTURES=$architectures")
  [ -f "$BUILD/CMakeCache.txt" ] || ! command -v ninja >/dev/null || options+=(-G Ninja)
  CUDACXX=$nvcc cmake -S "$root" -B "$BUILD" "${options[@]}"
}

# What the other stages run, without symbols: PROGRAMS on the next machine.
pack_programs() {
  local file
  for file in cli/meshplan{,-cuda} tests/{test_kernels_cuda,test_cuda_libraries,cuda_mpi_test} \
              bench/cuda/cuda_{attention,gemm,grouped_gemm,memory}_bench; do
    if [ ! -x "$programs/$file" ]; then
      echo "not there: $file"
      continue
    fi
    mkdir -p "$results/programs/$(dirname "$file")"
    strip -o "$results/programs/$file" "$programs/$file" 2>/dev/null ||
      cp "$programs/$file" "$results/programs/$file"
  done
  [ ! -d "$results/programs" ] || du -sh "$results/programs" | cut -f1
}

# Every library that the programs load is there.
load_programs() {
  local file
  for file in cli/meshplan-cuda tests/test_kernels_cuda; do
    if ldd "$programs/$file" | grep 'not found'; then
      echo "$file: the libraries above are missing"
      return 1
    fi
  done
  "$meshplan" --version
}

stage_build() {
  if [ -n "$PROGRAMS" ]; then
    step load 60 load_programs
    return
  fi
  if [ -z "$nvcc" ]; then
    local reason="no CUDA toolkit: there is no nvcc; PROGRAMS names programs built beforehand"
    if [ "$num_gpus" -eq 0 ]; then skip configure "$reason"; else refuse configure "$reason"; fi
    return
  fi
  step configure 150 configure || return
  local target
  for target in ${TARGETS-gpu_check_kernels gpu_check_programs}; do
    step "build_$target" 450 cmake --build "$BUILD" -j "$JOBS" --target "$target" || return
  done
  [ -z "${TARGETS-all}" ] || step pack 60 pack_programs
}
