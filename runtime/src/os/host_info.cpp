#include "runtime/os/host_info.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <sched.h>
#include <set>
#include <sstream>
#include <unistd.h>

#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

std::string read_file(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

/// What follows "key ... :" on the first line that starts with `key`.
std::string_view value_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const auto colon = line.find(':');
    if (colon != std::string_view::npos && trimmed(line.substr(0, colon)) == key)
      return trimmed(line.substr(colon + 1));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

int parse_number(std::string_view digits, std::string_view list) {
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0)
    throw ConfigError(
        fmt::format("core list '{}': '{}' is not a core number; write e.g. 0-3,8", list, digits));
  return value;
}

}  // namespace

CpuFeatures parse_cpu_features(std::string_view cpuinfo) {
  std::istringstream stream{std::string(value_of(cpuinfo, "flags"))};
  std::set<std::string> flags;
  for (std::string flag; stream >> flag;) flags.insert(flag);
  const auto has = [&](const char* flag) { return flags.contains(flag); };
  return {.avx2 = has("avx2"),
          .avx512 = has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl"),
          .avx512_bf16 = has("avx512_bf16"),
          .amx_bf16 = has("amx_bf16") && has("amx_tile")};
}

std::string parse_cpu_model(std::string_view cpuinfo) {
  return std::string(value_of(cpuinfo, "model name"));
}

std::int64_t parse_meminfo(std::string_view meminfo, std::string_view field) {
  const std::string_view value = value_of(meminfo, field);
  std::int64_t kib = 0;
  std::from_chars(value.data(), value.data() + value.size(), kib);
  return kib * 1024;
}

std::vector<int> parse_cpu_list(std::string_view list) {
  std::vector<int> members;
  std::string_view rest = trimmed(list);
  while (!rest.empty()) {
    const auto end = std::min(rest.find(','), rest.size());
    const std::string_view item = trimmed(rest.substr(0, end));
    const auto dash = item.find('-');
    const int first = parse_number(item.substr(0, dash), list);
    const int last =
        dash == std::string_view::npos ? first : parse_number(item.substr(dash + 1), list);
    if (last < first)
      throw ConfigError(fmt::format("core list '{}': '{}' runs backwards", list, item));
    for (int core = first; core <= last; ++core) members.push_back(core);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return members;
}

std::int64_t available_memory_bytes() {
  return parse_meminfo(read_file("/proc/meminfo"), "MemAvailable");
}

HostInfo detect_host() {
  HostInfo info;
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) == 0) info.hostname = name;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &allowed)) info.cores.push_back(core);
  const std::string nodes = read_file("/sys/devices/system/node/online");
  if (!trimmed(nodes).empty()) info.num_numa_nodes = static_cast<int>(parse_cpu_list(nodes).size());
  const std::string meminfo = read_file("/proc/meminfo");
  info.memory_bytes = parse_meminfo(meminfo, "MemTotal");
  info.available_memory_bytes = parse_meminfo(meminfo, "MemAvailable");
  const std::string cpuinfo = read_file("/proc/cpuinfo");
  info.cpu_model = parse_cpu_model(cpuinfo);
  info.features = parse_cpu_features(cpuinfo);
  return info;
}

double resident_bytes() {
  std::ifstream pages("/proc/self/statm");
  double total = 0;
  double resident = 0;
  pages >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

}  // namespace meshplan::runtime
