#include "formats/text/launch_text.hpp"

#include <fmt/format.h>

#include "formats/nodes.hpp"

namespace meshplan::planner {

int steps_of_run(const program::Plan& plan) {
  constexpr int kSteps = 1000;
  const program::OptimizerConfig& optimizer = plan.workload.optimizer;
  return optimizer.decay_steps > 0 ? optimizer.decay_steps : kSteps;
}

std::string script_head(std::string_view what, std::string_view usage) {
  return fmt::format(
      "#!/usr/bin/env bash\n# {}\n#   {}\nset -euo pipefail\n"
      "here=$(cd \"$(dirname \"${{BASH_SOURCE[0]}}\")\" && pwd)\n",
      what, usage);
}

std::string torchrun_text(const ExportRequest& request) {
  const Nodes nodes = nodes_of(request);
  return fmt::format(
      "exec torchrun --nnodes={} --nproc-per-node={} --node-rank=\"${{NODE_RANK:-0}}\" \\\n"
      "  --rdzv-backend=c10d "
      "--rdzv-endpoint=\"${{MASTER_ADDR:-localhost}}:${{MASTER_PORT:-29500}}\" "
      "\\\n",
      nodes.count, nodes.ranks_each);
}

std::string starting_text(const ExportRequest& request, std::string_view script,
                          std::string_view notes) {
  const int nodes = nodes_of(request).count;
  std::string text = "## Starting it\n\n";
  text += nodes > 1 ? fmt::format(
                          "On each of the {} nodes, with its own NODE_RANK:\n\n"
                          "    NODE_RANK=0 MASTER_ADDR=node0 ./{}\n\n",
                          nodes, script)
                    : fmt::format("    ./{}\n\n", script);
  return text + std::string(notes);
}

}  // namespace meshplan::planner
