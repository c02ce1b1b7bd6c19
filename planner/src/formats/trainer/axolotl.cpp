// axolotl's YAML (src/axolotl/utils/schemas/config.py).
#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/line.hpp"
#include "formats/text/documents.hpp"
#include "formats/text/imported.hpp"
#include "formats/trainer/trainer.hpp"
#include "formats/trainer/training.hpp"

namespace meshplan::planner {
namespace trainer {
namespace {

using program::AttentionBackend;
using program::ContextMethod;
using program::LossKernel;

struct OtherTraining {
  std::string_view key;
  std::string_view what;
};
/// Keys that make another training of it than that of all weights on the next token.
constexpr std::array kOtherTrainings = {
    OtherTraining{"reward_model", "a reward model is trained, on two answers a prompt"},
    OtherTraining{"process_reward_model", "a reward model is trained"},
    OtherTraining{"num_labels", "a classifier is trained"},
    OtherTraining{"processor_type", "a model of images or sound and text is trained"},
    OtherTraining{"diffusion", "a diffusion model of text is trained, which sees both ways"},
    OtherTraining{"unfrozen_parameters",
                  "parts of the model are trained, by patterns of PyTorch's "
                  "names"},
    OtherTraining{"lisa_n_layers", "some layers are trained, others from time to time (LISA)"},
    OtherTraining{"relora", "adapters are trained and merged from time to time (ReLoRA)"},
    OtherTraining{"relora_steps", "adapters are trained and merged from time to time (ReLoRA)"},
    OtherTraining{"qat", "weights are rounded as they will be quantized (QAT)"},
    OtherTraining{"llmcompressor", "weights stay sparse while they are trained"},
    OtherTraining{"s2_attention", "attention is shifted and sparse (S^2-Attn)"},
    OtherTraining{"use_onebitllms", "weights of one bit are trained"},
    OtherTraining{"hatchery", "the training runs at a service"},
};

class AxolotlReader {
 public:
  explicit AxolotlReader(const ImportRequest& request)
      : request_(request), in_(parse_yaml(main_text(request), request.main), request.main) {}

  ImportedPlan run() {
    const auto name = in_.text("base_model");
    if (!name) in_.fail("base_model", "a model's name or path");
    training_.model = *name;
    training_.model_key = "base_model";
    refuse_other_trainings();
    read_adapter();
    read_precision();
    read_batch();
    read_optimizer();
    read_length();
    read_kernels();
    read_checkpointing();
    read_distribution();
    training_.arguments.add_given(request_);
    return plan_of_training(request_, in_, std::move(training_));
  }

 private:
  [[noreturn]] void refuse(std::string_view key, std::string_view why) const {
    throw ConfigError(fmt::format("{}: {}: {}", in_.file(), key, why));
  }
  void assume(std::string line) { training_.assumptions.push_back(std::move(line)); }

  /// Switches of axolotl may be "auto", which stands for what the device can do.
  bool is_on(std::string_view key) {
    const Json* value = in_.value(key);
    return value != nullptr && *value != Json(false);
  }

  void refuse_other_trainings() {
    if (const Json* kind = in_.value("rl"); kind != nullptr && *kind != Json(false))
      refuse("rl", fmt::format("{} compares answers, or generates them, and runs a second model; "
                               "trainings on the next token are read",
                               quoted(*kind)));
    for (const OtherTraining& other : kOtherTrainings)
      if (is_on(other.key))
        refuse(other.key, fmt::format("{}, which a plan cannot say", other.what));
  }

  void read_adapter() {
    const Json* given = in_.value("adapter");
    const bool four = is_on("load_in_4bit");
    const bool eight = is_on("load_in_8bit");
    if (given == nullptr || *given == Json("") || *given == Json(false)) {
      if (four || eight)
        refuse(four ? "load_in_4bit" : "load_in_8bit",
               "goes with an adapter alone (adapter: qlora)");
      return;
    }
    Adapters& adapters = training_.adapters;
    adapters.kind = given->is_string() ? given->get<std::string>() : quoted(*given);
    adapters.key = "adapter";
    adapters.base_bits = four ? 4 : eight ? 8 : 16;
    read_adapters(in_, {"lora_r", "lora_alpha", "lora_dropout", "lora_target_modules"}, adapters);
    if (adapters.kind == "qlora" && adapters.base_bits == 16) adapters.base_bits = 4;
    if (is_on("lora_target_linear")) adapters.modules = {"all"};
    for (const char* const key :
         {"peft_use_dora", "lora_target_parameters", "peft_layers_to_transform"})
      if (is_on(key)) refuse(key, "adapters beside single layers or parameters are not read");
    if (const Json* whole = in_.value("lora_modules_to_save");
        whole != nullptr && whole->is_array())
      for (const Json& module : *whole)
        if (module.is_string()) adapters.whole.push_back(module.get<std::string>());
    if (is_on("gptq") && adapters.base_bits == 16) {
      adapters.base_bits = 4;
      assume("weights of 4 bits (GPTQ): kept as nf4");
    }
  }

