#include "runtime/os/host_info.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

constexpr const char* kCpuinfo =
    "processor\t: 0\nmodel name\t: Example CPU @ 2.00GHz\n"
    "flags\t\t: fpu avx2 avx512f avx512bw avx512dq avx512vl avx512_bf16 avx512cd\n\n"
    "processor\t: 1\nmodel name\t: Other\nflags\t\t: fpu\n";

TEST_CASE("CPU features come from whole flags of the first core", "[runtime][host_info]") {
  CHECK(parse_cpu_model(kCpuinfo) == "Example CPU @ 2.00GHz");
  CHECK(parse_cpu_features(kCpuinfo) ==
        CpuFeatures{.avx2 = true, .avx512 = true, .avx512_bf16 = true, .amx_bf16 = false});
  CHECK(parse_cpu_features("flags : avx2x avx512f amx_bf16\n") == CpuFeatures{});
  CHECK(parse_cpu_features("") == CpuFeatures{});
}

TEST_CASE("Memory sizes are kibibytes", "[runtime][host_info]") {
  const char* meminfo = "MemTotal:       49341234 kB\nMemFree: 5 kB\nMemAvailable:   12 kB\n";
  CHECK(parse_meminfo(meminfo, "MemTotal") == 49341234LL * 1024);
  CHECK(parse_meminfo(meminfo, "MemAvailable") == 12 * 1024);
  CHECK(parse_meminfo(meminfo, "SwapTotal") == 0);
}

TEST_CASE("Core lists are ranges and numbers", "[runtime][host_info]") {
  CHECK(parse_cpu_list("0-3,8,10-11\n") == std::vector<int>{0, 1, 2, 3, 8, 10, 11});
  CHECK(parse_cpu_list("").empty());
  CHECK_THROWS_AS(parse_cpu_list("3-1"), ConfigError);
  CHECK_THROWS_AS(parse_cpu_list("a"), ConfigError);
}

TEST_CASE("This machine has a name, cores and memory", "[runtime][host_info]") {
  const HostInfo info = detect_host();
  CHECK_FALSE(info.hostname.empty());
  CHECK_FALSE(info.cores.empty());
  CHECK(info.num_numa_nodes >= 1);
  CHECK(info.memory_bytes >= info.available_memory_bytes);
}

}  // namespace
}  // namespace meshplan::runtime
