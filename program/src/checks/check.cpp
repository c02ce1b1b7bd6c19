#include "program/checks/check.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <optional>

#include "checks/batch_errors.hpp"
#include "checks/expert_errors.hpp"
#include "checks/not_lowered.hpp"
#include "checks/step_limits.hpp"
#include "core/error.hpp"
#include "core/limits.hpp"
#include "models/model_modules.hpp"
#include "plan/float8.hpp"
#include "program/context/context.hpp"
#include "program/plan/frozen.hpp"
#include "program/plan/mesh.hpp"
#include "program/plan/plan_names.hpp"

namespace meshplan::program {
namespace {

bool has_parts_apart(const Schedule& schedule) {
  const auto overlaps = [](const std::vector<Task>& tasks) {
    return std::ranges::find(tasks, TaskKind::Overlapped, &Task::kind) != tasks.end();
  };
  return splits_backward(schedule) || std::ranges::any_of(schedule.tasks, overlaps);
}

// Collects broken rules; the ids are those of docs/rules.md.
class Checker {
 public:
  /// @param graph  of its layers; null: made where it is needed, which is seldom
  Checker(const Plan& plan, const models::ModelGraph* graph)
      : plan_(plan), model_(plan.model), parallel_(plan.parallel), graph_(graph) {}

  std::vector<Violation> run() {
    degrees();
    if (!violations_.empty()) return std::move(violations_);  // the rest computes with them
    stack();
    if (plan_.stack.is_own())
      for (std::string& message : not_lowered(plan_)) fail("not-lowered", std::move(message));
    mesh();
    tensor_parallel();
    context_parallel();
    documents();
    pipeline();
    batch();
    for (std::string& message : expert_errors(plan_)) fail("experts", std::move(message));
    zero();
    compression();
    learning_rate();
    if (!plan_.frozen.empty() && violations_.empty())
      for (std::string& error : frozen_errors(plan_.frozen, model_))
        fail("frozen", std::move(error));
    if (plan_.workload.fp8 != Float8Recipe::None && violations_.empty()) float8();
    if (violations_.empty()) custom_schedule();
    if (violations_.empty() && plan_.stack.is_own()) streamed_units();
    return std::move(violations_);
  }

 private:
  void fail(std::string rule, std::string message) {
    const auto said = std::ranges::find(violations_, message, &Violation::message);
    if (said == violations_.end()) violations_.push_back({std::move(rule), std::move(message)});
  }

  void stack() {
    if (!plan_.stack.is_own()) return;
    if (plan_.stack.settings != StackSettings{})
      fail("stack",
           fmt::format("stack: settings are of other stacks, and software is '{}', which has "
                       "none; name the software that they are of, or leave them out",
                       kOwnSoftware));
  }

  void degrees() {
    const std::pair<const char*, int> all[] = {
        {"tp", parallel_.tp},   {"cp", parallel_.cp},
        {"pp", parallel_.pp},   {"vpp", parallel_.vpp},
        {"dp", parallel_.dp},   {"ep", parallel_.ep},
        {"etp", parallel_.etp}, {"micro_batch_size", plan_.micro_batch_size}};
    for (const auto& [name, degree] : all)
      if (degree < 1) fail("positive", fmt::format("{} = {} must be at least 1", name, degree));
    const std::pair<const char*, std::int64_t> sizes[] = {
        {"seq_len", plan_.workload.seq_len},
        {"global_batch_size", plan_.workload.global_batch_size}};
    for (const auto& [name, size] : sizes)
      if (size < 1 || size > limits::kTokens)
        fail("positive",
             fmt::format("{} = {} must be at least 1 and at most {}", name, size, limits::kTokens));
    const std::pair<const char*, int> inner[] = {
        {"vpp", parallel_.vpp}, {"ep", parallel_.ep}, {"etp", parallel_.etp}};
    for (const auto& [name, degree] : inner)
      if (degree > limits::kRanks)
        fail("world", fmt::format("{} = {} must be at most {}", name, degree, limits::kRanks));
    const double world = static_cast<double>(parallel_.tp) * parallel_.cp * parallel_.pp *
                         static_cast<double>(parallel_.dp);
    if (world > static_cast<double>(limits::kRanks))
      fail("world", fmt::format("tp({}) * cp({}) * pp({}) * dp({}) = {:.3g} ranks; at most {} are "
                                "supported",
                                parallel_.tp, parallel_.cp, parallel_.pp, parallel_.dp, world,
                                limits::kRanks));
    if (!violations_.empty()) return;
    violations_ = beyond_limits(plan_);
  }

