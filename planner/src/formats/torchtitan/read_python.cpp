#include <array>
#include <charconv>
#include <fmt/format.h>

#include "core/error.hpp"
#include "formats/text/imported.hpp"
#include "formats/torchtitan/arguments.hpp"
#include "formats/torchtitan/model_tree.hpp"
#include "formats/torchtitan/models.hpp"
#include "formats/torchtitan/reading.hpp"
#include "python/configuration.hpp"

namespace meshplan::planner::torchtitan {
namespace {

using program::OptimizerConfig;
using program::OptimizerKind;
using python::is_call;
using python::is_unknown;

constexpr std::array<std::string_view, 2> kAdams = {"AdamW", "Adam"};
constexpr std::array<const char*, 4> kSections = {"parallelism", "training", "compile",
                                                  "lr_scheduler"};

class PythonReader {
 public:
  PythonReader(python::Configuration configuration, const std::string& file,
               const ImportRequest& request, ImportedPlan& imported)
      : imports_(std::move(configuration.imports)),
        classes_(std::move(configuration.classes)),
        function_(configuration.function),
        given_(std::move(configuration.tree)),
        tree_(completed(given_, configuration.initial)),
        in_(tree_, file),
        request_(request),
        imported_(imported) {
    for (const std::string& note : configuration.notes)
      assume(note + "; taken as if it were not there");
  }

  Reading run() {
    base();
    touched();
    model();
    degrees();
    pipeline();
    batch();
    checkpointing();
    precision();
    optimizer();
    for (const char* section : {"", "parallelism", "training"}) unpacked(section);
    ignored();
    return std::move(result_);
  }

 private:
  void assume(std::string line) { result_.assumptions.push_back(std::move(line)); }

  /// What somebody set, and what its classes give the settings that are read.
  static Json completed(Json tree, const Json& initial) {
    for (const char* section : kSections) {
      if (!initial.contains(section) || !initial.at(section).is_object()) continue;
      if (tree.contains(section) && !tree.at(section).is_object()) continue;
      if (tree.contains(section) && python::is_unknown(tree.at(section))) continue;
      for (const auto& [key, value] : initial.at(section).items())
        if (value.is_primitive() && !tree[section].contains(key)) tree[section][key] = value;
    }
    const char* components = "components";
    if (initial.contains("compile") && initial.at("compile").contains(components) &&
        tree.contains("compile") && tree.at("compile").is_object() &&
        !tree.at("compile").contains(components))
      tree["compile"][components] = initial.at("compile").at(components);
    const char* checkpoint = "activation_checkpoint";
    if (!tree.contains(checkpoint) && initial.contains(checkpoint) &&
        is_call(initial.at(checkpoint)))
      tree[checkpoint] = initial.at(checkpoint);
    return tree;
  }

  /// What the function starts from: torchtitan's own, or nothing but its defaults.
  void base() {
    const std::string name = python::call_name(tree_);
    for (const std::string& each : classes_)
      if (each.find("Flux") != std::string::npos)
        throw ConfigError(fmt::format("{}: {}: {} trains images, no language model", in_.file(),
                                      function_, each));
    for (const std::string& each : classes_)
      if (each.ends_with("Trainer.Config")) return;
    if (name.ends_with("Config"))
      throw ConfigError(
          fmt::format("{}: {}: {} is not a Trainer.Config: it does not train a "
                      "language model in torchtitan's trainer",
                      in_.file(), function_, name));
    base_ = base_configuration(name);
    if (base_ == nullptr) {
      assume(
          fmt::format("{}() is not in this file: torchtitan's defaults are taken for what is not "
                      "set",
                      name));
      return;
    }
    assume(fmt::format("what is not set is as in {}() of torchtitan at b5bcd76c", name));
    result_.family = base_->family;
    result_.flavor = base_->flavor;
  }

