#include "formats/accelerate/read_plugin.hpp"

#include <array>
#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::planner {
namespace accelerate {
namespace {

using program::Plan;
using program::RecomputeKind;

constexpr std::array<std::string_view, 2> kGranularities = {"full", "selective"};
constexpr std::array<std::string_view, 2> kMethods = {"uniform", "block"};

class PluginReader {
 public:
  PluginReader(Settings& in, int processes, ImportedPlan& imported)
      : in_(in), processes_(processes), imported_(imported) {}

  std::optional<int> run() {
    imported_.plan.stack.software = "megatron-core";
    read_degrees();
    read_recompute();
    plan().zero_stage = flag("use_distributed_optimizer").value_or(false) ? 1 : 0;
    plan().offload_optimizer = flag("optimizer_cpu_offload").value_or(false);
    if (const auto clip = in_.number(path("gradient_clipping")))
      plan().workload.optimizer.clip_norm = *clip;
    return in_.small(path("num_micro_batches"));
  }

 private:
  Plan& plan() { return imported_.plan; }
  static std::string path(std::string_view name) {
    return fmt::format("megatron_lm_config.megatron_lm_{}", name);
  }
  std::optional<bool> flag(std::string_view name) { return in_.flag(path(name)); }
  int degree(std::string_view name) { return in_.small(path(name)).value_or(1); }

  void read_degrees() {
    program::ParallelConfig& p = plan().parallel;
    p.tp = degree("tp_degree");
    p.pp = degree("pp_degree");
    if (!in_.has(path("context_parallel_size")))
      imported_.assumptions.emplace_back(
          "parallel.cp = 1 (accelerate at 16cb6eb8 takes 2 where the file has no "
          "megatron_lm_context_parallel_size)");
    p.cp = degree("context_parallel_size");
    p.ep = degree("expert_model_parallel_size");
    p.etp = degree("expert_tensor_parallel_size");
    p.sp = p.tp > 1 && flag("sequence_parallelism").value_or(false);
    plan().context_parallel = program::ContextMethod::Ring;
    const double replica = static_cast<double>(p.tp) * p.pp * p.cp;
    if (replica > processes_ || processes_ % (p.tp * p.pp * p.cp) != 0)
      throw ConfigError(
          fmt::format("{}: num_processes: {} is not divisible by tp_degree({}) * pp_degree({}) * "
                      "context_parallel_size({}) = {:.0f}",
                      in_.file(), processes_, p.tp, p.pp, p.cp, replica));
    p.dp = processes_ / (p.tp * p.pp * p.cp);
    read_division();
  }

  void read_division() {
    const int layers = plan().model.num_layers;
    const int pp = plan().parallel.pp;
    const std::string last = path("decoder_last_pipeline_num_layers");
    const auto held = in_.small(last, between(1, limits::kLayers));
    if (!held || pp == 1) return;
    if (*held > layers || (layers - *held) % (pp - 1) != 0)
      in_.fail(last,
               fmt::format("a number that leaves the other {} stages equal shares of {} layers",
                           pp - 1, layers));
    plan().layers_per_stage.assign(static_cast<std::size_t>(pp), (layers - *held) / (pp - 1));
    plan().layers_per_stage.back() = *held;
  }

  void read_recompute() {
    const auto granularity = in_.word(path("recompute_granularity"), kGranularities);
    const auto activations = flag("recompute_activations");
    const auto method = in_.word(path("recompute_method"), kMethods);
    const auto layers = in_.small(path("recompute_num_layers"), between(0, limits::kLayers));
    if (!granularity) {
      plan().recompute.kind =
          activations.value_or(false) ? RecomputeKind::Selective : RecomputeKind::None;
      imported_.assumptions.push_back(fmt::format(
          "recompute.kind = {} (recompute_activations; accelerate at 16cb6eb8 recomputes whole "
          "layers where there is no megatron_lm_recompute_granularity)",
          activations.value_or(false) ? "selective" : "none"));
      return;
    }
    plan().recompute.kind = *granularity == "full" ? RecomputeKind::Full : RecomputeKind::Selective;
    if (*granularity == "full" && method && *method == "block")
      plan().recompute.num_layers = layers;
  }

  Settings& in_;
  int processes_;
  ImportedPlan& imported_;
};

}  // namespace
}  // namespace accelerate

std::optional<int> read_megatron_plugin(Settings& in, int processes, ImportedPlan& imported) {
  return accelerate::PluginReader(in, processes, imported).run();
}

}  // namespace meshplan::planner
