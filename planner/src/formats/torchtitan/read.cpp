// A plan out of what either form of torchtitan's configuration says.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "formats/text/documents.hpp"
#include "formats/text/imported.hpp"
#include "formats/text/script_arguments.hpp"
#include "formats/torchtitan/arguments.hpp"
#include "formats/torchtitan/models.hpp"
#include "formats/torchtitan/pipeline.hpp"
#include "formats/torchtitan/reading.hpp"
#include "formats/torchtitan/torchtitan.hpp"
#include "planner/search/space.hpp"
#include "program/schedule/csv.hpp"
#include "program/schedule/generators.hpp"

namespace meshplan::planner {
namespace torchtitan {
namespace {

using program::Plan;
using program::RecomputeKind;
using program::ScheduleKind;

class TitanPlanner {
 public:
  TitanPlanner(Reading reading, const ImportRequest& request, std::string file,
               ImportedPlan imported)
      : in_(std::move(reading)),
        request_(request),
        file_(std::move(file)),
        result_(std::move(imported)) {}

  ImportedPlan run() {
    for (std::string& line : in_.assumptions) assume(std::move(line));
    model();
    degrees();
    sharding();
    batch();
    pipeline();
    recompute();
    program::set_precision(plan().workload, in_.precision);
    plan().workload.optimizer = in_.optimizer;
    plan().offload_optimizer = in_.offload;
    plan().bucket_bytes = default_bucket_bytes(plan().parallel);
    settings();
    plan().stack.software = "torchtitan";
    plan().stack.settings.compile = in_.compiled;
    check_ranks(request_, plan(), "parallelism");
    return std::move(result_);
  }

 private:
  Plan& plan() { return result_.plan; }
  void assume(std::string line) { result_.assumptions.push_back(std::move(line)); }
  [[noreturn]] void fail(std::string_view rule) const {
    throw ConfigError(fmt::format("{}: {}", file_, rule));
  }

  void model() {
    if (request_.model) {
      plan().model = *request_.model;
      return;
    }
    if (in_.model) {
      plan().model = *in_.model;
      assume(fmt::format("model = {} ({} {}, as its files build it)", in_.model->name, in_.family,
                         in_.flavor));
      return;
    }
    const auto known = model_of(in_.family, in_.flavor);
    if (!known) {
      std::vector<std::string> names;
      for (const Flavor& each : flavors())
        names.push_back(fmt::format("{} {}", each.family, each.name));
      fail(
          fmt::format("flavor '{}' of model '{}' is not known here; give the model with --model, "
                      "or use one of {}",
                      in_.flavor, in_.family, fmt::join(names, ", ")));
    }
    plan().model = *known;
    assume(fmt::format("model = {} (flavor {} of {})", known->name, in_.flavor, in_.family));
    if (!in_.num_layers) return;
    plan().model.num_layers = std::min(plan().model.num_layers, *in_.num_layers);
    if (plan().model.moe)
      std::erase_if(plan().model.moe->dense_layers,
                    [&](int layer) { return layer >= plan().model.num_layers; });
  }

  void degrees() {
    program::ParallelConfig& p = plan().parallel;
    p.tp = in_.tp;
    p.cp = in_.cp;
    p.pp = in_.pp;
    p.ep = plan().model.moe ? in_.ep : 1;
    p.sp = p.tp > 1 && in_.sequence_parallel;
    // Experts are cut like the rest where no ranks are theirs.
    p.etp = !plan().model.moe ? 1 : in_.etp.value_or(p.tp);
    if (in_.shard == 0) fail("parallelism.data_parallel_shard_degree: expected -1 or at least 1");
    const double others =
        static_cast<double>(in_.replicate) * in_.tp * in_.cp * static_cast<double>(in_.pp);
    if (others > static_cast<double>(limits::kRanks))
      fail(fmt::format("parallelism: the degrees make {:.3g} GPUs; at most {} are planned", others,
                       limits::kRanks));
    if (in_.shard < 0) shard_the_rest(static_cast<int>(others));
    const double dp = static_cast<double>(in_.replicate) * in_.shard;
    if (dp * in_.tp * in_.cp * in_.pp > static_cast<double>(limits::kRanks))
      fail(fmt::format("parallelism: the degrees make {:.3g} GPUs; at most {} are planned",
                       dp * in_.tp * in_.cp * in_.pp, limits::kRanks));
    p.dp = in_.replicate * in_.shard;
  }

  void shard_the_rest(int others) {
    if (!request_.ranks)
      fail(
          "parallelism.data_parallel_shard_degree: -1 takes the GPUs that are left, and the file "
          "does not say how many there are; give it with --gpus");
    if (*request_.ranks % others != 0)
      fail(
          fmt::format("parallelism: replicate({}) * tp({}) * cp({}) * pp({}) = {} does not divide "
                      "the {} GPUs",
                      in_.replicate, in_.tp, in_.cp, in_.pp, others, *request_.ranks));
    in_.shard = *request_.ranks / others;
    assume(fmt::format("parallel.dp = {} (data_parallel_shard_degree -1 of {} GPUs)",
                       in_.replicate * in_.shard, *request_.ranks));
  }

