#include "planner/explain/plan_changes.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <set>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/parse_number.hpp"
#include "planner/search/space.hpp"
#include "program/plan/plan_names.hpp"
#include "sim/stacks/execution_profile.hpp"

namespace meshplan::planner {
namespace {

using program::Plan;
using program::RecomputeKind;
using program::ScheduleKind;

/// One choice: how it is read out of a text, and how it is shown.
struct PlanChoice {
  std::string_view name;
  void (*set)(Plan& plan, std::string_view name, const std::string& value);
  std::string (*text)(const Plan& plan);
};

[[noreturn]] void fail_value(std::string_view name, const std::string& value,
                             const std::string& expected) {
  throw ConfigError(fmt::format("{}={}: expected {}", name, value, expected));
}

int integer(std::string_view name, const std::string& value, int low,
            int high = static_cast<int>(limits::kRanks)) {
  if (const auto number = parse_integer(value, low, high)) return *number;
  fail_value(name, value, fmt::format("an integer from {} to {}", low, high));
}

template <NamedEnum E>
E named(std::string_view name, const std::string& value) {
  if (const auto known = from_name<E>(value)) return *known;
  throw ConfigError(
      fmt::format("{}={}: {}", name, value, unknown_name_message("value", value, all_names<E>())));
}

program::Recompute recompute_named(std::string_view name, const std::string& value) {
  try {
    return program::parse_recompute(value);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}={}: {}", name, value, error.what()));
  }
}

bool on_or_off(std::string_view name, const std::string& value) {
  if (value == "on" || value == "true" || value == "1") return true;
  if (value == "off" || value == "false" || value == "0") return false;
  fail_value(name, value, "on or off");
}

std::string text_of(bool on) {
  return on ? "on" : "off";
}

std::vector<int> integers(std::string_view name, const std::string& value) {
  std::vector<int> numbers;
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find(',', begin), value.size());
    numbers.push_back(integer(name, value.substr(begin, end - begin), 0));
    begin = end + 1;
  }
  return numbers;
}

template <int program::ParallelConfig::*kDegree>
constexpr PlanChoice degree(std::string_view name) {
  return {name,
          [](Plan& plan, std::string_view key, const std::string& value) {
            plan.parallel.*kDegree = integer(key, value, 1);
          },
          [](const Plan& plan) { return std::to_string(plan.parallel.*kDegree); }};
}

using program::ParallelConfig;

