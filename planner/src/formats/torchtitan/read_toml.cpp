#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>

#include "formats/text/imported.hpp"
#include "formats/torchtitan/reading.hpp"

namespace meshplan::planner::torchtitan {
namespace {

using program::ContextMethod;
using program::OptimizerKind;

constexpr std::array<std::string_view, 4> kModes = {"selective", "full", "memory_budget", "none"};
constexpr std::array<std::string_view, 2> kRotations = {"allgather", "alltoall"};
constexpr std::array<std::string_view, 2> kOptimizers = {"AdamW", "Adam"};

class TomlReader {
 public:
  TomlReader(Settings& in, const ImportRequest& request, ImportedPlan& imported)
      : in_(in), request_(request), imported_(imported) {}

  Reading run() {
    result_.family = in_.text("model.name").value_or("llama3");
    result_.flavor = in_.text("model.flavor").value_or("debugmodel");
    if (result_.family.starts_with("flux"))
      in_.fail("model.name", "a language model: flux makes images");
    degrees();
    pipeline();
    batch();
    checkpointing();
    precision();
    optimizer();
    return std::move(result_);
  }

 private:
  void assume(std::string line) { result_.assumptions.push_back(std::move(line)); }

  /// Sections in which a key has stood over the years.
  std::string place(std::string_view key) const {
    for (const char* section : {"parallelism", "training", "experimental"})
      if (std::string path = fmt::format("{}.{}", section, key); in_.has(path)) return path;
    return fmt::format("parallelism.{}", key);
  }

  int degree(std::string_view key, int initial, double low = 1) {
    return in_.small(place(key), between(low, limits::kRanks)).value_or(initial);
  }

  void degrees() {
    result_.replicate = degree("data_parallel_replicate_degree", 1);
    // Until the autumn of 2024 one degree, of shards unless it says ddp.
    const int either = degree("data_parallel_degree", -1, -1);
    const bool copies = in_.text("training.data_parallel_type").value_or("fsdp") == "ddp";
    result_.shard = degree("data_parallel_shard_degree", copies ? 1 : either, -1);
    if (copies && either < 1)
      in_.fail("training.data_parallel_degree", "with ddp the number of copies");
    if (copies) result_.replicate = either;
    result_.reshard =
        in_.word("parallelism.fsdp_reshard_after_forward", kReshardPolicies).value_or("default");
    result_.tp = degree("tensor_parallel_degree", 1);
    result_.cp = degree("context_parallel_degree", 1);
    const auto rotation = in_.word(place("context_parallel_rotate_method"), kRotations);
    if (rotation && *rotation == "alltoall") result_.context = ContextMethod::Ring;
    result_.pp = degree("pipeline_parallel_degree", 1);
    result_.ep = degree("expert_parallel_degree", 1);
    const int etp = degree("expert_tensor_parallel_degree", 1);
    if (result_.ep > 1) result_.etp = etp;  // else it has no effect
    if (const auto async = in_.flag(place("enable_async_tensor_parallel")))
      imported_.plan.stack.settings.overlap_tp = *async;
    if (in_.flag(place("disable_loss_parallel")).value_or(false) && result_.tp > 1)
      assume(
          "the loss is computed on parts of the vocabulary (disable_loss_parallel is not in a "
          "plan)");
  }

  void pipeline() {
    result_.schedule = in_.text(place("pipeline_parallel_schedule")).value_or("1F1B");
    if (const auto csv = in_.text(place("pipeline_parallel_schedule_csv")))
      result_.schedule_csv = schedule_file(request_, in_.file(), *csv);
    result_.layers_per_stage = in_.small(place("pipeline_parallel_layers_per_stage"));
    const Bounds less = between(0, limits::kLayers);
    result_.first_less =
        in_.small(place("pipeline_parallel_first_stage_less_layers"), less).value_or(1);
    result_.last_less =
        in_.small(place("pipeline_parallel_last_stage_less_layers"), less).value_or(1);
    modules();
    split_points();
  }

  std::vector<std::string> texts(const std::string& path, const Json& list) {
    std::vector<std::string> words;
    for (const Json& item : list) {
      if (!item.is_string()) in_.fail(path, "names of modules");
      words.push_back(item.get<std::string>());
    }
    return words;
  }

