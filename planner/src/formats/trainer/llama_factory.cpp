// LLaMA-Factory's YAML: keys are TrainingArguments' own beside its model, data and method arguments
// (src/llamafactory/hparams); the second generation (src/llamafactory/v1/config) has its own.
#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/line.hpp"
#include "formats/text/documents.hpp"
#include "formats/text/hugging_face_models.hpp"
#include "formats/text/imported.hpp"
#include "formats/trainer/trainer.hpp"
#include "formats/trainer/training.hpp"

namespace meshplan::planner {
namespace trainer {
namespace {

using program::AttentionBackend;
using program::ContextMethod;
using program::LossKernel;

constexpr std::array<std::string_view, 6> kStages = {"pt", "sft", "rm", "ppo", "dpo", "kto"};
constexpr std::array<std::string_view, 6> kAttentions = {"auto", "disabled", "sdpa",
                                                         "fa2",  "fa3",      "flex"};
constexpr std::array<std::string_view, 4> kMethods = {"lora", "oft", "freeze", "full"};

struct UnreadMethod {
  std::string_view key;
  std::string_view what;
};
/// Ways to train that change what a step computes or keeps, for which a plan has no words.
constexpr std::array kUnreadMethods = {
    UnreadMethod{"use_galore", "gradients are projected to a low rank (GaLore)"},
    UnreadMethod{"use_apollo", "gradients are projected to a low rank (APOLLO)"},
    UnreadMethod{"use_badam", "one block of layers is trained at a time (BAdam)"},
    UnreadMethod{"use_muon", "the optimizer is Muon"},
    UnreadMethod{"use_adam_mini", "the optimizer is Adam-mini, with one second moment a block"},
    UnreadMethod{"use_asft_loss", "a second, frozen model runs beside the trained one (ASFT)"},
    UnreadMethod{"mixture_of_depths", "layers pass over tokens (mixture of depths)"},
    UnreadMethod{"use_kt", "experts compute on processor cores (KTransformers)"},
    UnreadMethod{"shift_attn", "attention is shifted and sparse (S^2-Attn)"},
    UnreadMethod{"use_unsloth", "kernels are Unsloth's"},
    UnreadMethod{"pure_bf16", "the optimizer changes bf16 weights, without a copy in fp32"},
};

class LlamaFactoryReader {
 public:
  explicit LlamaFactoryReader(const ImportRequest& request)
      : request_(request), in_(parse_yaml(main_text(request), request.main), request.main) {}

  ImportedPlan run() {
    if (in_.has("model_name_or_path"))
      read_first_generation();
    else
      read_second_generation();
    training_.arguments.add_given(request_);
    return plan_of_training(request_, in_, std::move(training_));
  }

 private:
  [[noreturn]] void refuse(std::string_view key, std::string_view why) const {
    throw ConfigError(fmt::format("{}: {}: {}", in_.file(), key, why));
  }
  void assume(std::string line) { training_.assumptions.push_back(std::move(line)); }
  bool on(std::string_view key) { return in_.flag(key).value_or(false); }

  void read_model(std::string_view key) {
    training_.model_key = key;
    const auto name = in_.text(key);
    if (!name) in_.fail(key, "a model's name or path");
    training_.model = *name;
  }

  void read_first_generation() {
    read_model("model_name_or_path");
    refuse_what_does_not_train();
    for (const UnreadMethod& method : kUnreadMethods) {
      const Json* value = in_.value(method.key);
      if (value != nullptr && *value != Json(false))
        refuse(method.key, fmt::format("{}, which a plan cannot say", method.what));
    }
    read_method();
    read_precision();
    read_batch();
    read_length();
    read_kernels();
    read_distribution();
  }

  void refuse_what_does_not_train() {
    if (in_.has("export_dir"))
      refuse("export_dir", "merges or exports a checkpoint, trains nothing");
    if (!on("do_train"))
      throw ConfigError(fmt::format("{}: do_train is not true: it trains nothing{}", in_.file(),
                                    on("do_predict") ? ", but predicts" : ""));
    const std::string stage = in_.word("stage", kStages).value_or("sft");
    if (stage == "dpo" || stage == "kto")
      refuse("stage", fmt::format("{} runs a second, frozen model beside the trained one, and two "
                                  "answers a prompt; read are pt and sft",
                                  stage));
    if (stage == "ppo")
      refuse("stage", "ppo generates text and runs several models; read are pt and sft");
    if (stage == "rm")
      refuse("stage", "rm trains a reward model, on two answers a prompt; read are pt and sft");
    training_.arguments.add("stage", stage, in_.file());
  }

