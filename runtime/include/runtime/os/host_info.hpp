#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace meshplan::runtime {

/// Instruction sets that kernels choose by at run time.
struct CpuFeatures {
  bool avx2 = false;
  bool avx512 = false;  // F, BW, DQ and VL
  bool avx512_bf16 = false;
  bool amx_bf16 = false;
  bool operator==(const CpuFeatures&) const = default;
};

struct HostInfo {
  std::string hostname;
  std::vector<int> cores;  // that this process may run on, by number
  int num_numa_nodes = 1;
  std::int64_t memory_bytes = 0;            // installed
  std::int64_t available_memory_bytes = 0;  // without swapping
  std::string cpu_model;
  CpuFeatures features;
};

/// This machine, as this process may use it. What cannot be read keeps its default.
HostInfo detect_host();

/// HostInfo::available_memory_bytes, now.
std::int64_t available_memory_bytes();

/// Resident memory of this process now, in bytes; 0 where it cannot be read.
double resident_bytes();

/// From the text of /proc/cpuinfo (x86: the "flags" line).
CpuFeatures parse_cpu_features(std::string_view cpuinfo);
std::string parse_cpu_model(std::string_view cpuinfo);
/// A field of /proc/meminfo in bytes; 0 if it is not there.
std::int64_t parse_meminfo(std::string_view meminfo, std::string_view field);
/// Members of a kernel list such as "0-3,8,10-11". @throws ConfigError
std::vector<int> parse_cpu_list(std::string_view list);

}  // namespace meshplan::runtime
