#include "kernels/cpu_backend.hpp"

#include "core/error.hpp"
#include "kernels/support.hpp"

namespace meshplan::kernels::test {

TEST_CASE("a CPU backend names its instruction set and threads", "[kernels][backend]") {
  const auto backend = make_cpu_backend(2, CpuIsa::Sse4);
  CHECK(backend->name() == "cpu sse4 2 threads");
  CHECK(backend->num_threads() == 2);
}

TEST_CASE("a CPU backend needs a thread", "[kernels][backend]") {
  CHECK_THROWS_AS(make_cpu_backend(0), ConfigError);
}

TEST_CASE("device memory is page-aligned, zero and copies both ways", "[kernels][backend]") {
  for_each_backend([](Backend& backend) {
    const DeviceVector<float> values(backend, {1.0F, 2.0F, 3.0F});
    const DeviceMemory memory(backend, 100000);
    CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % 4096 == 0);
    std::vector<char> host(100000, 'x');
    backend.copy_to_host(host.data(), memory.data(), 100000);
    CHECK(std::count(host.begin(), host.end(), 0) == 100000);
    backend.copy(memory.data(), values.data(), 12);
    std::vector<float> back(3);
    backend.copy_to_host(back.data(), memory.data(), 12);
    CHECK(back == std::vector<float>{1.0F, 2.0F, 3.0F});
    backend.zero(memory.data(), 8);
    backend.copy_to_host(back.data(), memory.data(), 12);
    CHECK(back == std::vector<float>{0.0F, 0.0F, 3.0F});
  });
}

TEST_CASE("operations refuse types that kernels do not compute in", "[kernels][backend]") {
  for_each_backend([](Backend& backend) {
    const DeviceMemory memory(backend, 64);
    CHECK_THROWS_AS(backend.run(Fill{8, DType::I32, memory.data(), 0.0F}), InvariantError);
    CHECK_THROWS_AS(backend.run(Scale{4, DType::F64, 1.0F, memory.data(), memory.data()}),
                    InvariantError);
  });
}

}  // namespace meshplan::kernels::test
