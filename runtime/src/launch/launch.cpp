#include "runtime/launch/launch.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fmt/format.h>

#include "core/error.hpp"
#include "launch/launched_job.hpp"

namespace meshplan::runtime {

int launch_ranks(const LaunchSpec& spec) {
  return run_job(spec).code;
}

JobEnd run_job(const LaunchSpec& spec) {
  return LaunchedJob(spec).run();
}

std::optional<OuterLaunch> detect_outer_launch(const EnvironmentLookup& environment) {
  const auto number = [&](const char* name) -> std::optional<int> {
    const char* text = environment(name);
    int value = 0;
    if (text == nullptr) return std::nullopt;
    const char* end = text + std::strlen(text);
    const auto parsed = std::from_chars(text, end, value);
    return parsed.ec == std::errc() && parsed.ptr == end ? std::optional(value) : std::nullopt;
  };
  const auto pmi_rank = number("PMI_RANK");
  const auto pmi_size = number("PMI_SIZE");
  const auto slurm_rank = number("SLURM_PROCID");
  const auto slurm_size = number("SLURM_NTASKS");
  // A batch script of Slurm has SLURM_PROCID=0 too; only srun's tasks have a step with a launcher.
  const bool in_srun = slurm_rank && slurm_size && environment("SLURM_SRUN_COMM_HOST") != nullptr;
  if (in_srun) return OuterLaunch{"srun", *slurm_rank, *slurm_size};
  if (pmi_rank && pmi_size) return OuterLaunch{"mpiexec", *pmi_rank, *pmi_size};
  return std::nullopt;
}

std::vector<std::string> mpiexec_command(const LaunchSpec& spec) {
  if (spec.ranks < 1)
    throw ConfigError(fmt::format("launch: ranks = {}; at least 1 is needed", spec.ranks));
  if (spec.command.empty()) throw ConfigError("launch: there is no program to run");
  std::vector<std::string> words{spec.mpiexec, "-n", std::to_string(spec.ranks)};
  const int largest_share = ranks_on_fullest_host(spec.hosts, spec.ranks);
  if (!spec.hosts.empty()) {
    std::string list;
    for (const HostSlots& host : spec.hosts)
      list += fmt::format("{}{}:{}", list.empty() ? "" : ",", host.name, host.slots);
    words.insert(words.end(), {"-hosts", list});
    const auto is_here = [](const HostSlots& host) { return is_this_machine(host.name); };
    if (std::ranges::all_of(spec.hosts, is_here)) words.insert(words.end(), {"-launcher", "fork"});
  }
  const int wanted = largest_share * spec.cores_per_rank;
  if (spec.bind_to_cores && spec.cores_per_rank > 1 && wanted <= spec.cores_per_host) {
    const std::string cores = fmt::format("core:{}", spec.cores_per_rank);
    words.insert(words.end(), {"-bind-to", cores, "-map-by", cores});
  } else if (spec.bind_to_cores &&
             (spec.cores_per_rank == 1 ? largest_share <= spec.cores_per_host
                                       : largest_share == spec.cores_per_host)) {
    words.insert(words.end(), {"-bind-to", "core", "-map-by", "core"});
  }
  for (const std::string& variable : spec.environment) {
    const auto equals = variable.find('=');
    if (equals == std::string::npos || equals == 0)
      throw ConfigError(fmt::format("launch: environment '{}': write it as NAME=VALUE", variable));
    words.insert(words.end(), {"-genv", variable.substr(0, equals), variable.substr(equals + 1)});
  }
  words.insert(words.end(), spec.command.begin(), spec.command.end());
  return words;
}

}  // namespace meshplan::runtime
