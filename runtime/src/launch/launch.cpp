#include "runtime/launch/launch.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fmt/format.h>

#include "core/error.hpp"
#include "launch/launched_job.hpp"

namespace meshplan::runtime {

int launch_ranks(const LaunchSpec& spec) {
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
  int largest_share = spec.ranks;
  if (!spec.hosts.empty()) {
    std::string list;
    int slots = 0;
    int most_slots = 0;
    for (const HostSlots& host : spec.hosts) {
      list += fmt::format("{}{}:{}", list.empty() ? "" : ",", host.name, host.slots);
      slots += host.slots;
      most_slots = std::max(most_slots, host.slots);
    }
    const int rounds = (spec.ranks + slots - 1) / slots;  // hydra starts over when slots run out
    words.insert(words.end(), {"-hosts", list});
    const auto local = [](const HostSlots& host) { return is_this_machine(host.name); };
    const auto num_local = std::ranges::count_if(spec.hosts, local);
    if (num_local == std::ssize(spec.hosts)) words.insert(words.end(), {"-launcher", "fork"});
    // Several names of this machine share its cores.
    largest_share = num_local > 1 ? spec.ranks : std::min(spec.ranks, rounds * most_slots);
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