  /// @throws ConfigError where a function that is not among the files was given what matters
  void touched() {
    const auto refuse = [&](const Json& part, std::string_view what) {
      if (!part.is_object() || !part.contains(python::kTouched)) return;
      const Json& call = part.at(python::kTouched)[0];
      throw ConfigError(
          fmt::format("{}: '{}' may change {}, and what it calls is not among the files",
                      call.value(python::kPlace, in_.file()),
                      call.at(python::kSource).get<std::string>(), what));
    };
    refuse(tree_, "the configuration");
    for (const char* section : kSections)
      if (tree_.contains(section)) refuse(tree_.at(section), section);
    if (tree_.contains("model_spec")) refuse(tree_.at("model_spec"), "model_spec");
  }

  /// What nobody asked for, as far as somebody set it.
  void ignored() {
    const Settings given(given_, in_.file());
    ImportedPlan all;
    list_ignored(in_, all);
    for (std::string& line : all.ignored)
      if (given.has(line.substr(0, line.find(" = ")))) imported_.ignored.push_back(std::move(line));
  }

  /// The base, where a section is not written as a whole.
  const BaseConfiguration* base_of(const char* section) const {
    return base_ != nullptr && !(tree_.contains(section) && is_call(tree_.at(section))) ? base_
                                                                                        : nullptr;
  }

  void unpacked(const std::string& section) {
    const std::string path =
        section.empty() ? std::string(python::kUnpacked) : section + "." + python::kUnpacked;
    if (const auto source = in_.text(path))
      assume(fmt::format("{}: **{} is not understood; taken as if it were not there", section,
                         *source));
  }

  void model() {
    const Json* spec = in_.has("model_spec") ? &tree_.at("model_spec") : nullptr;
    if (spec == nullptr || !is_call(*spec)) {
      if (spec != nullptr && is_unknown(*spec) && !request_.model)
        in_.fail("model_spec", "a model that is built in these files, or --model");
      in_.value("model_spec");
      return;
    }
    if (python::call_name(*spec).ends_with("ModelSpec")) return described(*spec);
    const std::string name = python::call_name(*spec);
    if (const auto found = imports_.find(name); found != imports_.end())
      result_.family = found->second.substr(found->second.rfind('.') + 1);
    if (result_.family.empty()) result_.family = folder_name();  // from . import model_registry
    if (spec->contains(python::kArguments) && !spec->at(python::kArguments).empty() &&
        spec->at(python::kArguments)[0].is_string())
      result_.flavor = spec->at(python::kArguments)[0].get<std::string>();
    if (const auto flavor = in_.text("model_spec.flavor")) result_.flavor = *flavor;
    in_.value(fmt::format("model_spec.{}", python::kArguments));
    const std::string attention = in_.text("model_spec.attn_backend")
                                      .value_or(result_.family == "gpt_oss" ? "varlen" : "flex");
    result_.flex_attention = attention.starts_with("flex");
    if (in_.small("model_spec.num_mtp_layers", between(0, limits::kLayers)).value_or(0) > 0)
      in_.fail("model_spec.num_mtp_layers", "0, or the package that builds the model beside it");
    std::vector<std::string> converters;
    if (const Json* list = in_.value("model_spec.converters"); list != nullptr) {
      if (!list->is_array()) in_.fail("model_spec.converters", "a list of converters");
      for (const Json& each : *list) converters.push_back(python::call_name(each));
    }
    converted(converters);
    first_layers();
  }

  /// The folder that the file lies in, which is the family in torchtitan.
  std::string folder_name() const {
    const std::size_t slash = in_.file().rfind('/');
    if (slash == std::string::npos) return "";
    const std::string folder = in_.file().substr(0, slash);
    return folder.substr(folder.rfind('/') + 1);
  }

  /// A model that the files build layer by layer.
  void described(const Json& spec) {
    in_.value("model_spec");
    const std::string name = spec.value("name", Json()).is_string() ? spec.at("name") : Json("");
    result_.family = name.substr(name.rfind('/') + 1);
    if (spec.value("flavor", Json()).is_string()) result_.flavor = spec.at("flavor");
    if (request_.model) {
      const Json model = spec.value("model", Json());
      converted(converters_of(model, in_.file() + ": model_spec.model"));
      if (model.is_object() && !model.value("vision_encoder", Json()).is_null())
        assume("the vision encoder is left out: the model that was given is all that is planned");
      return;
    }
    DescribedModel model =
        described_model(spec.value("model", Json()), result_.family + "-" + result_.flavor,
                        in_.file() + ": model_spec.model");
    const std::string attention = spec.at("model").dump();
    result_.flex_attention = attention.find("FlexAttention") != std::string::npos;
    result_.model = std::move(model.spec);
    converted(model.converters);
  }