  void read_precision() {
    const bool bf16 = is_on("bf16") || is_on("bfloat16");
    const bool fp16 = !bf16 && (is_on("fp16") || is_on("float16"));
    const Json* value = in_.value("bf16");
    if ((value != nullptr && *value == Json("full")) || is_on("bfloat16"))
      assume("bf16: all in bf16, without autocast: as bf16");
    const std::string name = bf16 ? "bf16" : fp16 ? "fp16" : "no";
    training_.distributed["mixed_precision"] = name;
    for (const char* const type : {"bf16", "fp16"})
      training_.arguments.add(type, name == type ? "true" : "false", in_.file());
    training_.has_low_precision_state = bf16 || fp16;
    training_.is_fp8 = is_on("fp8");
    if (!training_.is_fp8) return;
    if (!bf16 && !fp16) {
      training_.distributed["mixed_precision"] = "bf16";
      assume("workload.precision = fp8 beside bf16 (fp8: true says nothing of what is not in fp8)");
    }
    training_.settings.fp8_scaling = program::Fp8Scaling::Tensorwise;
    if (const auto gathers = in_.flag("fp8_enable_fsdp_float8_all_gather"))
      training_.settings.fp8_param_gather = *gathers;
  }

  void read_batch() {
    const Bounds bounds = between(1, limits::kTokens);
    const auto micro = in_.integer("micro_batch_size", bounds);
    auto accumulation = in_.integer("gradient_accumulation_steps", bounds);
    if (!micro) assume("micro_batch_size = 1 (axolotl's default)");
    const auto together = in_.integer("batch_size", bounds);  // of a GPU: the older way to say it
    if (!accumulation && together) {
      if (*together % micro.value_or(1) != 0)
        in_.fail("batch_size",
                 fmt::format("a multiple of micro_batch_size({})", micro.value_or(1)));
      accumulation = *together / micro.value_or(1);
    }
    training_.arguments.add("per_device_train_batch_size", std::to_string(micro.value_or(1)),
                            in_.file());
    training_.arguments.add("gradient_accumulation_steps", std::to_string(accumulation.value_or(1)),
                            in_.file());
  }

  void read_optimizer() {
    for (const auto& [name, value] : {std::pair{"adam_beta2", "0.999"}, {"weight_decay", "0"}})
      training_.arguments.add(name, value, "TrainingArguments");
    for (const char* const key : {"learning_rate", "weight_decay", "adam_beta1", "adam_beta2",
                                  "adam_epsilon", "max_grad_norm"})
      pass_on(in_, key, key, training_);
    pass_on(in_, "optimizer", "optim", training_);
    pass_on(in_, "lr_scheduler", "lr_scheduler_type", training_);
    if (const auto steps = in_.number("warmup_steps"); steps && *steps >= 1)
      training_.arguments.add("warmup_steps", fmt::format("{:.0f}", *steps), in_.file());
  }

  void read_length() {
    if (!pass_on(in_, "sequence_len", "max_seq_length", training_)) {
      training_.arguments.add("max_seq_length", "512", "axolotl");
      assume("sequence_len = 512 (axolotl's default)");
    }
    if (is_on("sample_packing"))
      assume(
          "sample_packing: full sequences, whose attention is that of whole ones; packed documents "
          "see only themselves, and their lengths are in the data");
    else if (!is_on("pad_to_sequence_len") && !is_on("pretraining_dataset"))
      assume(
          "every sequence has sequence_len tokens; without sample_packing it is as long as its "
          "batch's longest");
  }