  void sharding() {
    const program::ParallelConfig& p = plan().parallel;
    plan().context_parallel = in_.context;
    const int shards = in_.shard * in_.cp;
    plan().zero_stage = shards == 1 ? 0 : 3;
    if (in_.replicate > 1 && shards > 1) plan().zero_shard_group = shards;
    const bool kept = in_.reshard == "never" || (in_.reshard == "default" && p.pp > 1);
    if (plan().zero_stage == 3 && shards > 1 && kept != (p.pp > 1))
      assume(
          fmt::format("zero_stage = 3: fsdp_reshard_after_forward {} keeps gathered weights {} "
                      "than is planned with",
                      in_.reshard, kept ? "longer" : "shorter"));
  }

  /// By the names of planner/rules/torchtitan.json.
  void settings() {
    Facts& facts = result_.facts;
    if (in_.cuda_graphs) facts["cuda_graphs"] = *in_.cuda_graphs;
    if (in_.flex_attention) facts["flex_attention"] = *in_.flex_attention;
    if (plan().parallel.pp == 1) return;
    if (in_.schedule_csv) facts["custom_schedule"] = 1;
    facts["num_pp_microbatches"] = in_.pipeline_microbatches;
    facts["layout"] = !in_.modules.empty();
    if (in_.modules.empty()) {
      facts["first_less"] = in_.first_less;
      facts["last_less"] = in_.last_less;
      if (in_.layers_per_stage) facts["layers_of_stage"] = *in_.layers_per_stage;
    } else {
      facts["layout_stages"] = static_cast<std::int64_t>(in_.modules.size());
      facts["layout_layers"] = plan().model.num_layers;
    }
  }

  void batch() {
    plan().workload.seq_len = in_.seq_len;
    plan().micro_batch_size = static_cast<int>(in_.micro_batch);
    const std::int64_t pass =
        sequences_of_step(in_.micro_batch, plan().parallel.dp, in_.pipeline_microbatches, file_);
    plan().workload.global_batch_size = in_.step_sequences.value_or(pass);
    const std::int64_t step = plan().workload.global_batch_size;
    if (step > limits::kTokens)
      fail(fmt::format("a step of {} sequences; at most {} are planned", step, limits::kTokens));
    if (step % pass != 0)
      fail(
          fmt::format("a step of {} sequences is not a multiple of {} (micro-batches of {} * {} of "
                      "a pass * dp({})); nearest: {}",
                      step, pass, in_.micro_batch, in_.pipeline_microbatches, plan().parallel.dp,
                      std::max<std::int64_t>(1, step / pass) * pass));
    if (plan().parallel.pp > 1 && step > pass)
      assume(fmt::format(
          "{} passes of {} micro-batches are one pipeline of {} in the plan: "
          "torchtitan drains it after each",
          step / pass, in_.pipeline_microbatches, step / pass * in_.pipeline_microbatches));
  }

  void pipeline() {
    if (plan().parallel.pp == 1) return;
    if (in_.schedule_csv)
      custom_schedule();
    else
      named_schedule();
    division();
  }

  void named_schedule() {
    const auto* named = torchtitan::named_schedule(in_.schedule);
    if (named == nullptr)
      fail(fmt::format("parallelism.pipeline_parallel_schedule: {}",
                       unknown_name_message("schedule", in_.schedule, schedule_names())));
    plan().schedule = named->kind;
    const int pp = plan().parallel.pp;
    int stages = named->one_stage ? pp : 2 * pp;
    if (!in_.modules.empty())
      stages = static_cast<int>(in_.modules.size());
    else if (in_.layers_per_stage)
      stages =
          (plan().model.num_layers + in_.first_less + in_.last_less + *in_.layers_per_stage - 1) /
          *in_.layers_per_stage;
    if (stages % pp != 0 || stages < pp || (named->one_stage && stages != pp) ||
        (!named->one_stage && stages < 2 * pp))
      fail(
          fmt::format("parallelism: {} virtual stages over pp({}) are not what schedule '{}' runs: "
                      "{} on each rank",
                      stages, pp, in_.schedule, named->one_stage ? "one" : "two or more"));
    plan().parallel.vpp = stages / pp;
  }