  /// What converters make of the products.
  void converted(const std::vector<std::string>& converters) {
    for (const std::string& name : converters) {
      const bool float8 = name.find("Float8Linear") != std::string::npos;
      if (!float8 && name.find("MXFP8Linear") == std::string::npos)
        throw ConfigError(fmt::format(
            "{}: model_spec.converters: {} changes what a step computes in a way that is not "
            "predicted; read are Float8LinearConverter and MXFP8LinearConverter",
            in_.file(), name.empty() ? "one that is not understood" : name));
      result_.precision = program::Precision::Fp8;
      assume(
          fmt::format("workload.precision = fp8 with a scale of each tensor; {} has one of each "
                      "{}",
                      name.substr(0, name.find('.')), float8 ? "row" : "32 elements"));
    }
  }

  /// "config.model_spec.model.layers[:12]"
  void first_layers() {
    const std::string path = "model_spec.model.layers";
    if (!in_.has(path)) return;
    const Json* layers = in_.value(path);
    if (layers == nullptr || !is_unknown(*layers)) return;
    const auto source = layers->at(python::kSource).get<std::string>();
    const std::size_t bracket = source.rfind("layers[:");
    int count = 0;
    if (bracket != std::string::npos)
      std::from_chars(source.data() + bracket + 8, source.data() + source.size(), count);
    if (count < 1 || count > limits::kLayers) in_.fail(path, "a slice such as layers[:12]");
    result_.num_layers = count;
  }

  int degree(std::string_view key, int initial, double low = 1) {
    return in_.small(fmt::format("parallelism.{}", key), between(low, limits::kRanks))
        .value_or(initial);
  }

  void degrees() {
    const BaseConfiguration* base = base_of("parallelism");
    result_.replicate = degree("data_parallel_replicate_degree", 1);
    result_.shard = degree("data_parallel_shard_degree", -1, -1);
    result_.reshard =
        in_.word("parallelism.fsdp_reshard_after_forward", kReshardPolicies).value_or("default");
    result_.tp = degree("tensor_parallel_degree", base != nullptr ? base->tp : 1);
    result_.sequence_parallel = in_.flag("parallelism.enable_sequence_parallel").value_or(true);
    result_.cp = degree("context_parallel_degree", 1);
    result_.pp = degree("pipeline_parallel_degree", 1);
    result_.ep = degree("expert_parallel_degree", base != nullptr ? base->ep : 1);
    if (result_.ep > 1) result_.etp = 1;
  }

  void pipeline() {
    const BaseConfiguration* base = base_of("parallelism");
    result_.schedule = in_.text("parallelism.pipeline_parallel_schedule")
                           .value_or(std::string(base != nullptr ? base->schedule : "1F1B"));
    schedule_csv();
    result_.layers_per_stage = in_.small("parallelism.pipeline_parallel_layers_per_stage");
    const Bounds less = between(0, limits::kLayers);
    result_.first_less =
        in_.small("parallelism.pipeline_parallel_first_stage_less_layers", less).value_or(1);
    result_.last_less =
        in_.small("parallelism.pipeline_parallel_last_stage_less_layers", less).value_or(1);
    const std::string path = "parallelism.module_fqns_per_model_part";
    const Json* parts = in_.value(path);
    if (parts == nullptr) return;
    if (!parts->is_array()) in_.fail(path, "a list of lists of modules");
    for (const Json& part : *parts) {
      result_.modules.emplace_back();
      for (const Json& name : part) {
        if (!name.is_string()) in_.fail(path, "a list of lists of modules");
        result_.modules.back().push_back(name.get<std::string>());
      }
    }
  }