  void read_kernels() {
    const std::string name = in_.text("attn_implementation").value_or("");
    if (name == "eager" || is_on("eager_attention"))
      training_.settings.attention = AttentionBackend::Unfused;
    else if (!name.empty() || is_on("flash_attention") || is_on("sdp_attention") ||
             is_on("xformers_attention") || is_on("flex_attention"))
      training_.settings.attention = AttentionBackend::Flash;
    if (is_on("torch_compile")) training_.settings.compile = program::CompiledPart::All;
    bool cuts_loss = is_on("liger_fused_linear_cross_entropy") || is_on("cut_cross_entropy") ||
                     is_on("chunked_cross_entropy");
    if (const Json* plugins = in_.value("plugins"); plugins != nullptr && plugins->is_array())
      for (const Json& plugin : *plugins)
        if (plugin.is_string() &&
            plugin.get<std::string>().find("CutCrossEntropy") != std::string::npos)
          cuts_loss = true;
    if (cuts_loss) training_.settings.loss = LossKernel::Chunked;
    for (const char* const loss : {"use_eaft", "neftune_noise_alpha"})
      if (is_on(loss)) assume(fmt::format("{}: priced as cross entropy", loss));
    if (is_on("tiled_mlp")) refuse("tiled_mlp", "computes MLPs in pieces, which a plan cannot say");
  }

  void read_checkpointing() {
    const Json* value = in_.value("gradient_checkpointing");
    const bool recomputes = value != nullptr && *value != Json(false);
    const bool offloads =
        value != nullptr && value->is_string() && value->get<std::string>().starts_with("offload");
    training_.arguments.add("gradient_checkpointing", recomputes ? "true" : "false", in_.file());
    training_.offloads_activations = offloads || is_on("activation_offloading");
  }

  void read_distribution() {
    if (in_.small("expert_parallel_size").value_or(1) > 1)
      in_.fail("expert_parallel_size", "1: experts over ranks beside FSDP are not read");
    if (!read_deepspeed_path(in_, "deepspeed", training_) && !read_fsdp_section(in_, training_)) {
      training_.distributed["distributed_type"] = "MULTI_GPU";
      assume("data parallel (PyTorch's DDP): the file has neither deepspeed nor fsdp_config");
    }
    read_mesh();
  }

  int degree(std::string_view key) { return in_.small(key).value_or(1); }

  /// src/axolotl/utils/distributed.py, _get_parallel_config_kwargs.
  void read_mesh() {
    const int tp = degree("tensor_parallel_size");
    const int cp = std::max(degree("context_parallel_size"), degree("sequence_parallel_degree"));
    const int replicate = degree("dp_replicate_size");
    const auto shard = in_.small("dp_shard_size");
    if (cp > 1) read_context();
    const std::string type = training_.distributed.value("distributed_type", "");
    if (type == "DEEPSPEED") {
      if (tp > 1) refuse("tensor_parallel_size", "goes with fsdp_config, not with deepspeed");
      if (cp > 1) training_.distributed["parallelism_config"]["parallelism_config_sp_size"] = cp;
      return;
    }
    if (tp * cp * replicate == 1 && !shard) return;
    if (type != "FSDP" && (tp > 1 || shard.value_or(1) > 1))
      refuse(tp > 1 ? "tensor_parallel_size" : "dp_shard_size",
             "goes with fsdp_config, which the file does not have");
    const std::int64_t others = std::int64_t{tp} * cp * replicate;
    std::int64_t sharded = shard.value_or(1);
    std::int64_t copies = replicate;
    if (!shard && request_.ranks) sharded = std::max<std::int64_t>(1, *request_.ranks / others);
    if (shard && replicate == 1 && request_.ranks)
      copies = std::max<std::int64_t>(1, *request_.ranks / (std::int64_t{tp} * cp * *shard));
    Json& mesh = training_.distributed["parallelism_config"];
    mesh["parallelism_config_tp_size"] = tp;
    mesh["parallelism_config_cp_size"] = cp;
    mesh["parallelism_config_dp_shard_size"] = sharded;
    mesh["parallelism_config_dp_replicate_size"] = copies;
    if (!request_.ranks) training_.distributed["num_processes"] = sharded * copies * tp * cp;
  }

  /// ring_attn_func: with packed samples keys are gathered as in Llama 3, else they pass around.
  void read_context() {
    const std::string function =
        in_.text("ring_attn_func")
            .value_or(is_on("sample_packing") ? "varlen_llama3" : "batch_ring");
    training_.context =
        function == "varlen_llama3" ? ContextMethod::AllGather : ContextMethod::Ring;
  }

  const ImportRequest& request_;
  Settings in_;
  Training training_;
};

}  // namespace
}  // namespace trainer

ImportedPlan read_axolotl(const ImportRequest& request) {
  return trainer::AxolotlReader(request).run();
}

bool recognizes_axolotl(std::string_view name, std::string_view text) {
  const auto has = [&](std::string_view key) { return has_top_key(text, key); };
  return has_ending(name, {".yaml", ".yml"}) && has("base_model") &&
         (has("sequence_len") || has("micro_batch_size") || has("datasets"));
}

}  // namespace meshplan::planner