constexpr std::array kPlanChoices = {
    degree<&ParallelConfig::tp>("tp"),
    PlanChoice{"sp",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 plan.parallel.sp = on_or_off(key, value);
               },
               [](const Plan& plan) { return text_of(plan.parallel.sp); }},
    degree<&ParallelConfig::cp>("cp"),
    PlanChoice{
        "context_parallel",
        [](Plan& plan, std::string_view key, const std::string& value) {
          plan.context_parallel = named<program::ContextMethod>(key, value);
        },
        [](const Plan& plan) { return std::string(meshplan::name_of(plan.context_parallel)); }},
    degree<&ParallelConfig::pp>("pp"),
    degree<&ParallelConfig::vpp>("vpp"),
    PlanChoice{"schedule",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 plan.schedule = named<ScheduleKind>(key, value);
               },
               [](const Plan& plan) { return std::string(meshplan::name_of(plan.schedule)); }},
    degree<&ParallelConfig::dp>("dp"),
    degree<&ParallelConfig::ep>("ep"),
    degree<&ParallelConfig::etp>("etp"),
    PlanChoice{"expert_node_ranks",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 plan.expert_node_ranks = integer(key, value, 0);
               },
               [](const Plan& plan) { return std::to_string(plan.expert_node_ranks); }},
    PlanChoice{"expert_dispatch_fp8",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 plan.expert_dispatch_fp8 = on_or_off(key, value);
               },
               [](const Plan& plan) { return text_of(plan.expert_dispatch_fp8); }},
    PlanChoice{"mbs",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 plan.micro_batch_size = integer(key, value, 1);
               },
               [](const Plan& plan) { return std::to_string(plan.micro_batch_size); }},
    PlanChoice{"recompute",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 const program::Recompute wanted = recompute_named(key, value);
                 plan.recompute.kind = wanted.kind;
                 plan.recompute.modules = wanted.modules;
               },
               [](const Plan& plan) { return program::recompute_name(plan.recompute); }},
    PlanChoice{"recompute_layers",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 plan.recompute.layers_per_stage.clear();
                 plan.recompute.num_layers.reset();
                 if (value != "all") plan.recompute.num_layers = integer(key, value, 0);
               },
               [](const Plan& plan) {
                 const program::Recompute& recompute = plan.recompute;
                 if (!recompute.layers_per_stage.empty())
                   return fmt::format("{}", fmt::join(recompute.layers_per_stage, ","));
                 return recompute.num_layers ? std::to_string(*recompute.num_layers)
                                             : std::string("all");
               }},
    PlanChoice{"zero",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 plan.zero_stage = integer(key, value, 0, 3);
               },
               [](const Plan& plan) { return std::to_string(plan.zero_stage); }},
    PlanChoice{"zero_shard_group",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 plan.zero_shard_group = integer(key, value, 0);
               },
               [](const Plan& plan) { return std::to_string(plan.zero_shard_group); }},
    PlanChoice{"layers_per_stage",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 plan.layers_per_stage.clear();
                 if (value != "even") plan.layers_per_stage = integers(key, value);
               },
               [](const Plan& plan) {
                 return plan.layers_per_stage.empty()
                            ? std::string("even")
                            : fmt::format("{}", fmt::join(plan.layers_per_stage, ","));
               }},
    PlanChoice{"uneven_batch",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 plan.uneven_batch = on_or_off(key, value);
               },
               [](const Plan& plan) { return text_of(plan.uneven_batch); }},
    PlanChoice{"ends_as_layers",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 plan.count_ends_as_layers = on_or_off(key, value);
               },
               [](const Plan& plan) { return text_of(plan.count_ends_as_layers); }},
    PlanChoice{"offload_optimizer",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 plan.offload_optimizer = on_or_off(key, value);
               },
               [](const Plan& plan) { return text_of(plan.offload_optimizer); }},
    PlanChoice{"offload_parameters",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 plan.offload_parameters = on_or_off(key, value);
               },
               [](const Plan& plan) { return text_of(plan.offload_parameters); }},
    PlanChoice{"offload_activations",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 plan.offload_activations = integer(key, value, 0);
               },
               [](const Plan& plan) { return std::to_string(plan.offload_activations); }},
    PlanChoice{"deterministic",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 plan.deterministic = on_or_off(key, value);
               },
               [](const Plan& plan) { return text_of(plan.deterministic); }},
    PlanChoice{
        "compress",
        [](Plan& plan, std::string_view key, const std::string& value) {
          plan.compression.kind = named<program::CompressionKind>(key, value);
        },
        [](const Plan& plan) { return std::string(meshplan::name_of(plan.compression.kind)); }},
    PlanChoice{"bucket_bytes",
               [](Plan& plan, std::string_view key, const std::string& value) {
                 plan.bucket_bytes = integer(key, value, 1, std::numeric_limits<int>::max());
               },
               [](const Plan& plan) { return std::to_string(plan.bucket_bytes); }},
    PlanChoice{"order",
               [](Plan& plan, std::string_view, const std::string& value) {
                 program::Mesh::require_valid(ParallelConfig{}, value);
                 plan.rank_order = value;
               },
               [](const Plan& plan) { return plan.rank_order; }},
};

/// Other names that flags and plan files have for a choice.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kAliases = {
    {{"micro_batch", "mbs"},
     {"micro_batch_size", "mbs"},
     {"zero_stage", "zero"},
     {"shard_group", "zero_shard_group"},
     {"count_ends_as_layers", "ends_as_layers"}}};

struct Assignment {
  std::string key;
  std::string value;
};

std::string key_of(std::string word) {
  std::ranges::replace(word, '-', '_');
  for (const auto& [alias, name] : kAliases)
    if (word == alias) return std::string(name);
  return word;
}

