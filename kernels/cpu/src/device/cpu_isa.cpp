#include "device/cpu_isa.hpp"

#include "core/error.hpp"

namespace meshplan::kernels {

CpuIsa best_cpu_isa() {
  // Each also asks the operating system whether it saves the wider registers.
  if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0)
    return CpuIsa::Avx512;
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
      __builtin_cpu_supports("bmi2") != 0)
    return CpuIsa::Avx2;
  return CpuIsa::Sse4;
}

std::string_view name_of(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::Sse4:
      return "sse4";
    case CpuIsa::Avx2:
      return "avx2";
    case CpuIsa::Avx512:
      return "avx512";
  }
  throw InvariantError("instruction set without a name");
}

const KernelTable& table_of(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::Sse4:
      return sse4::table();
    case CpuIsa::Avx2:
      return avx2::table();
    case CpuIsa::Avx512:
      return avx512::table();
  }
  throw InvariantError("instruction set without kernels");
}

}  // namespace meshplan::kernels