  void read_method() {
    const std::string method = in_.word("finetuning_type", kMethods).value_or("lora");
    const auto bits = in_.small("quantization_bit", between(1, 8));
    if (method == "full") {
      if (bits) refuse("quantization_bit", "goes with adapters alone (finetuning_type: lora)");
      return;
    }
    if (method == "freeze") {
      read_freeze("");
      return;
    }
    training_.adapters.kind = method;
    training_.adapters.key = "finetuning_type";
    training_.adapters.base_bits = bits.value_or(16);
    read_adapters(in_, {"lora_rank", "lora_alpha", "lora_dropout", "lora_target"},
                  training_.adapters);
    complete_lora();
  }

  /// Defaults of its FinetuningArguments, and kinds of LoRA that compute something else.
  void complete_lora() {
    Adapters& adapters = training_.adapters;
    for (const char* const key : {"use_dora", "create_new_adapter"})
      if (on(key)) refuse(key, "which a plan cannot say");
    if (!adapters.rank) adapters.rank = 8;
    if (!adapters.alpha) adapters.alpha = 2.0 * *adapters.rank;
    if (adapters.modules.empty()) adapters.modules = {"all"};
    if (const auto more = in_.text("additional_target"))
      adapters.whole = words_between_commas(*more);
    const std::string& name = training_.model;
    const auto named = [&](std::string_view part) {
      return name.find(part) != std::string_view::npos;
    };
    if (adapters.base_bits == 16 && (named("GPTQ") || named("AWQ") || named("gptq"))) {
      adapters.base_bits = 4;
      assume("weights of 4 bits (GPTQ or AWQ, by the checkpoint's name): kept as nf4");
    }
  }

  /// The last so many layers are trained, or with a negative number the first ones.
  /// @param at  "" or the section that has it
  void read_freeze(const std::string& at) {
    const std::string layers = at + "freeze_trainable_layers";
    const std::string modules = at + "freeze_trainable_modules";
    const int trained = in_.small(layers, between(-limits::kLayers, limits::kLayers)).value_or(2);
    const std::string which = in_.text(modules).value_or("all");
    if (which != "all") in_.fail(modules, "all: single modules of a layer are not read");
    if (in_.value(at + "freeze_extra_modules") != nullptr)
      in_.fail(at + "freeze_extra_modules", "null: modules outside of layers are not read");
    const models::ModelSpec model =
        request_.model ? *request_.model
                       : named_model(request_, training_.model, training_.model_key).spec;
    const int number = std::abs(trained);
    if (number < 1 || number > model.num_layers)
      in_.fail(layers, fmt::format("1 to {} layers, or as many with a minus", model.num_layers));
    training_.frozen = {"*"};
    if (on("use_llama_pro")) {
      if (model.num_layers % number != 0)
        in_.fail(layers, fmt::format("a divisor of {} layers", model.num_layers));
      const int stride = model.num_layers / number;
      for (int layer = stride - 1; layer < model.num_layers; layer += stride)
        training_.frozen.push_back(fmt::format("!layers.{}", layer));
      return;
    }
    const int first = trained > 0 ? model.num_layers - number : 0;
    training_.frozen.push_back(fmt::format("!layers.{}-{}", first, first + number - 1));
  }

  void read_precision() {
    const bool bf16 = on("bf16");
    const bool fp16 = on("fp16");
    if (bf16 && fp16) refuse("fp16", "expected false where bf16 is true");
    set_precision(bf16 ? "bf16" : fp16 ? "fp16" : "no");
    training_.is_fp8 = on("fp8");
    if (!training_.is_fp8) return;
    const auto backend = in_.text("fp8_backend");
    if (!backend || *backend == "torchao" || *backend == "auto")
      training_.settings.fp8_scaling = program::Fp8Scaling::Tensorwise;
    if (const auto gathers = in_.flag("fp8_enable_fsdp_float8_all_gather"))
      training_.settings.fp8_param_gather = *gathers;
  }