/// "tp=8", "sp", "no-sp".
Assignment assignment_of(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals != std::string::npos) return {key_of(word.substr(0, equals)), word.substr(equals + 1)};
  const std::string key = key_of(word);
  for (const std::string_view flag :
       {"sp", "expert_dispatch_fp8", "offload_optimizer", "offload_parameters", "deterministic",
        "ends_as_layers", "uneven_batch"}) {
    if (key == flag) return {key, "on"};
    if (key == fmt::format("no_{}", flag)) return {std::string(flag), "off"};
  }
  throw ConfigError(
      fmt::format("'{}': expected CHOICE=VALUE with commas between them, for example tp=8,pp=2; "
                  "choices: {}",
                  word, fmt::join(choice_names(), ", ")));
}

bool is_number(const std::string& word) {
  return parse_integer(word, 0, static_cast<int>(limits::kRanks)).has_value();
}

/// Numbers after "layers_per_stage=9" belong to that list.
std::vector<Assignment> parse(std::string_view changes) {
  std::vector<Assignment> assignments;
  std::string text(changes);
  std::ranges::replace(text, ' ', ',');
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (word.empty()) continue;
    const bool goes_on =
        is_number(word) && !assignments.empty() && assignments.back().key == "layers_per_stage";
    if (goes_on)
      assignments.back().value += "," + word;
    else
      assignments.push_back(assignment_of(word));
  }
  if (assignments.empty())
    throw ConfigError("no changes are given; expected for example tp=8,pp=2");
  return assignments;
}

/// What follows from the choices that a text gives.
class Follow {
 public:
  Follow(Plan& plan, const std::set<std::string>& given, const Plan& before)
      : plan_(plan), given_(given), before_(before) {}

  void run() {
    pipeline();
    layers();
    tensor();
    zero();
    context();
    if (plan_.parallel.cp == 1) plan_.max_tokens_per_rank = 0;
    experts();
    if (before_.bucket_bytes == default_bucket_bytes(before_.parallel) && open("bucket_bytes"))
      plan_.bucket_bytes = default_bucket_bytes(plan_.parallel);
  }

 private:
  bool open(const std::string& choice) const { return !given_.contains(choice); }

  void pipeline() {
    program::ParallelConfig& p = plan_.parallel;
    const bool alone = p.pp == 1 && plan_.schedule != ScheduleKind::OverlappedOneFOneB;
    if (alone && open("schedule")) plan_.schedule = ScheduleKind::OneFOneB;
    if (p.pp > 1 && open("schedule") && !open("vpp")) {
      if (p.vpp == 1 && program::fewest_chunks(plan_.schedule) > 1)
        plan_.schedule = ScheduleKind::OneFOneB;
      if (p.vpp > 1 && !program::loops_over_chunks(plan_.schedule) &&
          program::fewest_chunks(plan_.schedule) == 1)
        plan_.schedule = ScheduleKind::Interleaved;
    }
    if (plan_.schedule != ScheduleKind::Custom) plan_.custom_schedule.clear();
    if (!open("vpp")) return;
    const int fewest = program::fewest_chunks(plan_.schedule);
    const bool keeps =
        program::loops_over_chunks(plan_.schedule) || plan_.schedule == ScheduleKind::Custom;
    p.vpp = keeps ? std::max(p.vpp, fewest) : fewest;
  }

  void layers() {
    const auto chunks =
        static_cast<std::size_t>(plan_.parallel.pp) * static_cast<std::size_t>(plan_.parallel.vpp);
    program::Recompute& recompute = plan_.recompute;
    if (open("layers_per_stage") && plan_.layers_per_stage.size() != chunks)
      plan_.layers_per_stage.clear();
    const bool as_before =
        recompute.kind == before_.recompute.kind && recompute.modules == before_.recompute.modules;
    const bool limited = as_before || recompute.kind == RecomputeKind::Full;
    if (recompute.layers_per_stage.size() != chunks || !limited) recompute.layers_per_stage.clear();
    if (open("recompute_layers") && !limited) recompute.num_layers.reset();
    if (!open("offload_activations")) return;
    const int most = (plan_.model.num_layers - 1) / static_cast<int>(chunks) + 1;
    plan_.offload_activations = program::has_whole_backwards(plan_.schedule)
                                    ? std::min(plan_.offload_activations, most)
                                    : 0;
  }