  void modules() {
    const std::string path = place("module_fqns_per_model_part");
    const Json* parts = in_.value(path);
    if (parts == nullptr) return;
    if (!parts->is_array()) in_.fail(path, "a list of lists of modules");
    for (const Json& part : *parts) {
      if (!part.is_array()) in_.fail(path, "a list of lists of modules");
      result_.modules.push_back(texts(path, part));
    }
  }

  /// Of 2024: the first layer of every virtual stage but the first.
  void split_points() {
    const std::string path = place("pipeline_parallel_split_points");
    const Json* points = in_.value(path);
    if (points == nullptr || points->empty()) return;
    if (!points->is_array()) in_.fail(path, "a list of layers");
    for (const std::string& name : texts(path, *points)) {
      int layer = -1;
      if (name.starts_with("layers."))
        std::from_chars(name.data() + 7, name.data() + name.size(), layer);
      if (layer < 0 || layer > limits::kLayers || (!splits_.empty() && layer <= splits_.back()))
        in_.fail(path, "layers in their order, such as \"layers.8\"");
      splits_.push_back(layer);
    }
    int layer = 0;
    for (const int split : splits_) {
      result_.modules.emplace_back();
      for (; layer < split; ++layer)
        result_.modules.back().push_back(fmt::format("layers.{}", layer));
    }
    result_.modules.push_back({fmt::format("layers.{}-", layer)});  // the model says how many
  }

  void batch() {
    const Bounds bounds = between(1, limits::kTokens);
    result_.seq_len = in_.integer("training.seq_len", bounds).value_or(2048);
    const char* key =
        in_.has("training.batch_size") ? "training.batch_size" : "training.local_batch_size";
    const auto given = in_.integer(key, bounds);
    const std::int64_t local = given.value_or(8);
    if (!given) assume("training.local_batch_size = 8 (torchtitan's default)");
    if (const auto global = in_.integer("training.global_batch_size", between(-1, limits::kTokens));
        global && *global > 0)
      result_.step_sequences = *global;
    const std::string path = place("pipeline_parallel_microbatch_size");
    const auto size = in_.integer(path, bounds);
    const std::string number = place("pipeline_parallel_microbatches");
    auto passes = in_.integer(number, bounds);
    if (result_.pp == 1) {
      result_.micro_batch = local;
      return;
    }
    // Until March 2025 their number was set, and was that of the stages if it was not.
    if (!size && !passes && in_.has("experimental.pipeline_parallel_degree")) {
      passes = result_.pp;
      assume(
          fmt::format("pipeline_parallel_microbatches = {} (that of the stages, as until March "
                      "2025)",
                      result_.pp));
    }
    if (passes && !size) {
      if (local % *passes != 0)
        in_.fail(key, fmt::format("a multiple of {} micro-batches", *passes));
      result_.micro_batch = local / *passes;
      result_.pipeline_microbatches = *passes;
      return;
    }
    const std::int64_t micro = size.value_or(1);
    if (local % micro != 0) in_.fail(path, fmt::format("a divisor of {} ({})", key, local));
    result_.micro_batch = micro;
    result_.pipeline_microbatches = local / micro;
  }

  void checkpointing() {
    const std::string mode = in_.word("activation_checkpoint.mode", kModes).value_or("selective");
    const Json* option = in_.value("activation_checkpoint.selective_ac_option");
    if (mode == "none") result_.checkpointing = Checkpointing::None;
    if (mode == "full") result_.checkpointing = Checkpointing::Full;
    if (mode == "memory_budget") {
      result_.checkpointing = Checkpointing::Selective;
      assume("recompute.kind = selective (a memory budget leaves it to the compiler)");
    }
    if (mode != "selective") return;
    const std::string word = option == nullptr     ? "2"
                             : option->is_string() ? option->get<std::string>()
                                                   : option->dump();
    if (word == "op") return;
    int every = 0;
    const char* const end = word.data() + word.size();
    if (const auto read = std::from_chars(word.data(), end, every);
        read.ec != std::errc() || read.ptr != end || every < 1)
      in_.fail("activation_checkpoint.selective_ac_option", "\"op\" or every how many layers");
    result_.checkpointing = Checkpointing::EveryNth;
    result_.every = every;
  }

