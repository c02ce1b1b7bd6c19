#include "runtime/train/preflight.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/units.hpp"
#include "program/lower/lower.hpp"
#include "program/memory/saved_share.hpp"
#include "runtime/data/data.hpp"
#include "runtime/os/host_info.hpp"

namespace meshplan::runtime {

void check_data(const program::Plan& plan, const std::string& path, bool with_evaluation) {
  const TokenFile file(path);
  constexpr int kByteVocabulary = 256;
  if (file.format() == TokenFormat::Bytes && plan.model.vocab_size < kByteVocabulary)
    throw ConfigError(
        fmt::format("{}: text is read a byte a token, which needs vocab_size >= {}, but {} has {}; "
                    "use a file of token "
                    "ids (*.u16 or *.u32)",
                    path, kByteVocabulary, plan.model.name, plan.model.vocab_size));
  if (!with_evaluation) {
    const Sampler all(file, {0, file.size()}, plan, 0);
    if (plan.model.num_classes > 0) all.check_classes();
    return;
  }
  const DataSplit split = hold_out_tail(file, plan);
  const Sampler training(file, split.training, plan, 0);
  const Sampler evaluation(file, split.evaluation, plan, 0);
  if (plan.model.num_classes > 0) {
    training.check_classes();
    evaluation.check_classes();
  }
}

void check_memory(const program::Plan& plan, int ranks_on_host, int state_copies) {
  double largest = 0;
  for (const program::Program& program : program::lower_all(plan))
    largest = std::max(
        largest, static_cast<double>(program.memory.total_bytes() + program.memory.host_bytes() +
                                     state_copies * program::saved_bytes(program).fullest_rank));
  const double needed = largest * ranks_on_host;
  const auto available = static_cast<double>(detect_host().available_memory_bytes);
  if (available > 0 && needed > available)
    throw IoError(
        fmt::format("out of memory before the start: {} ranks on this host need up to {:.2f} GiB "
                    "each ({:.2f} GiB), but {:.2f} "
                    "GiB are free; use a smaller micro-batch, recompute, more stages or more hosts",
                    ranks_on_host, largest / kGib, needed / kGib, available / kGib));
}

void check_placement(const JobLayout& layout, int num_nodes, int ranks_per_node) {
  if (num_nodes > 0 && layout.num_machines() != num_nodes)
    throw ConfigError(
        fmt::format("the plan's cluster has {} node(s), but the job runs on {} machine(s); start "
                    "it on as many hosts, or "
                    "pass --any-placement",
                    num_nodes, layout.num_machines()));
  for (int machine = 0; machine < layout.num_machines() && ranks_per_node > 0; ++machine) {
    const auto ranks = static_cast<int>(layout.ranks_on(machine).size());
    if (ranks > ranks_per_node)
      throw ConfigError(
          fmt::format("the plan's cluster places up to {} ranks on a node, but machine {} runs {}; "
                      "give each host {} slots, "
                      "or pass --any-placement",
                      ranks_per_node, machine, ranks, ranks_per_node));
  }
}

}  // namespace meshplan::runtime