  /// @param way_out  what to do instead, if there is something
  void refuse(bool uses, std::string_view what, std::string_view way_out = "") {
    if (uses) fail("not-lowered", not_lowered_message(model_, what, way_out));
  }

  /// Mesh owns the rules of rank order and expert grid.
  void mesh() {
    try {
      Mesh::require_valid(parallel_, plan_.rank_order);
    } catch (const ConfigError& error) {
      fail("mesh", error.what());
    }
  }

  /// The valid tp nearest to the asked one: it divides everything that tp shards.
  int nearest_tp() const {
    std::int64_t common = model_.num_heads;
    common = std::gcd(common, model_.ffn_size);
    if (parallel_.sp) common = std::gcd(common, plan_.tokens_per_microbatch());
    int nearest = 1;
    for (int tp = 1; tp <= common; ++tp)
      if (common % tp == 0 && fits_kv_heads(tp) &&
          std::abs(tp - parallel_.tp) < std::abs(nearest - parallel_.tp))
        nearest = tp;
    return nearest;
  }

  /// Whole key/value heads a rank, or whole ranks a head.
  bool fits_kv_heads(int tp) const {
    return model_.num_kv_heads % tp == 0 || tp % model_.num_kv_heads == 0;
  }

  void divides(std::string_view rule, std::string_view name, std::int64_t number) {
    if (number % parallel_.tp == 0) return;
    fail(std::string(rule), fmt::format("{} ({}) is not divisible by tp ({}); nearest tp: {}", name,
                                        number, parallel_.tp, nearest_tp()));
  }

  /// What tp cuts in the layers of one kind.
  void cuts_of_layer(const models::ModelSpec& own, models::Mixer mixer, models::FeedForward ffn) {
    using models::Mixer;
    const bool attends = mixer == Mixer::Full || mixer == Mixer::Sliding ||
                         mixer == Mixer::Chunked || mixer == Mixer::AttentionAndMamba;
    if (attends) {
      divides("heads", "num_heads", own.num_heads);
      const int kv_heads = own.num_kv_heads, tp = parallel_.tp;
      if (kv_heads % tp != 0 && tp % kv_heads != 0)
        fail("kv-heads",
             fmt::format("num_kv_heads ({}) is neither divisible by tp ({}) nor divides it; "
                         "nearest tp: {}",
                         kv_heads, tp, nearest_tp()));
    }
    if (mixer == Mixer::Linear) {
      divides("heads", "linear_attention.num_key_heads", own.linear_attention->num_key_heads);
      divides("heads", "linear_attention.num_value_heads", own.linear_attention->num_value_heads);
    }
    if (mixer == Mixer::Mamba || mixer == Mixer::AttentionAndMamba) {
      divides("heads", "mamba.num_heads", own.mamba->num_heads);
      if (own.mamba->version == 2) divides("heads", "mamba.num_groups", own.mamba->num_groups);
    }
    if (ffn == models::FeedForward::Dense) divides("ffn", "ffn_size", own.ffn_size);
  }

  void tensor_parallel() {
    using models::FeedForward;
    if (model_.layer_variants.empty()) {
      for (const models::Mixer mixer : models::mixers_of(model_))
        cuts_of_layer(model_, mixer, FeedForward::None);
      divides("ffn", "ffn_size", model_.ffn_size);
    }
    for (const int layer :
         model_.layer_variants.empty() ? std::vector<int>{} : models::layers_of_each_kind(model_))
      cuts_of_layer(models::spec_of_layer(model_, layer), models::mixer_of_layer(model_, layer),
                    models::ffn_of_layer(model_, layer));
    if (parallel_.sp && parallel_.tp == 1)
      fail("sp",
           "sp needs tp > 1: it shards the tokens over the tp group; use tp >= 2 or sp = false");
    const std::int64_t tokens = plan_.tokens_per_microbatch();
    if (parallel_.sp && tokens % parallel_.tp != 0)
      fail("sp",
           fmt::format(
               "micro_batch_size({}) * seq_len({}){} = {} tokens are not divisible by tp ({}), "
               "which sp needs; nearest tp: {}, nearest seq_len: {}",
               plan_.micro_batch_size, plan_.workload.seq_len,
               parallel_.cp > 1 ? fmt::format(" / cp({})", parallel_.cp) : std::string(), tokens,
               parallel_.tp, nearest_tp(), nearest_seq_len()));
    if (model_.max_positions > 0 && model_.positions == models::Positions::Learned &&
        plan_.workload.seq_len > model_.max_positions)
      fail("positions",
           fmt::format(
               "seq_len ({}) exceeds max_positions ({}) of the learned positions; nearest: {}",
               plan_.workload.seq_len, model_.max_positions, model_.max_positions));
  }

