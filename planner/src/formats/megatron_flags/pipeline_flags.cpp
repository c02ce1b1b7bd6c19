// Flags of virtual stages and of how layers are divided over them.
#include <algorithm>
#include <fmt/format.h>

#include "core/limits.hpp"
#include "formats/megatron/layout.hpp"
#include "formats/megatron_flags/flag.hpp"

namespace meshplan::planner::megatron {
namespace {

using program::Plan;

constexpr const char* kAccountEmbedding = "--account-for-embedding-in-pipeline-split";
constexpr const char* kAccountLoss = "--account-for-loss-in-pipeline-split";
constexpr const char* kFirst = "--decoder-first-pipeline-num-layers";
constexpr const char* kLast = "--decoder-last-pipeline-num-layers";

/// Layers of each virtual stage where each rank's are divided evenly over its chunks.
std::vector<int> over_chunks(const std::vector<int>& of_rank, int vpp) {
  std::vector<int> layers;
  for (int chunk = 0; chunk < vpp; ++chunk)
    for (const int each : of_rank) layers.push_back(each / vpp);
  return layers;
}

/// Before anything is listed by stages.
void require_layers_for_stages(const Plan& plan) {
  const std::int64_t stages = std::int64_t{plan.parallel.pp} * plan.parallel.vpp;
  if (stages > plan.model.num_layers + 2)
    throw ConfigError(
        fmt::format("pp({}) * vpp({}) = {} stages for --num-layers {}; nearest pp: {}",
                    plan.parallel.pp, plan.parallel.vpp, stages, plan.model.num_layers,
                    std::max(1, plan.model.num_layers / plan.parallel.vpp)));
}

void read_virtual_stages(Reading& reading, const Argument* given) {
  Plan& plan = reading.plan;
  require_layers_for_stages(plan);
  plan.parallel.vpp = 1;
  if (given != nullptr)
    plan.parallel.vpp = static_cast<int>(reading.integer(*given, 1, limits::kLayers));
  const Argument* layers = reading.find("--num-layers-per-virtual-pipeline-stage");
  if (layers == nullptr) return require_layers_for_stages(plan);
  const std::int64_t each = reading.integer(*layers, 1, limits::kLayers);
  const std::int64_t all = plan.model.num_layers + (reading.has(kAccountEmbedding) ? 1 : 0) +
                           (reading.has(kAccountLoss) ? 1 : 0);
  const std::int64_t of_chunks = each * plan.parallel.pp;
  if (all % of_chunks != 0)
    Reading::fail(*layers,
                  fmt::format("{} layers are no multiple of {} * pp({}); nearest: {}", all, each,
                              plan.parallel.pp,
                              nearest_divisor(std::max(1, static_cast<int>(all / plan.parallel.pp)),
                                              static_cast<int>(each))));
  plan.parallel.vpp = static_cast<int>(all / of_chunks);
  require_layers_for_stages(plan);
}

void read_layout(Reading& reading, const Argument* given) {
  if (given == nullptr) return;
  Plan& plan = reading.plan;
  ParsedLayout layout;
  try {
    layout = parse_layout(reading.text(*given));
  } catch (const ConfigError& error) {
    Reading::fail(*given, error.what());
  }
  const int stages = static_cast<int>(layout.layers_per_stage.size());
  if (stages % plan.parallel.pp != 0)
    Reading::fail(*given,
                  fmt::format("has {} stages, no multiple of --pipeline-model-parallel-size"
                              " {}; nearest: {}",
                              stages, plan.parallel.pp, nearest_divisor(stages, plan.parallel.pp)));
  plan.parallel.vpp = stages / plan.parallel.pp;
  require_layers_for_stages(plan);
  plan.layers_per_stage = layout.layers_per_stage;
  if (!layout.stage_of_mtp || *layout.stage_of_mtp == stages - 1) return;
  if (layout.layers_per_stage[static_cast<std::size_t>(*layout.stage_of_mtp)] == 0)
    Reading::fail(*given,
                  fmt::format("stage {} has prediction modules alone; nearest: layers beside "
                              "them, or the modules on the last stage",
                              *layout.stage_of_mtp));
  reading.assume(fmt::format(
      "prediction modules lie on the last virtual stage ({} has them on stage {} of {})",
      given->flag, *layout.stage_of_mtp, stages));
}

/// --decoder-first-pipeline-num-layers and its like: of ranks, not of virtual stages.
void read_ends(Reading& reading, const Argument* last) {
  Plan& plan = reading.plan;
  const Argument* first = reading.find(kFirst);
  const int pp = plan.parallel.pp;
  if ((first == nullptr && last == nullptr) || pp == 1) return;
  const Argument& shown = first != nullptr ? *first : *last;
  std::int64_t left = plan.model.num_layers;
  int middle = pp;
  std::vector<int> of_rank(static_cast<std::size_t>(pp), 0);
  for (const auto& [argument, layers] :
       {std::pair{first, &of_rank.front()}, std::pair{last, &of_rank.back()}}) {
    if (argument == nullptr) continue;
    *layers = static_cast<int>(reading.integer(*argument, 1, limits::kLayers));
    left -= *layers;
    --middle;
  }
  if (left < 0 || (middle > 0 && (left == 0 || left % middle != 0)) || (middle == 0 && left != 0))
    Reading::fail(shown, fmt::format("leaves {} layers for {} stages between", left, middle));
  for (int& layers : of_rank)
    if (layers == 0) layers = static_cast<int>(left / std::max(middle, 1));
  for (const int layers : of_rank)
    if (layers % plan.parallel.vpp != 0)
      Reading::fail(shown, fmt::format("a stage's {} layers are no multiple of its {} chunks",
                                       layers, plan.parallel.vpp));
  plan.layers_per_stage = over_chunks(of_rank, plan.parallel.vpp);
}

void read_accounts(Reading& reading, bool loss) {
  Plan& plan = reading.plan;
  const bool embedding = reading.has(kAccountEmbedding);
  if (plan.parallel.pp == 1 || !plan.layers_per_stage.empty() || (!embedding && !loss)) return;
  const int stages = plan.parallel.pp * plan.parallel.vpp;
  const int all = plan.model.num_layers + (embedding ? 1 : 0) + (loss ? 1 : 0);
  if (all % stages != 0)
    throw ConfigError(fmt::format(
        "{}: {} layers, with those accounted for, are no multiple of pp({}) * vpp({}) = {}",
        embedding ? kAccountEmbedding : kAccountLoss, all, plan.parallel.pp, plan.parallel.vpp,
        stages));
  if (embedding && loss) {
    plan.count_ends_as_layers = true;
    return;
  }
  plan.layers_per_stage.assign(static_cast<std::size_t>(stages), all / stages);
  --(embedding ? plan.layers_per_stage.front() : plan.layers_per_stage.back());
}

/// Of what has been read: the schedule, and a division that is the default's is none.
void complete_pipeline(Reading& reading) {
  Plan& plan = reading.plan;
  plan.schedule =
      plan.parallel.vpp > 1 ? program::ScheduleKind::Interleaved : program::ScheduleKind::OneFOneB;
  const int stages = plan.parallel.pp * plan.parallel.vpp;
  if (plan.layers_per_stage.empty()) {
    if (stages > 1 && !plan.count_ends_as_layers && plan.model.num_layers % stages != 0)
      throw ConfigError(fmt::format(
          "--num-layers {} is no multiple of pp({}) * vpp({}) = {}: Megatron-LM refuses "
          "it without --pipeline-model-parallel-layout or "
          "--decoder-first-pipeline-num-layers",
          plan.model.num_layers, plan.parallel.pp, plan.parallel.vpp, stages));
    return;
  }
  Plan even = plan;
  even.layers_per_stage.clear();
  if (resolved_layers_per_stage(even) == plan.layers_per_stage) plan.layers_per_stage.clear();
}

/// The layers of the first or last stage where these alone differ.
Flag end_flag(const char* name, bool is_first) {
  return value(
      name, Group::Parallel,
      [is_first](const Plan& p) -> std::optional<std::string> {
        if (division_of(p) != Division::Ends) return std::nullopt;
        const std::vector<int> layers = resolved_layers_per_stage(p);
        return std::to_string(is_first ? layers.front() : layers.back());
      },
      [is_first](Reading& reading, const Argument* given) {
        if (!is_first) read_ends(reading, given);
      });
}

}  // namespace

std::vector<Flag> pipeline_flags() {
  const auto is_accounted = [](const Plan& p) { return division_of(p) == Division::Accounted; };
  return {
      value(
          "--num-virtual-stages-per-pipeline-rank", Group::Parallel,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.parallel.vpp == 1 || division_of(p) == Division::Layout) return std::nullopt;
            return std::to_string(p.parallel.vpp);
          },
          read_virtual_stages, "interleaved 1F1B"),
      value(
          "--pipeline-model-parallel-layout", Group::Parallel,
          [](const Plan& p) -> std::optional<std::string> {
            if (division_of(p) != Division::Layout) return std::nullopt;
            return layout_text(resolved_layers_per_stage(p), p.model.mtp_layers);
          },
          read_layout,
          "E embedding, t layer, m prediction module, L loss, | between (virtual) stages"),
      end_flag(kFirst, true),
      end_flag(kLast, false),
      toggle(kAccountEmbedding, Group::Parallel, is_accounted, [](Reading&, bool) {}),
      {kAccountLoss, Group::Parallel, 0, "",
       [is_accounted](const Plan& p) -> std::optional<Values> {
         if (!is_accounted(p)) return std::nullopt;
         return Values{};
       },
       [](Reading& reading, const Argument* given) {
         read_accounts(reading, given != nullptr);
         complete_pipeline(reading);
       }},
  };
}

}  // namespace meshplan::planner::megatron