  /// A file of tasks; a schedule that meshplan knows by name is called that.
  void custom_schedule() {
    const std::string file = "pipeline_parallel_schedule_csv";
    const program::Schedule schedule = program::parse_schedule_csv(*in_.schedule_csv, file);
    if (schedule.num_stages() != plan().parallel.pp)
      fail(fmt::format("{}: has {} lines, but pipeline_parallel_degree is {}", file,
                       schedule.num_stages(), plan().parallel.pp));
    plan().parallel.vpp = schedule.num_chunks;
    for (const ScheduleKind kind : {ScheduleKind::Interleaved, ScheduleKind::OverlappedOneFOneB,
                                    ScheduleKind::ZbH1, ScheduleKind::DualPipeV}) {
      const int chunks = program::fixed_chunks(kind).value_or(
          std::max(program::fewest_chunks(kind), schedule.num_chunks));
      if (chunks != schedule.num_chunks) continue;
      if (program::make_schedule(kind, schedule.num_stages(), plan().num_microbatches(), chunks) ==
          schedule) {
        plan().schedule = kind;
        return;
      }
    }
    plan().schedule = ScheduleKind::Custom;
    const std::string text = program::to_csv(schedule);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      plan().custom_schedule.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  void division() {
    const int stages = plan().parallel.pp * plan().parallel.vpp;
    const int layers = plan().model.num_layers;
    if (!in_.modules.empty()) {
      open_last_part(layers);
      if (static_cast<int>(in_.modules.size()) != stages)
        fail(fmt::format("module_fqns_per_model_part: {} parts for pp({}) * {} virtual stages",
                         in_.modules.size(), plan().parallel.pp, plan().parallel.vpp));
      set_division(plan(), layers_of(in_.modules, layers,
                                     file_ + ": parallelism.module_fqns_per_model_part"));
      return;
    }
    const std::vector<int> own = own_division(layers, stages, in_.first_less, in_.last_less);
    if (own.empty())
      fail(fmt::format(
          "parallelism: {} layers, with {} for the embedding and {} for the head, do not "
          "fill {} virtual stages",
          layers, in_.first_less, in_.last_less, stages));
    set_division(plan(), own);
    keep_priceable(own);
  }

  /// Split points leave the last part's layers to the model.
  void open_last_part(int layers) {
    std::vector<std::string>& last = in_.modules.back();
    if (last.size() != 1 || !last[0].ends_with('-')) return;
    int layer = 0;
    for (const auto& part : in_.modules) layer += static_cast<int>(part.size());
    --layer;
    last.clear();
    for (; layer < layers; ++layer) last.push_back(fmt::format("layers.{}", layer));
  }

  /// Other stacks' stages are priced evenly cut. torchtitan gives what is left over to the first
  /// ones, a plan to the middle: no stage holds more either way.
  void keep_priceable(const std::vector<int>& own) {
    if (plan().layers_per_stage.empty() || in_.first_less != 1 || in_.last_less != 1) return;
    Plan even = plan();
    even.layers_per_stage.clear();
    even.count_ends_as_layers = true;
    const std::vector<int> layers = program::resolved_layers_per_stage(even);
    if (*std::ranges::min_element(layers) < 0) return;
    assume(fmt::format("layers of the virtual stages = [{}]; torchtitan's are [{}]",
                       fmt::join(layers, ", "), fmt::join(own, ", ")));
    plan().layers_per_stage.clear();
    plan().count_ends_as_layers = true;
  }

  void recompute() {
    program::Recompute& recompute = plan().recompute;
    switch (in_.checkpointing) {
      case Checkpointing::None:
        recompute.kind = RecomputeKind::None;
        return;
      case Checkpointing::Selective:
        recompute.kind = RecomputeKind::Selective;
        return;
      case Checkpointing::Full:
        recompute.kind = RecomputeKind::Full;
        return;
      case Checkpointing::EveryNth:
        recompute.kind = RecomputeKind::Full;
        if (in_.every == 1) return;
        const int most = std::ranges::max(program::resolved_layers_per_stage(plan()));
        recompute.num_layers = (most + in_.every - 1) / in_.every;
        assume(
            fmt::format("recompute.num_layers = {} (selective_ac_option {}: every layer of so "
                        "many; the plan takes the first ones of a stage)",
                        *recompute.num_layers, in_.every));
        return;
    }
  }

  Reading in_;
  const ImportRequest& request_;
  std::string file_;
  ImportedPlan result_;
};

}  // namespace
}  // namespace torchtitan

ImportedPlan read_torchtitan(const ImportRequest& request) {
  ImportedPlan imported;
  if (request.main.ends_with(".toml")) {
    Json tree = parse_toml(main_text(request), request.main);
    if (request.arguments) torchtitan::apply_arguments(tree, *request.arguments);
    Settings in(std::move(tree), request.main);
    torchtitan::Reading reading = torchtitan::read_toml(in, request, imported);
    list_ignored(in, imported);
    return torchtitan::TitanPlanner(std::move(reading), request, request.main, std::move(imported))
        .run();
  }
  std::string file = request.main;
  std::string function;
  if (const std::size_t colon = file.rfind(".py:"); colon != std::string::npos) {
    function = file.substr(colon + 4);
    file.resize(colon + 3);
  }
  ImportRequest named = request;
  named.main = file;
  const std::string& text = main_text(named);
  torchtitan::Reading reading = torchtitan::read_python(text, file, function, named, imported);
  return torchtitan::TitanPlanner(std::move(reading), named, file, std::move(imported)).run();
}

bool recognizes_torchtitan(std::string_view name, std::string_view text) {
  if (has_ending(name, {".toml"}))
    return text.find("[parallelism]") != std::string_view::npos ||
           text.find("[activation_checkpoint]") != std::string_view::npos;
  return has_ending(name, {".py"}) && text.find("torchtitan") != std::string_view::npos &&
         (text.find("parallelism") != std::string_view::npos ||
          text.find("Trainer.Config") != std::string_view::npos);
}

}  // namespace meshplan::planner