  /// Experts need sp beside tp.
  void tensor() {
    if (!open("sp")) return;
    program::ParallelConfig& p = plan_.parallel;
    p.sp = p.tp > 1 && (p.sp || plan_.model.moe.has_value());
  }

  void experts() {
    const int ep = plan_.parallel.ep;
    if (ep > 1)
      plan_.expected_expert_imbalance =
          std::min(plan_.expected_expert_imbalance, static_cast<double>(ep));
    const int ranks = plan_.expert_node_ranks;
    if (open("expert_node_ranks") && ranks > 0 && (ranks >= ep || ep % ranks != 0))
      plan_.expert_node_ranks = 0;
    if (open("expert_dispatch_fp8") && ep == 1) plan_.expert_dispatch_fp8 = false;
  }

  /// A way to exchange keys and values that the stack has.
  void context() {
    if (plan_.parallel.cp == 1 || !open("context_parallel")) return;
    const std::vector<program::ContextMethod>& methods =
        sim::load_execution_profile(plan_.stack.software).can.context_methods;
    if (!methods.empty() && std::ranges::find(methods, plan_.context_parallel) == methods.end())
      plan_.context_parallel = methods.front();
  }

  void zero() {
    const int sharing = plan_.parallel.dp * plan_.parallel.cp;
    if (sharing == 1 && open("zero")) plan_.zero_stage = 0;
    const bool may_offload = plan_.zero_stage == 3 && plan_.offload_optimizer;
    if (open("offload_parameters") && !may_offload) plan_.offload_parameters = false;
    const int group = plan_.zero_shard_group;
    const bool divides = plan_.zero_stage > 0 && group > 0 && sharing % group == 0;
    if (open("zero_shard_group") && !divides) plan_.zero_shard_group = 0;
    if (sharing == 1 && open("compress")) plan_.compression.kind = program::CompressionKind::None;
  }

  Plan& plan_;
  const std::set<std::string>& given_;
  const Plan& before_;
};

/// dp becomes what the other degrees leave of the ranks, unless it is given.
std::optional<program::Violation> use_all_ranks(Plan& plan, bool dp_is_given, int ranks) {
  ParallelConfig& p = plan.parallel;
  Constraints pins;
  pins.tp = p.tp;
  pins.cp = p.cp;
  pins.pp = p.pp;
  if (dp_is_given) pins.dp = p.dp;
  try {
    validate(pins, ranks);
  } catch (const ConfigError& error) {
    return program::Violation{.rule = "ranks", .message = error.what()};
  }
  if (!dp_is_given) p.dp = ranks / (p.tp * p.cp * p.pp);
  return std::nullopt;
}

}  // namespace

std::vector<std::string> choice_names() {
  std::vector<std::string> names;
  for (const PlanChoice& choice : kPlanChoices) names.emplace_back(choice.name);
  return names;
}

ChangedChoices change_choices(const Plan& plan, std::string_view changes) {
  ChangedChoices changed{.plan = plan};
  Plan& after = changed.plan;
  after.prediction.reset();
  std::set<std::string> given;
  for (const auto& [key, value] : parse(changes)) {
    const auto choice = std::ranges::find(kPlanChoices, key, &PlanChoice::name);
    if (choice == kPlanChoices.end())
      throw ConfigError(unknown_name_message("choice", key, choice_names()));
    choice->set(after, key, value);
    given.insert(key);
  }
  changed.broken = use_all_ranks(after, given.contains("dp"), plan.parallel.world_size());
  if (!changed.broken) Follow(after, given, plan).run();
  for (const PlanChoice& choice : kPlanChoices) {
    ChoiceChange change{std::string(choice.name), choice.text(plan), choice.text(after)};
    if (change.before == change.after) continue;
    (given.contains(change.name) ? changed.asked : changed.followed).push_back(std::move(change));
  }
  return changed;
}

}  // namespace meshplan::planner