  void set_precision(const std::string& name) {
    training_.distributed["mixed_precision"] = name;
    for (const char* const type : {"bf16", "fp16"})
      training_.arguments.add(type, name == type ? "true" : "false", in_.file());
  }

  void read_batch() {
    constexpr std::array<std::string_view, 10> kOwn = {
        "learning_rate", "adam_beta1",        "adam_beta2",          "adam_epsilon", "weight_decay",
        "max_grad_norm", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "optim"};
    add_defaults();
    for (const std::string_view key : kOwn) pass_on(in_, key, key, training_);
    if (!pass_on(in_, "per_device_train_batch_size", "per_device_train_batch_size", training_)) {
      training_.arguments.add("per_device_train_batch_size", "8", "TrainingArguments");
      assume("per_device_train_batch_size = 8 (the Trainer's default)");
    }
    if (!pass_on(in_, "gradient_accumulation_steps", "gradient_accumulation_steps", training_))
      training_.arguments.add("gradient_accumulation_steps", "1", "TrainingArguments");
  }

  /// Of transformers.TrainingArguments, where they are not a plan's.
  void add_defaults() {
    for (const auto& [name, value] :
         {std::pair{"learning_rate", "5e-5"}, std::pair{"adam_beta2", "0.999"},
          std::pair{"weight_decay", "0"}})
      training_.arguments.add(name, value, "TrainingArguments");
  }

  void read_length() {
    if (!pass_on(in_, "cutoff_len", "max_seq_length", training_)) {
      training_.arguments.add("max_seq_length", "2048", "LLaMA-Factory");
      assume("cutoff_len = 2048 (LLaMA-Factory's default)");
    }
    const bool pretrains = training_.arguments.text("stage") == "pt";
    const bool neat = on("neat_packing");
    const bool packs = in_.flag("packing").value_or(pretrains) || neat;
    if (neat)
      assume("neat_packing: attention is that of whole sequences; documents see only themselves");
    if (!packs)
      assume(
          "every sequence has cutoff_len tokens; without packing it is as long as its batch's "
          "longest");
  }

  void read_kernels() {
    training_.arguments.add("gradient_checkpointing",
                            on("disable_gradient_checkpointing") ? "false" : "true", in_.file());
    const std::string attention = in_.word("flash_attn", kAttentions).value_or("auto");
    training_.settings.attention =
        attention == "disabled" ? AttentionBackend::Unfused : AttentionBackend::Flash;
    if (on("enable_liger_kernel")) training_.settings.loss = LossKernel::Chunked;
    if (on("torch_compile")) training_.settings.compile = program::CompiledPart::All;
    training_.offloads_activations = on("use_unsloth_gc");
    for (const char* const loss : {"use_dft_loss", "use_eaft_loss"})
      if (on(loss)) assume(fmt::format("{}: priced as cross entropy", loss));
  }

  void read_distribution() {
    if (in_.has("tensor_model_parallel_size")) return read_megatron();
    if (read_deepspeed_path(in_, "deepspeed", training_)) return;
    if (read_fsdp_section(in_, training_)) return;
    if (read_commented_launch()) return;
    training_.distributed["distributed_type"] = "MULTI_GPU";
    assume("data parallel (PyTorch's DDP): the file has neither deepspeed nor fsdp");
  }

  /// "accelerate launch --config_file PATH" in a comment of the file, which is how it is started.
  bool read_commented_launch() {
    const std::string& text = main_text(request_);
    constexpr std::string_view kOption = "--config_file";
    for (std::size_t at = text.find(kOption); at != std::string_view::npos;
         at = text.find(kOption, at + 1)) {
      const std::size_t line = text.rfind('\n', at) + 1;  // npos + 1 = 0
      const std::size_t begin = text.find_first_not_of(" =", at + kOption.size());
      if (text.find('#', line) > at || begin == std::string_view::npos) continue;
      const std::string path = text.substr(begin, text.find_first_of(" \n\\", begin) - begin);
      const std::optional<std::string> found = named_file(request_, path);
      if (!found) continue;
      Json config = parse_yaml(*found, path);
      if (!config.is_object() || !config.contains("distributed_type")) continue;
      config.update(training_.distributed);
      training_.distributed = std::move(config);
      assume(fmt::format("started with --config_file {}, as a comment of the file has it",
                         short_line(path)));
      return true;
    }
    return false;
  }