  std::int64_t nearest_seq_len() const {
    return padded_sequence(plan_.workload.seq_len, parallel_, TokenGranularity::Any,
                           plan_.micro_batch_size);
  }

  /// The sequences in whole chunks, and for Ulysses whole heads.
  void context_parallel() {
    if (parallel_.cp == 1) return;
    const std::int64_t seq_len = plan_.workload.seq_len;
    const std::int64_t chunks = sequence_multiple({.cp = parallel_.cp});
    if (seq_len % chunks != 0)
      fail(
          "context",
          fmt::format(
              "seq_len ({}) is not divisible by 2 * cp({}) = {}: each rank holds two "
              "chunks of every sequence; nearest seq_len: {}, nearest cp: {}",
              seq_len, parallel_.cp, chunks, nearest_seq_len(),
              seq_len % 2 == 0 ? nearest_divisor(static_cast<int>(seq_len / 2), parallel_.cp) : 1));
    if (plan_.context_parallel != ContextMethod::Ulysses) return;
    const int shards = parallel_.tp * parallel_.cp;
    const int heads = std::gcd(model_.num_heads, model_.num_kv_heads);
    if (heads % shards != 0)
      fail(
          "context",
          fmt::format(
              "context_parallel 'ulysses' gives every rank whole heads: num_heads ({}) "
              "and num_kv_heads ({}) must be divisible by tp({}) * cp({}) = {}; nearest "
              "cp: {}, or context_parallel 'all_gather'",
              model_.num_heads, model_.num_kv_heads, parallel_.tp, parallel_.cp, shards,
              heads % parallel_.tp == 0 ? nearest_divisor(heads / parallel_.tp, parallel_.cp) : 1));
  }

  void documents() {
    const Documents& documents = plan_.workload.documents;
    const std::int64_t seq_len = plan_.workload.seq_len;
    const std::int64_t most = plan_.max_tokens_per_rank;
    if (!documents.packed) {
      if (most > 0)
        fail("documents",
             fmt::format("max_tokens_per_rank ({}) says over how many cp ranks a packed "
                         "document is divided; pack documents "
                         "(workload.documents.packed = true), or use 0",
                         most));
      return;
    }
    refuse(!model_.causal, "packed documents without a causal mask");
    const auto end = documents.end_of_document;
    if (!end || *end < 0 || *end >= model_.vocab_size)
      fail(
          "documents",
          fmt::format("workload.documents.end_of_document ({}) must be the token of the vocabulary "
                      "that ends a document: 0 to {}{}",
                      end ? std::to_string(*end) : "null", model_.vocab_size - 1,
                      end ? fmt::format("; nearest: {}", std::clamp(*end, 0, model_.vocab_size - 1))
                          : std::string()));
    if (documents.pad_multiple < 1 || documents.pad_multiple > seq_len)
      fail("documents",
           fmt::format("workload.documents.pad_multiple ({}) must be at least 1 and at "
                       "most seq_len ({}); nearest: {}",
                       documents.pad_multiple, seq_len,
                       std::clamp<std::int64_t>(documents.pad_multiple, 1, seq_len)));
    for (const std::int64_t length : documents.expected_lengths)
      if (length < 1 || length > limits::kTokens)
        fail("documents",
             fmt::format("workload.documents.expected_lengths: {} must be at least 1 and at most "
                         "{}",
                         length, limits::kTokens));
    if (most > 0) hybrid_context(most);
  }

  /// A document that fills a sequence must fit the cp ranks.
  void hybrid_context(std::int64_t most) {
    const std::int64_t least = (plan_.workload.seq_len + parallel_.cp - 1) / parallel_.cp;
    if (parallel_.cp == 1)
      fail("documents", fmt::format("max_tokens_per_rank ({}) needs cp > 1; use 0", most));
    else if (plan_.context_parallel == ContextMethod::Ulysses)
      fail("documents",
           fmt::format("max_tokens_per_rank ({}) changes nothing with context_parallel 'ulysses', "
                       "where every rank attends in whole sequences; use 0, or 'all_gather' or "
                       "'ring'",
                       most));
    else if (most < least)
      fail(
          "documents",
          fmt::format("max_tokens_per_rank ({}) is less than seq_len({}) / cp({}): a document that "
                      "fills a sequence needs more ranks; nearest: {}",
                      most, plan_.workload.seq_len, parallel_.cp, least));
  }