  /// A path, or an expression that has a file's name in it.
  void schedule_csv() {
    const std::string path = "parallelism.pipeline_parallel_schedule_csv";
    const Json* csv = in_.value(path);
    if (csv == nullptr) return;
    if (csv->is_string()) {
      result_.schedule_csv = schedule_file(request_, in_.file(), csv->get<std::string>());
      return;
    }
    const std::string source = csv->dump();
    for (const auto& [name, text] : request_.files) {
      const std::string last = name.substr(name.find_last_of('/') + 1);
      if (last.ends_with(".csv") && source.find(last) != std::string::npos)
        result_.schedule_csv = text;
    }
    if (!result_.schedule_csv) in_.fail(path, "the name of a file that is beside this one");
  }

  /// In sequences, as until the summer of 2026.
  void batch_of_sequences() {
    result_.seq_len = in_.integer("training.seq_len", between(1, limits::kTokens)).value_or(2048);
    const std::string path = "training.local_batch_size";
    const std::int64_t local = in_.integer(path, between(1, limits::kTokens)).value_or(8);
    if (const auto global = in_.integer("training.global_batch_size", between(-1, limits::kTokens));
        global && *global > 0)
      result_.step_sequences = *global;
    result_.micro_batch = local;
    if (result_.pp == 1) return;
    const std::string micro = "parallelism.pipeline_parallel_microbatch_size";
    result_.micro_batch = in_.integer(micro, between(1, limits::kTokens)).value_or(1);
    if (local % result_.micro_batch != 0)
      in_.fail(micro, fmt::format("a divisor of {} ({})", path, local));
    result_.pipeline_microbatches = local / result_.micro_batch;
  }

  void batch() {
    for (const char* old : {"training.seq_len", "training.local_batch_size"})
      if (in_.has(old)) return batch_of_sequences();
    const BaseConfiguration* base = base_of("training");
    const Bounds bounds = between(1, 1e15);
    result_.seq_len = in_.integer("training.max_context_length", between(1, limits::kTokens))
                          .value_or(base != nullptr ? base->seq_len : 2048);
    const std::string path = "training.num_tokens_per_microbatch_per_dp_rank";
    const std::int64_t tokens =
        in_.integer(path, bounds)
            .value_or(base != nullptr ? base->micro_batch * base->seq_len : 16384);
    if (tokens % result_.seq_len != 0)
      throw ConfigError(fmt::format(
          "{}: {}: {} tokens are not whole sequences of max_context_length ({}); nearest: {}",
          in_.file(), path, tokens, result_.seq_len,
          std::max<std::int64_t>(1, tokens / result_.seq_len) * result_.seq_len));
    result_.micro_batch = tokens / result_.seq_len;
    if (result_.micro_batch > limits::kTokens)
      in_.fail(path, fmt::format("at most {} sequences", limits::kTokens));
    result_.pipeline_microbatches =
        in_.integer("parallelism.num_pp_microbatches", between(1, limits::kTokens)).value_or(1);
    if (result_.pp == 1) result_.pipeline_microbatches = 1;
    const std::string step = "training.num_tokens_per_train_step";
    const auto all = in_.integer(step, between(-1, 1e15));
    if (!all || *all < 0) return;
    if (*all % result_.seq_len != 0)
      in_.fail(step, fmt::format("a multiple of max_context_length ({})", result_.seq_len));
    result_.step_sequences = *all / result_.seq_len;
  }

  void checkpointing() {
    const std::string path = "activation_checkpoint";
    if (!in_.has(path)) {
      if (base_ != nullptr && base_->full_checkpoint) result_.checkpointing = Checkpointing::Full;
      return;
    }
    const Json* policy = in_.value(path);
    if (policy == nullptr) {
      result_.checkpointing = Checkpointing::None;
      return;
    }
    const std::string name = python::call_name(*policy);
    if (name.find("FullAC") != std::string::npos) {
      result_.checkpointing = Checkpointing::Full;
    } else if (name.find("MemoryBudgetAC") != std::string::npos) {
      assume("recompute.kind = selective (a memory budget leaves it to the compiler)");
    } else if (name.find("SelectiveAC") == std::string::npos) {
      in_.fail(path, "None, FullAC.Config(), SelectiveAC.Config() or MemoryBudgetAC.Config()");
    }
  }