  void precision() {
    const auto type = in_.word("training.mixed_precision_param", kParameterTypes);
    if (type && *type == "float32") result_.precision = program::Precision::F32;
    if (in_.word("training.dtype", kParameterTypes) == "bfloat16")
      in_.fail("training.dtype", "float32: weights without a copy in fp32 are not predicted");
    converters();
    const char* old = in_.has("training.enable_float8_linear") ? "training.enable_float8_linear"
                                                               : "float8.enable_float8_linear";
    if (in_.flag(old).value_or(false) || !in_.text("training.fp8_linear").value_or("").empty())
      result_.precision = program::Precision::Fp8;
    result_.offload = in_.flag("training.enable_cpu_offload").value_or(false);
    const char* key = in_.has("training.compile") ? "training.compile" : "compile.enable";
    result_.compiled = compiled_part(in_, in_.flag(key).value_or(false));
  }

  /// A list, or one text with commas.
  void converters() {
    const std::string path = "model.converters";
    const Json* given = in_.value(path);
    if (given == nullptr) return;
    std::string names = given->is_string() ? given->get<std::string>() : std::string();
    if (given->is_array())
      for (const std::string& each : texts(path, *given)) names += each + ",";
    else if (!given->is_string())
      in_.fail(path, "a list of converters");
    for (std::size_t begin = 0; begin < names.size();) {
      const std::size_t end = std::min(names.find(',', begin), names.size());
      const std::string name = names.substr(begin, end - begin);
      begin = end + 1;
      if (name.empty()) continue;
      const bool experts = name.find("grouped_mm") != std::string::npos ||
                           (name == "float8" && in_.has("float8.moe_fqns"));
      if (name.find("float8") == std::string::npos || experts)
        in_.fail(path, "float8 of linears alone: other converters are not predicted");
      result_.precision = program::Precision::Fp8;
    }
  }

  void optimizer() {
    program::OptimizerConfig& optimizer = result_.optimizer;
    const auto kind = in_.word("optimizer.name", kOptimizers);
    if (kind && *kind == "Adam") optimizer.kind = OptimizerKind::Adam;
    optimizer.learning_rate = in_.number("optimizer.lr").value_or(8e-4);
    const auto take = [&](const char* path, double& value) {
      if (const auto given = in_.number(path)) value = *given;
    };
    take("optimizer.beta1", optimizer.beta1);
    take("optimizer.beta2", optimizer.beta2);
    take("optimizer.eps", optimizer.epsilon);
    take("optimizer.weight_decay", optimizer.weight_decay);
    take("training.max_norm", optimizer.clip_norm);
    read_learning_rate(in_, optimizer);
  }

  Settings& in_;
  const ImportRequest& request_;
  ImportedPlan& imported_;
  Reading result_;
  std::vector<int> splits_;
};

}  // namespace

program::CompiledPart compiled_part(Settings& in, bool enabled) {
  using program::CompiledPart;
  const Json* components = in.value("compile.components");
  if (!enabled) return CompiledPart::None;
  if (components == nullptr) return CompiledPart::All;
  if (!components->is_array()) in.fail("compile.components", "a list of \"model\" and \"loss\"");
  const auto names = [&](const char* part) {
    return std::ranges::find(*components, Json(part)) != components->end();
  };
  if (names("model")) return CompiledPart::All;
  return names("loss") ? CompiledPart::Loss : CompiledPart::None;
}

void read_learning_rate(Settings& in, program::OptimizerConfig& optimizer) {
  const std::string at = "lr_scheduler.";
  const Bounds steps = between(0, limits::kTokens);
  const std::string warmup = in.has("training.warmup_steps") ? "training." : at;
  optimizer.warmup_steps = in.small(warmup + "warmup_steps", steps).value_or(200);
  optimizer.decay_steps = in.small(at + "total_steps", steps).value_or(0);
  const char* least = in.has(at + "lr_min") ? "lr_min" : "min_lr_factor";
  optimizer.minimum_ratio = in.number(at + least, between(0, 1)).value_or(0);
  if (const auto ratio = in.number(at + "decay_ratio", between(0, 1)); ratio && *ratio == 0)
    optimizer.schedule = program::LearningRateSchedule::Constant;
}

Reading read_toml(Settings& in, const ImportRequest& request, ImportedPlan& imported) {
  return TomlReader(in, request, imported).run();
}

std::optional<std::string> schedule_file(const ImportRequest& request, const std::string& file,
                                         std::string_view named) {
  if (named.empty()) return std::nullopt;
  if (const std::string* text = sibling(request, named)) return *text;
  throw ConfigError(
      fmt::format("{}: pipeline_parallel_schedule_csv: '{}' is not beside it", file, named));
}

}  // namespace meshplan::planner::torchtitan
