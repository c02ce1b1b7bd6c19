#include "os/out_of_memory.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <sys/resource.h>
#include <unistd.h>

#include "core/units.hpp"
#include "os/process_watch.hpp"
#include "runtime/os/host_info.hpp"

namespace meshplan::runtime {
namespace {

std::string text_of_file(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

/// This process's folder below `mount` in the hierarchy of `controller` ("" is version 2's only
/// one); a container may show its own part as the root.
std::string cgroup_folder(const std::string& mount, std::string_view controller,
                          const std::string& file) {
  std::istringstream lines(text_of_file("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    if (std::string_view(line).substr(first + 1, second - first - 1) != controller) continue;
    for (const std::string& folder : {mount + line.substr(second + 1), mount})
      if (std::ifstream(folder + "/" + file)) return folder;
  }
  return {};
}

constexpr const char* kMachineCounters = "/proc/vmstat";
constexpr std::string_view kKills = "oom_kill";

std::int64_t kills_in(const std::string& file) {
  return file.empty() ? 0 : counter_in(text_of_file(file), kKills);
}

/// " of 2.00 GiB"; empty without a limit that means anything.
std::string limit_text(const std::string& file) {
  std::int64_t bytes = 0;
  const std::string text = text_of_file(file);  // "max" in version 2, about 2^63 in version 1
  std::from_chars(text.data(), text.data() + text.size(), bytes);
  constexpr std::int64_t kLargest = std::int64_t{1} << 60;
  return bytes > 0 && bytes < kLargest
             ? fmt::format(" of {:.2f} GiB", static_cast<double>(bytes) / kGib)
             : std::string();
}

}  // namespace

std::int64_t counter_in(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ' ') {
      std::int64_t value = 0;
      std::from_chars(line.data() + key.size() + 1, line.data() + line.size(), value);
      return value;
    }
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return 0;
}

OutOfMemoryKills::OutOfMemoryKills() {
  const std::string second = cgroup_folder("/sys/fs/cgroup", "", "memory.events");
  const std::string first = cgroup_folder("/sys/fs/cgroup/memory", "memory", "memory.oom_control");
  if (!second.empty()) {
    events_file_ = second + "/memory.events";
    limit_file_ = second + "/memory.max";
  } else if (!first.empty()) {
    events_file_ = first + "/memory.oom_control";
    limit_file_ = first + "/memory.limit_in_bytes";
  }
  in_cgroup_ = kills_in(events_file_);
  on_machine_ = kills_in(kMachineCounters);
}

std::string OutOfMemoryKills::since_start() const {
  if (kills_in(events_file_) > in_cgroup_)
    return fmt::format(
        "the kernel's out-of-memory killer has ended a process of its cgroup, which has a limit{}",
        limit_text(limit_file_));
  if (kills_in(kMachineCounters) > on_machine_)
    return "the kernel's out-of-memory killer has ended a process of its machine";
  return {};
}

std::string describe_refused_memory(const std::exception& error) {
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return fmt::format("out of memory: {}; it holds {:.2f} GiB{}; {:.2f} GiB are free on its machine",
                     error.what(), resident_bytes_of(::getpid()) / kGib,
                     limited
                         ? fmt::format(", its address space is limited to {:.2f} GiB (ulimit -v)",
                                       static_cast<double>(limit.rlim_cur) / kGib)
                         : std::string(),
                     static_cast<double>(detect_host().available_memory_bytes) / kGib);
}

}  // namespace meshplan::runtime