  void pipeline() {
    chunks();
    const int stages = parallel_.pp * parallel_.vpp;
    const int ends = plan_.count_ends_as_layers ? 2 : 0;
    if (stages > model_.num_layers + ends && plan_.layers_per_stage.empty()) {
      const std::string product =
          parallel_.vpp > 1
              ? fmt::format("pp({}) * vpp({}) = {}", parallel_.pp, parallel_.vpp, stages)
              : fmt::format("pp ({})", parallel_.pp);
      fail("stages",
           fmt::format("{} exceeds num_layers ({}): a stage would hold no layer; nearest "
                       "pp: {}",
                       product, model_.num_layers, std::max(1, model_.num_layers / parallel_.vpp)));
      return;
    }
    layers_per_stage(stages);
    recompute(stages);
    recomputed_modules();
    offloaded_activations();
  }

  void layers_per_stage(int stages) {
    if (plan_.layers_per_stage.empty()) return;
    const auto& layers = plan_.layers_per_stage;
    const auto sum = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
    // The first and the last stage may hold the embedding or the head alone.
    bool empty_stage = false;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const bool end = stages > 1 && (i == 0 || i + 1 == layers.size());
      empty_stage = empty_stage || layers[i] < (end ? 0 : 1);
    }
    if (static_cast<int>(layers.size()) == stages && sum == model_.num_layers && !empty_stage)
      return;
    Plan even = plan_;
    even.layers_per_stage.clear();
    fail(
        "stages",
        fmt::format(
            "layers_per_stage [{}] must give each of {} = {} stages at least one of {} layers (the "
            "first and the last may have none), but has {} entries that sum to {}; {}",
            fmt::join(layers, ", "), parallel_.vpp > 1 ? "pp * vpp" : "pp", stages,
            model_.num_layers, layers.size(), sum,
            stages > model_.num_layers
                ? fmt::format("nearest pp: {}", std::max(1, model_.num_layers / parallel_.vpp))
                : fmt::format("nearest: [{}]", fmt::join(resolved_layers_per_stage(even), ", "))));
  }

  void recompute(int stages) {
    const auto& layers = plan_.recompute.layers_per_stage;
    if (layers.empty() || static_cast<int>(layers.size()) == stages) return;
    fail("recompute",
         fmt::format("recompute.layers_per_stage [{}] has {} entries, but there are {} "
                     "virtual stages (pp * vpp)",
                     fmt::join(layers, ", "), layers.size(), stages));
  }

  void recomputed_modules() {
    const Recompute& recompute = plan_.recompute;
    if (recompute.modules.empty()) return;
    const std::string names = models::to_string(recompute.modules);
    if (recompute.kind != RecomputeKind::Selective)
      return fail("recompute",
                  fmt::format("recompute.modules [{}] with kind '{}': they are of kind "
                              "'selective'; use that, or modules []",
                              names, meshplan::name_of(recompute.kind)));
    for (const models::Module module : recompute.modules.list())
      if (!models::has_module(model_, module))
        fail("recompute",
             fmt::format("recompute.modules [{}]: {} has no {}; leave '{}' out", names, model_.name,
                         models::needed_for(module), meshplan::name_of(module)));
  }

  void offloaded_activations() {
    const int layers = plan_.offload_activations;
    if (layers == 0) return;
    refuse(model_.moe.has_value(),
           "offload_activations with experts, whose rows may lie beyond their buffers,",
           "use offload_activations = 0 and recompute");
    if (!has_whole_backwards(plan_.schedule))
      fail("offload", fmt::format("offload_activations = {} copies what a layer keeps right after "
                                  "its forward, and back before a whole backward, which schedule "
                                  "'{}' may split or overlap; use schedule '1f1b', 'gpipe' or "
                                  "'interleaved', or offload_activations = 0",
                                  layers, meshplan::name_of(plan_.schedule)));
    if (!violations_.empty()) return;
    const int most = std::ranges::max(resolved_layers_per_stage(plan_));
    if (layers < 0 || layers > most)
      fail("offload", fmt::format("offload_activations = {} must be 0 to the {} layers of the "
                                  "largest virtual stage; nearest: {}",
                                  layers, most, std::clamp(layers, 0, most)));
  }