  void precision() {
    const auto type = in_.word("training.mixed_precision_param", kParameterTypes);
    if (type && *type == "float32") result_.precision = program::Precision::F32;
    if (base_ != nullptr && base_->float8 && !in_.has("model_spec"))
      result_.precision = program::Precision::Fp8;
    result_.offload = in_.flag("training.enable_cpu_offload").value_or(false);
    const bool base_compiles = base_of("compile") != nullptr && base_->compiled;
    result_.compiled = compiled_part(in_, in_.flag("compile.enable").value_or(base_compiles));
    if (in_.has("compile.mode") && tree_.at("compile").at("mode").is_null())
      result_.compiled = program::CompiledPart::None;  // the graph trainer without its graph
    if (in_.word("training.dtype", kParameterTypes) == "bfloat16")
      in_.fail("training.dtype", "float32: weights without a copy in fp32 are not predicted");
    if (const auto async = in_.flag("compile.enable_async_tensor_parallel"))
      imported_.plan.stack.settings.overlap_tp = *async;
    result_.cuda_graphs = !in_.flag("training.disable_cuda_graphs").value_or(false);
  }

  /// default_adamw(lr=...) or param groups, of which the first is read.
  void optimizer() {
    OptimizerConfig& optimizer = result_.optimizer;
    optimizer.clip_norm = in_.number("training.max_norm").value_or(1);
    read_learning_rate(in_, optimizer);
    if (!in_.has("optimizer")) return;
    const Json* groups = in_.value("optimizer.param_groups");
    const std::string name = python::call_name(tree_.at("optimizer"));
    if (groups == nullptr && !name.empty() && !name.ends_with("default_adamw") &&
        !name.ends_with("OptimizersContainer.Config"))
      throw ConfigError(
          fmt::format("{}: optimizer: {} is not predicted; read are default_adamw() "
                      "and OptimizersContainer.Config",
                      in_.file(), name));
    if (groups == nullptr || !groups->is_array() || groups->empty() || !is_call((*groups)[0])) {
      Settings arguments(tree_.at("optimizer"), in_.file() + ": optimizer");
      read_adam(arguments, "", optimizer);
      in_.value("optimizer");
      return;
    }
    if (groups->size() > 1)
      assume("workload.optimizer: the first of several param_groups is taken for all");
    Settings group((*groups)[0], in_.file() + ": optimizer.param_groups[0]");
    const auto kind = group.word("optimizer_name", kAdams);
    if (kind && *kind == "Adam") optimizer.kind = OptimizerKind::Adam;
    read_adam(group, "optimizer_kwargs.", optimizer);
  }

  static void read_adam(Settings& in, const std::string& at, OptimizerConfig& optimizer) {
    const auto take = [&](const char* key, double& value) {
      if (const auto given = in.number(at + key)) value = *given;
    };
    take("lr", optimizer.learning_rate);
    take("eps", optimizer.epsilon);
    take("weight_decay", optimizer.weight_decay);
    const Json* betas = in.value(at + "betas");
    if (betas == nullptr) return;
    if (!betas->is_array() || betas->size() != 2 || !(*betas)[0].is_number() ||
        !(*betas)[1].is_number())
      in.fail(at + "betas", "two numbers");
    optimizer.beta1 = (*betas)[0].get<double>();
    optimizer.beta2 = (*betas)[1].get<double>();
  }

  std::map<std::string, std::string> imports_;
  std::vector<std::string> classes_;
  std::string function_;
  Json given_;
  Json tree_;  // with what classes give the rest
  Settings in_;
  const ImportRequest& request_;
  ImportedPlan& imported_;
  const BaseConfiguration* base_ = nullptr;
  Reading result_;
};

}  // namespace

Reading read_python(const std::string& text, const std::string& file, const std::string& function,
                    const ImportRequest& request, ImportedPlan& imported) {
  python::Configuration configuration =
      python::read_configuration(text, file, function, request.open, {.transforms = {"convert"}});
  if (request.arguments) apply_arguments(configuration.tree, *request.arguments);
  return PythonReader(std::move(configuration), file, request, imported).run();
}

}  // namespace meshplan::planner::torchtitan