  /// Its Megatron trainers (mcore_adapter, Megatron-Bridge) have Megatron-LM's names.
  void read_megatron() {
    Json plugin = Json::object();
    for (const auto& [key, name] :
         {std::pair{"tensor_model_parallel_size", "tp_degree"},
          std::pair{"pipeline_model_parallel_size", "pp_degree"},
          std::pair{"context_parallel_size", "context_parallel_size"},
          std::pair{"expert_model_parallel_size", "expert_model_parallel_size"},
          std::pair{"expert_tensor_parallel_size", "expert_tensor_parallel_size"},
          std::pair{"sequence_parallel", "sequence_parallelism"},
          std::pair{"use_distributed_optimizer", "use_distributed_optimizer"},
          std::pair{"recompute_granularity", "recompute_granularity"},
          std::pair{"recompute_method", "recompute_method"},
          std::pair{"recompute_num_layers", "recompute_num_layers"}})
      if (const Json* value = in_.value(key)) plugin[fmt::format("megatron_lm_{}", name)] = *value;
    if (in_.small("virtual_pipeline_model_parallel_size").value_or(1) > 1)
      in_.fail("virtual_pipeline_model_parallel_size", "1: interleaved stages are not read here");
    if (!plugin.contains("megatron_lm_context_parallel_size"))
      plugin["megatron_lm_context_parallel_size"] = 1;
    read_megatron_settings();
    training_.distributed["distributed_type"] = "MEGATRON_LM";
    training_.distributed["megatron_lm_config"] = std::move(plugin);
  }

  void read_megatron_settings() {
    program::StackSettings& settings = training_.settings;
    settings.overlap_dp = in_.flag("overlap_grad_reduce");
    settings.grouped_experts = in_.flag("moe_grouped_gemm");
    const auto dispatcher = in_.text("moe_token_dispatcher_type");
    if (!dispatcher) return;
    if (*dispatcher == "alltoall") settings.expert_dispatch = program::ExpertDispatch::AllToAll;
    if (*dispatcher == "allgather") settings.expert_dispatch = program::ExpertDispatch::AllGather;
    if (!settings.expert_dispatch) in_.fail("moe_token_dispatcher_type", "alltoall or allgather");
  }

  void read_second_generation() {
    read_model("model");
    const bool exports = in_.has("peft_config.export_dir");
    if (exports || (!in_.has("train_dataset") && !in_.has("micro_batch_size")))
      throw ConfigError(fmt::format("{}: trains nothing: {}", in_.file(),
                                    exports ? "it merges adapters into a checkpoint"
                                            : "it has neither train_dataset nor micro_batch_size"));
    if (const auto data = in_.text("train_dataset"); data && data->find("dpo") != data->npos)
      refuse("train_dataset",
             fmt::format("{} compares answers (dpo); trainings on the next token are "
                         "read",
                         short_line(*data)));
    read_peft();
    set_precision(in_.flag("bf16").value_or(true) ? "bf16" : "no");
    add_defaults();
    if (!pass_on(in_, "learning_rate", "learning_rate", training_))
      training_.arguments.add("learning_rate", "1e-4", "LLaMA-Factory");
    pass_on(in_, "max_grad_norm", "max_grad_norm", training_);
    read_second_batch();
    if (!pass_on(in_, "cutoff_len", "max_seq_length", training_))
      training_.arguments.add("max_seq_length", "2048", "LLaMA-Factory");
    if (const auto name = in_.text("optim_config.name"); name && *name != "adamw")
      refuse("optim_config.name", fmt::format("'{}': a plan has AdamW and SGD", short_line(*name)));
    training_.arguments.add(
        "gradient_checkpointing",
        in_.flag("enable_activation_checkpointing").value_or(true) ? "true" : "false", in_.file());
    const auto attention = in_.text("flash_attn");
    if (attention) training_.settings.attention = AttentionBackend::Flash;
    const std::string kernels = in_.text("kernel_config.name").value_or("");
    if (kernels.find("liger") != std::string::npos) training_.settings.loss = LossKernel::Chunked;
    read_second_distribution();
  }

