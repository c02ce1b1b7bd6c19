#include "checks/step_limits.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/index.hpp"
#include "core/limits.hpp"
#include "program/schedule/generators.hpp"

namespace meshplan::program {
namespace {

/// Values of a token in the widest tensor of a layer.
double widest_value(const models::ModelSpec& model) {
  const double stream = std::max(static_cast<double>(model.hidden_size),
                                 static_cast<double>(model.num_heads) * model.head_size);
  double widest = std::max({stream, static_cast<double>(model.ffn_size),
                            static_cast<double>(model.vocab_size) / model.num_layers});
  if (model.moe)
    widest = std::max(
        {widest, static_cast<double>(model.moe->shared_expert_ffn_size),
         model.moe->top_k * std::max(stream, static_cast<double>(model.moe->expert_ffn_size))});
  return widest;
}

}  // namespace

std::vector<Violation> beyond_limits(const Plan& plan) {
  std::vector<Violation> violations;
  const ParallelConfig& parallel = plan.parallel;
  const std::int64_t seq_len = plan.workload.seq_len;
  const std::int64_t global = plan.workload.global_batch_size;
  const std::int64_t tokens = plan.micro_batch_size * seq_len;
  if (tokens > limits::kTokens)
    violations.push_back(
        {"tokens", fmt::format("micro_batch_size({}) * seq_len({}) = {} tokens; at most {} are "
                               "supported: use a smaller micro_batch_size",
                               plan.micro_batch_size, seq_len, tokens, limits::kTokens)});
  const std::int64_t microbatches = plan.num_microbatches();
  const std::int64_t generated = generated_microbatches(plan.schedule, parallel.pp, microbatches);
  const double tasks =
      static_cast<double>(parallel.pp) * parallel.vpp * static_cast<double>(generated);
  if (tasks > static_cast<double>(limits::kTasks))
    violations.push_back(
        {"tasks",
         fmt::format("pp({}) * vpp({}) * micro-batches({}{}) = {:.10g} tasks of a schedule; "
                     "at most {} are supported: use {}",
                     parallel.pp, parallel.vpp, generated,
                     generated > microbatches ? " to fill the pipeline" : "", tasks, limits::kTasks,
                     generated > microbatches ? "fewer stages"
                                              : "a larger micro_batch_size or dp, or a smaller "
                                                "global_batch_size")});
  const double widest = widest_value(plan.model);
  const double elements =
      static_cast<double>(seq_len) * static_cast<double>(global) * plan.model.num_layers * widest;
  if (elements > limits::kStepElements)
    violations.push_back(
        {"elements",
         fmt::format("seq_len({}) * global_batch_size({}) * num_layers({}) * widest value({:.10g}) "
                     "= {:.3g} elements of a step; at most {:g} are supported: use a smaller "
                     "global_batch_size",
                     seq_len, global, plan.model.num_layers, widest, elements,
                     limits::kStepElements)});
  return violations;
}

void require_listable(const Plan& plan, int layers, std::string_view which, std::int64_t most) {
  const std::int64_t runs = std::int64_t{layers} * plan.num_microbatches();
  if (runs > most)
    throw ConfigError(
        fmt::format("{} layers {} * {} micro-batches = {} layers to run; programs list at most {}: "
                    "use a larger micro_batch_size or dp",
                    layers, which, plan.num_microbatches(), runs, most));
}

std::int64_t listed_operations(const Program& program, const std::vector<bool>& merged) {
  struct Counts {
    std::int64_t layers = 0, forward = 0, backward = 0;
    std::int64_t deferrable = 0;  // of the backward pass
  };
  std::vector<Counts> chunks(program.chunks.size());
  for (const LayerInstance& layer : program.layers) {
    const Block& block = program.blocks[at(layer.block)];
    Counts& counts = chunks[at(layer.chunk)];
    ++counts.layers;
    counts.forward += std::ssize(block.forward);
    counts.backward += std::ssize(block.backward);
    counts.deferrable += std::ranges::count(block.backward, true, &Operation::deferrable);
  }
  constexpr int kAtTheEnds = 3;  // about as many are listed of a task whose layers are merged
  std::int64_t all = 0;
  for (std::size_t i = 0; i < program.tasks.size(); ++i)
    for (const Task& part : parts_of(program.tasks[i])) {
      const Counts& counts = chunks[at(part.chunk)];
      if (!merged.empty() && merged[i])
        all += counts.layers + kAtTheEnds;
      else if (part.kind == TaskKind::Forward)
        all += counts.forward;
      else if (part.kind == TaskKind::BackwardWeight)
        all += counts.deferrable;
      else
        all += counts.backward - (part.kind == TaskKind::BackwardInput ? counts.deferrable : 0);
    }
  return all;
}

std::int64_t require_listable(const Program& program, std::int64_t before,
                              const std::vector<bool>& merged) {
  const std::int64_t operations = listed_operations(program, merged);
  const std::int64_t all = before + operations;
  if (all > limits::kListedOperations)
    throw ConfigError(fmt::format(
        "{} operations of {} micro-batches on stage {}{} = {} operations to list; programs list at "
        "most {}: use a larger micro_batch_size or dp",
        operations, program.plan.num_microbatches(), program.role.stage,
        before > 0 ? fmt::format(" + {} of the stages before", before) : "", all,
        limits::kListedOperations));
  return all;
}

}  // namespace meshplan::program
