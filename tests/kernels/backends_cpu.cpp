#include "kernels/backends.hpp"
#include "kernels/cpu_backend.hpp"

namespace meshplan::kernels::test {

std::vector<std::unique_ptr<Backend>> tested_backends() {
  std::vector<std::unique_ptr<Backend>> backends;
  for (const CpuIsa isa : {CpuIsa::Sse4, CpuIsa::Avx2, CpuIsa::Avx512}) {
    if (isa > best_cpu_isa()) continue;
    for (const int num_threads : {1, 2}) backends.push_back(make_cpu_backend(num_threads, isa));
  }
  return backends;
}

}  // namespace meshplan::kernels::test
