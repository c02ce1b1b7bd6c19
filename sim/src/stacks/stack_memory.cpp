#include "sim/stacks/stack_memory.hpp"

#include <fmt/format.h>
#include <optional>

#include "sim/engine/memory.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/execution_profile.hpp"
#include "sim/stacks/run_prediction.hpp"
#include "sim/stacks/software.hpp"
#include "stacks/memory/run_memory.hpp"

namespace meshplan::sim {

double default_memory_reserve(const program::Stack& stack, const models::ModelSpec& model) {
  return memory_margin(stack, model.moe ? 2 * kMemoryReserve : kMemoryReserve);
}

ShownMemory shown_memory(const RunMemory& memory) {
  return {.allocated_bytes = memory.allocated(),
          .reserved_bytes = memory.reserved,
          .device_bytes = memory.visible};
}

std::vector<std::string> other_verdicts(const program::Plan& plan, const Cluster& cluster,
                                        double margin) {
  std::vector<std::string> others;
  const SoftwareRelease software = parse_software(plan.stack.software);
  if (plan.stack.is_own() || software.release) return others;
  const Releases& releases = load_execution_profile(software.name).releases;
  const auto verdict = [&](const std::string& name) {
    program::Plan of_release = plan;
    of_release.stack.software = name;
    const PreparedRun run(run_of(of_release, cluster.name), data_sheet_of(cluster));
    return verdict_of(fullest(run.memory_of_stages()).need(), margin);
  };
  std::vector<std::string> since;
  if (!releases.oldest.empty()) since.push_back(releases.oldest);
  for (const ReleaseChange& change : releases.changes)
    if (since.empty() || since.back() != change.since) since.push_back(change.since);
  const MemoryVerdict newest = verdict(software.name);
  std::optional<MemoryVerdict> last;
  for (const std::string& release : since) {
    const std::string name = software.name + "@" + release;
    const MemoryVerdict then = verdict(name);
    if (then != newest && then != last)
      others.push_back(fmt::format("{}: {}", name, name_of(then)));
    last = then;
  }
  return others;
}

}  // namespace meshplan::sim