  /// How many chunks a rank holds is the schedule's to say.
  void chunks() {
    const ScheduleKind kind = plan_.schedule;
    if (const std::optional<int> chunks = fixed_chunks(kind)) {
      if (parallel_.vpp == *chunks) return;
      const std::string_view instead = kind == ScheduleKind::ZbH1
                                           ? ", or schedule 'interleaved' or 'zb-v'"
                                       : *chunks == 1 ? ", or schedule 'interleaved'"
                                                      : "";
      fail("vpp", fmt::format("schedule '{}' has {} chunk{} a rank, but vpp = {}; use vpp = {}{}",
                              meshplan::name_of(kind), *chunks, *chunks == 1 ? "" : "s",
                              parallel_.vpp, *chunks, instead));
    } else if (kind == ScheduleKind::Interleaved && parallel_.vpp < 2) {
      fail("vpp",
           "schedule 'interleaved' needs vpp >= 2; use vpp = 2, or schedule '1f1b' for one "
           "chunk a rank");
    }
  }

  void custom_schedule() {
    if (plan_.schedule != ScheduleKind::Custom) {
      if (!plan_.custom_schedule.empty())
        fail("schedule", "custom_schedule holds tasks, but schedule is not 'custom'");
      return;
    }
    try {
      const Schedule schedule = schedule_of(plan_);
      if (schedule.num_stages() != parallel_.pp || schedule.num_chunks != parallel_.vpp)
        return fail(
            "schedule",
            fmt::format("custom_schedule is for pp = {} and vpp = {}, but the plan has pp = "
                        "{} and vpp = {}",
                        schedule.num_stages(), schedule.num_chunks, parallel_.pp, parallel_.vpp));
      const auto errors = schedule_errors(schedule, plan_.num_microbatches());
      if (!errors.empty())
        fail("schedule", fmt::format("custom_schedule does not run {} micro-batches: {}",
                                     plan_.num_microbatches(), errors.front()));
    } catch (const ConfigError& error) {
      fail("schedule", error.what());
    }
  }

  void zero() {
    const int ranks = parallel_.dp * parallel_.cp;
    const int stage = plan_.zero_stage;
    if (stage < 0 || stage > 3)
      return fail("zero", fmt::format("zero_stage = {}: stages are 0, 1, 2 and 3", stage));
    if (stage > 0 && ranks == 1 && plan_.stack.is_own())  // others start, and divide nothing
      return fail("zero",
                  fmt::format("zero_stage = {} divides among the dp({}) * cp({}) = 1 ranks that "
                              "hold the same parameters: nothing; use zero_stage = 0 or dp >= 2",
                              stage, parallel_.dp, parallel_.cp));
    if (plan_.offload_parameters && (stage != 3 || !plan_.offload_optimizer))
      fail("offload",
           fmt::format("offload_parameters moves the weights that ZeRO-3 divides, and needs their "
                       "updates' state beside them: zero_stage = {}, offload_optimizer = {}; use "
                       "zero_stage = 3 and offload_optimizer = true, or offload_parameters = false",
                       stage, plan_.offload_optimizer));
    const int group = plan_.zero_shard_group;
    if (group == 0) return;
    if (stage == 0)
      return fail("zero", fmt::format("zero_shard_group = {} needs zero_stage >= 1; use 0", group));
    if (group < 2 || ranks % group != 0)
      fail("zero",
           fmt::format("zero_shard_group ({}) must be at least 2 and divide dp * cp ({}); nearest: "
                       "{}",
                       group, ranks, std::max(2, nearest_divisor(ranks, group))));
  }

  void compression() {
    const GradientCompression& given = plan_.compression;
    if (given.kind == CompressionKind::None) return;
    const auto refuse_with = [&](bool uses, const std::string& why) {
      if (uses) fail("compression", why + "; or use compression.kind = 'none'");
    };
    refuse_with(parallel_.dp * parallel_.cp == 1,
                fmt::format("gradients are compressed between the dp({}) * cp({}) = 1 ranks that "
                            "hold the same parameters: there is nothing to send; use dp >= 2",
                            parallel_.dp, parallel_.cp));
    refuse_with(given.kind == CompressionKind::TopK && !(given.ratio > 0 && given.ratio <= 1),
                fmt::format("compression.ratio ({}) must be above 0 and at most 1; nearest: {}",
                            given.ratio, given.ratio > 1 ? "1" : "0.001"));
  }

