#include "formats/megatron/bridge_fields.hpp"

#include <algorithm>
#include <map>

#include "core/parse_number.hpp"
#include "core/quoting.hpp"
#include "formats/megatron/known_flags.hpp"

namespace meshplan::planner::megatron {
namespace {

/// Where a flag is another field than its name with underscores, of the model. An empty name: it
/// needs no field. A literal instead of the flag's value, where it has one.
struct Spelling {
  std::string_view object;
  std::string_view name;
  std::string_view literal = {};
};

// megatron/core/transformer/transformer_config.py, and what training/argument_utils.py makes of
// flags; src/megatron/bridge/models/gpt_provider.py and training/config.py of Megatron-Bridge.
const std::map<std::string_view, Spelling>& spellings() {
  static const std::map<std::string_view, Spelling> kAll = {
      {"--norm-epsilon", {"model", "layernorm_epsilon"}},
      {"--swiglu", {"model", "activation_func", "F.silu"}},
      {"--squared-relu", {"model", "activation_func", "squared_relu"}},
      {"--quick-geglu", {"model", "activation_func", "quick_gelu"}},
      {"--no-bias-gelu-fusion", {"model", "bias_activation_fusion", "False"}},
      {"--disable-bias-linear", {"model", "add_bias_linear", "False"}},
      {"--untie-embeddings-and-output-weights",
       {"model", "share_embeddings_and_output_weights", "False"}},
      {"--group-query-attention", {"", ""}},
      {"--multi-latent-attention", {"", ""}},  // the provider's class
      {"--max-position-embeddings", {"", ""}},
      {"--use-rope-scaling", {"model", "rope_scaling", "True"}},
      {"--rotary-seq-len-interpolation-factor", {"model", "seq_len_interpolation_factor"}},
      {"--no-rope-fusion", {"model", "apply_rope_fusion", "False"}},
      {"--no-yarn-correction-range-round-to-int",
       {"model", "yarn_correction_range_round_to_int", "False"}},
      {"--num-experts", {"model", "num_moe_experts"}},
      {"--num-virtual-stages-per-pipeline-rank", {"", ""}},  // with every division
      {"--decoder-first-pipeline-num-layers", {"model", "num_layers_in_first_pipeline_stage"}},
      {"--decoder-last-pipeline-num-layers", {"model", "num_layers_in_last_pipeline_stage"}},
      {"--use-tp-pp-dp-mapping", {"dist", "use_tp_pp_dp_mapping"}},
      {"--use-distributed-optimizer", {"", ""}},  // of two objects
      {"--num-distributed-optimizer-instances", {"ddp", "num_distributed_optimizer_instances"}},
      {"--optimizer-cpu-offload", {"optimizer", "optimizer_cpu_offload"}},
      {"--overlap-cpu-optimizer-d2h-h2d", {"optimizer", "overlap_cpu_optimizer_d2h_h2d"}},
      {"--use-precision-aware-optimizer", {"optimizer", "use_precision_aware_optimizer"}},
      {"--seq-length", {"model", "seq_length"}},
      {"--micro-batch-size", {"train", "micro_batch_size"}},
      {"--global-batch-size", {"train", "global_batch_size"}},
      {"--optimizer", {"optimizer", "optimizer"}},
      {"--lr", {"optimizer", "lr"}},
      {"--min-lr", {"optimizer", "min_lr"}},
      {"--lr-decay-style", {"scheduler", "lr_decay_style"}},
      {"--lr-decay-iters", {"scheduler", "lr_decay_iters"}},
      {"--lr-warmup-iters", {"scheduler", "lr_warmup_iters"}},
      {"--adam-beta1", {"optimizer", "adam_beta1"}},
      {"--adam-beta2", {"optimizer", "adam_beta2"}},
      {"--adam-eps", {"optimizer", "adam_eps"}},
      {"--sgd-momentum", {"optimizer", "sgd_momentum"}},
      {"--weight-decay", {"optimizer", "weight_decay"}},
      {"--muon-momentum", {"optimizer", "muon_momentum"}},
      {"--muon-num-ns-steps", {"optimizer", "muon_num_ns_steps"}},
      {"--muon-tp-mode", {"optimizer", "muon_tp_mode"}},
      {"--muon-fp32-matmul-prec", {"optimizer", "muon_fp32_matmul_prec"}},
      {"--clip-grad", {"optimizer", "clip_grad"}},
      {"--overlap-grad-reduce", {"ddp", "overlap_grad_reduce"}},
      {"--overlap-param-gather", {"ddp", "overlap_param_gather"}},
      {"--tp-comm-overlap", {"", ""}},  // an object of its own
  };
  return kAll;
}

/// Yarn without latent attention has fields with a prefix of their own.
std::string name_of_field(const Flag& flag, std::string_view name, const program::Plan& plan) {
  const bool prefixed =
      !plan.model.mla && (flag.name == "--rotary-scaling-factor" || flag.name == "--mscale" ||
                          flag.name == "--mscale-all-dim");
  return (prefixed ? "yarn_" : "") + std::string(name);
}

/// Numbers and lists as they are, everything else in quotes.
std::string literal_of(const Flag& flag, const Values& values) {
  if (flag.operands == 0) return "True";
  if (flag.operands < 0) {
    std::string list;
    for (const std::string& value : values) list += (list.empty() ? "" : ", ") + python_text(value);
    return "[" + list + "]";
  }
  const std::string& value = values.front();
  if (flag.name == "--window-size") return "(" + value + ")";
  const bool is_list = value.find('[') != std::string::npos;
  return is_list || parse_number(value, -1e300, 1e300) ? value : python_text(value);
}

/// What a flag leaves to Megatron-LM's own defaults, and a provider leaves unset.
void add_defaults(const program::Plan& plan, std::vector<BridgeField>& fields) {
  const auto add = [&](std::string object, std::string name, std::string literal,
                       std::string_view why = "") {
    fields.push_back({std::move(object), std::move(name), std::move(literal), why});
  };
  const bool gated = plan.model.mlp == models::Mlp::Gated;
  if (gated) add("model", "gated_linear_unit", "True");
  add("model", "should_pad_vocab", "True", "to a multiple of 128 * tp");
  if (plan.parallel.vpp > 1)
    add("model", "virtual_pipeline_model_parallel_size", std::to_string(plan.parallel.vpp),
        "interleaved 1F1B");
  const auto& scaling = plan.model.rope_scaling;
  if (scaling && scaling->kind == models::RopeScalingKind::Yarn && !plan.model.mla) {
    if (!scaling->mscale) add("model", "yarn_mscale", "1.0");
    if (!scaling->mscale_all_dim) add("model", "yarn_mscale_all_dim", "0.0");
    if (scaling->truncate) add("model", "yarn_correction_range_round_to_int", "True");
  }
  add("dataset", "seq_length", std::to_string(plan.workload.seq_len));
  // A tokenizer with more than the model has is refused.
  add("tokenizer", "vocab_size", std::to_string(plan.model.vocab_size - 1),
      "NullTokenizer adds the end of documents");
  const std::string divided = plan.zero_stage == 1 ? "True" : "False";
  add("ddp", "use_distributed_optimizer", divided, "ZeRO 1: optimizer state over dp * cp");
  add("optimizer", "use_distributed_optimizer", divided);
  // The recipe's own schedule of the decay would stand above the optimizer's.
  const std::string decay = shortest(plan.workload.optimizer.weight_decay);
  add("scheduler", "start_weight_decay", decay);
  add("scheduler", "end_weight_decay", decay);
}

/// Fields that are written by others than the table, and that alone are read.
const std::map<std::pair<std::string_view, std::string_view>, std::string>& other_spellings() {
  static const std::map<std::pair<std::string_view, std::string_view>, std::string> kAll = {
      {{"model", "virtual_pipeline_model_parallel_size"}, "--num-virtual-stages-per-pipeline-rank"},
      {{"model", "yarn_rotary_scaling_factor"}, "--rotary-scaling-factor"},
      {{"model", "yarn_mscale"}, "--mscale"},
      {{"model", "yarn_mscale_all_dim"}, "--mscale-all-dim"},
      {{"model", "fp8"}, "--fp8-format"},
      {{"mixed_precision", "fp8"}, "--fp8-format"},
      {{"mixed_precision", "fp4"}, "--fp4-format"},
      {{"model", "fp4"}, "--fp4-format"},
      {{"train", "rampup_batch_size"}, "--rampup-batch-size"},
  };
  return kAll;
}

}  // namespace

std::vector<FieldFlag> flags_of_field(std::string_view object, const std::string& name) {
  if (const auto other = other_spellings().find({object, name}); other != other_spellings().end())
    return {{other->second, ""}};
  std::vector<FieldFlag> found;
  for (const auto& [flag, as] : spellings())
    if (as.object == object && as.name == name) found.push_back({std::string(flag), as.literal});
  if (!found.empty()) return found;
  std::string flag = "--" + name;
  std::ranges::replace(flag, '_', '-');
  if (is_known_flag(flag)) return {{std::move(flag), ""}};
  std::string negated = "--no-" + flag.substr(2);
  if (is_known_flag(negated)) return {{std::move(negated), "False"}};
  return {};
}

std::vector<BridgeField> bridge_fields(const program::Plan& plan) {
  std::vector<BridgeField> fields;
  for (const Flag& flag : flags()) {
    if (flag.group == Group::Precision) continue;  // a recipe of numbers
    const std::optional<Values> values = flag.write(plan);
    if (!values) continue;
    const auto spelling = spellings().find(flag.name);
    if (spelling == spellings().end()) {
      std::string name(flag.name.substr(2));
      std::ranges::replace(name, '-', '_');
      fields.push_back(
          {"model", name_of_field(flag, name, plan), literal_of(flag, *values), flag.why});
      continue;
    }
    const Spelling& as = spelling->second;
    if (as.name.empty()) continue;
    fields.push_back({std::string(as.object), name_of_field(flag, as.name, plan),
                      as.literal.empty() ? literal_of(flag, *values) : std::string(as.literal),
                      flag.why});
  }
  add_defaults(plan, fields);
  return fields;
}

}  // namespace meshplan::planner::megatron