  void read_peft() {
    const auto method = in_.text("peft_config.name");
    if (!method) return;
    if (*method == "freeze") return read_freeze("peft_config.");
    training_.adapters.kind = *method;
    training_.adapters.key = "peft_config.name";
    read_adapters(in_,
                  {"peft_config.r", "peft_config.lora_alpha", "peft_config.lora_dropout",
                   "peft_config.target_modules"},
                  training_.adapters);
    training_.adapters.base_bits =
        in_.small("quant_config.quantization_bit", between(1, 16)).value_or(16);
    complete_lora();
  }

  void read_second_batch() {
    const int micro = in_.small("micro_batch_size", between(1, limits::kTokens)).value_or(1);
    training_.arguments.add("per_device_train_batch_size", std::to_string(micro), in_.file());
    int accumulation = 1;
    if (const auto global = in_.small("global_batch_size", between(1, limits::kTokens))) {
      const int cp = in_.small("cp_size").value_or(1);
      const int ranks = request_.ranks.value_or(cp) / cp;
      const std::int64_t together = std::int64_t{micro} * std::max(1, ranks);
      if (*global % together != 0)
        in_.fail("global_batch_size",
                 fmt::format("a multiple of micro_batch_size({}) * dp({})", micro, ranks));
      accumulation = static_cast<int>(*global / together);
    }
    training_.arguments.add("gradient_accumulation_steps", std::to_string(accumulation),
                            in_.file());
    const std::string batching = in_.text("batching_strategy").value_or("normal");
    assume(batching == "normal"
               ? "every sequence has cutoff_len tokens; they are as long as the batch's longest"
               : fmt::format("batching_strategy {}: micro-batches of micro_batch_size sequences of "
                             "cutoff_len tokens",
                             short_line(batching)));
  }

  void read_second_distribution() {
    const std::string name = in_.text("dist_config.name").value_or("");
    if (name == "deepspeed") {
      if (!read_deepspeed_path(in_, "dist_config.config_file", training_))
        in_.fail("dist_config.config_file", "the path of a ds_config.json");
    } else if (name == "fsdp2") {
      training_.distributed["distributed_type"] = "FSDP";
      training_.distributed["fsdp_config"] = {{"fsdp_version", 2},
                                              {"fsdp_reshard_after_forward", true}};
    } else if (name.empty() || name == "ddp") {
      training_.distributed["distributed_type"] = "MULTI_GPU";
    } else {
      in_.fail("dist_config.name", "fsdp2, deepspeed or ddp");
    }
    read_second_context();
  }

  void read_second_context() {
    const int cp = in_.small("cp_size").value_or(1);
    const std::string mode = in_.text("cp_mode").value_or("ulysses");
    if (in_.small("mp_replicate_size").value_or(1) > 1)
      in_.fail("mp_replicate_size", "1: copies of what ranks share are not read here");
    if (cp == 1) return;
    if (mode != "ulysses") in_.fail("cp_mode", "ulysses");
    if (!request_.ranks || *request_.ranks % cp != 0)
      in_.fail("cp_size", "a divisor of the GPUs that --gpus gives");
    training_.distributed["parallelism_config"] = {
        {"parallelism_config_cp_size", cp},
        {"parallelism_config_dp_shard_size", *request_.ranks / cp}};
    training_.context = ContextMethod::Ulysses;
  }

  const ImportRequest& request_;
  Settings in_;
  Training training_;
};

}  // namespace
}  // namespace trainer

ImportedPlan read_llama_factory(const ImportRequest& request) {
  return trainer::LlamaFactoryReader(request).run();
}

bool recognizes_llama_factory(std::string_view name, std::string_view text) {
  if (!has_ending(name, {".yaml", ".yml"})) return false;
  const auto has = [&](std::string_view key) { return has_top_key(text, key); };
  if (has("model_name_or_path"))
    return has("finetuning_type") || has("template") || has("stage") || has("cutoff_len");
  return has("model") && (has("model_class") || has("peft_config") || has("dist_config"));
}

}  // namespace meshplan::planner