  void learning_rate() {
    const OptimizerConfig& optimizer = plan_.workload.optimizer;
    const bool decays = optimizer.schedule == LearningRateSchedule::Cosine;
    if (decays && optimizer.decay_steps > 0 && optimizer.decay_steps <= optimizer.warmup_steps)
      fail("learning-rate",
           fmt::format("decay_steps ({}) must be 0 or above warmup_steps ({}), where the decay of "
                       "the learning rate begins; nearest: {}",
                       optimizer.decay_steps, optimizer.warmup_steps,
                       std::int64_t{optimizer.warmup_steps} + 1));
  }

  void float8() {
    const std::int64_t seq_len = plan_.workload.seq_len;
    const std::int64_t padded =
        padded_sequence(seq_len, parallel_, TokenGranularity::Fp8, plan_.micro_batch_size);
    if (padded != seq_len)
      fail("fp8",
           fmt::format("precision 'fp8' needs a multiple of {} tokens on every rank, but "
                       "micro_batch_size({}) * seq_len({}){}{} = {} tokens; nearest seq_len: {}",
                       kFloat8Multiple, plan_.micro_batch_size, seq_len,
                       parallel_.cp > 1 ? fmt::format(" / cp({})", parallel_.cp) : std::string(),
                       parallel_.sp ? fmt::format(" / tp({})", parallel_.tp) : std::string(),
                       plan_.tokens_per_microbatch() / (parallel_.sp ? parallel_.tp : 1), padded));
    const models::ModelGraph& graph =
        graph_ != nullptr ? *graph_ : own_graph_.emplace(models::build_graph(model_));
    if (const auto odd = odd_float8_features(graph, parallel_.tp))
      fail("fp8",
           fmt::format("precision 'fp8' needs a multiple of {} features on every rank, but {} of "
                       "linear '{}' ({}) over tp({}) leave {}; {}",
                       kFloat8Multiple, odd->output ? "the outputs" : "the inputs", odd->linear,
                       odd->features, parallel_.tp, odd->per_rank, float8_way_out(graph)));
  }

  std::string float8_way_out(const models::ModelGraph& graph) const {
    for (int tp = parallel_.tp - 1; tp >= 1; --tp) {
      const bool divides = model_.num_heads % tp == 0 && model_.ffn_size % tp == 0;
      if (divides && fits_kv_heads(tp) && !odd_float8_features(graph, tp))
        return fmt::format("nearest tp: {}", tp);
    }
    return "no tp helps: use precision 'bf16'";
  }

  /// A unit's gradients are reduced when its layers' backward is over, so nothing of it may be put
  /// off or run beside another unit's.
  void streamed_units() {
    if (plan_.zero_stage < 2 || has_whole_backwards(plan_.schedule)) return;
    if (puts_parts_apart())
      fail(
          "zero",
          fmt::format("zero_stage = {} reduces a layer's gradients right after its backward, which "
                      "this schedule splits or overlaps; use zero_stage = 1, or schedule '1f1b', "
                      "'gpipe' or 'interleaved'",
                      plan_.zero_stage));
  }

  /// A search asks this of thousands of long schedules.
  bool puts_parts_apart() const {
    switch (plan_.schedule) {
      case ScheduleKind::OverlappedOneFOneB:
        return plan_.num_microbatches() > 1;
      case ScheduleKind::Custom:
        return has_parts_apart(schedule_of(plan_));
      default:  // of one stage, some have nothing apart
        return parallel_.pp > 1 || has_parts_apart(schedule_of(plan_));
    }
  }

  void batch() {
    for (Violation& violation : batch_errors(plan_))
      fail(std::move(violation.rule), std::move(violation.message));
    if (model_.mtp_layers >= plan_.workload.seq_len)
      fail("predictions",
           fmt::format("mtp_layers({}) of {} is not below workload.seq_len({}): no sequence has a "
                       "token so far ahead; use mtp_layers <= {}",
                       model_.mtp_layers, model_.name, plan_.workload.seq_len,
                       plan_.workload.seq_len - 1));
  }

  const Plan& plan_;
  const models::ModelSpec& model_;
  const ParallelConfig& parallel_;
  const models::ModelGraph* graph_;
  std::optional<models::ModelGraph> own_graph_;
  std::vector<Violation> violations_;
};

}  // namespace

std::vector<Violation> check(const Plan& plan) {
  return Checker(plan, nullptr).run();
}

std::vector<Violation> check(const Plan& plan, const models::ModelGraph& graph) {
  return Checker(plan, &graph).run();
}

}  // namespace meshplan::program
