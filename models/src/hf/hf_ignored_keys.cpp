// Keys of published configs that change nothing of what meshplan plans and trains.
#include <algorithm>
#include <array>
#include <span>

#include "hf/hf_config.hpp"

namespace meshplan::models {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::array<std::string_view, 49> kGeneration = {"bad_words_ids",
                                                          "begin_suppress_tokens",
                                                          "bos_token_id",
                                                          "cache_implementation",
                                                          "cross_attention_hidden_size",
                                                          "decoder_start_token_id",
                                                          "diversity_penalty",
                                                          "do_sample",
                                                          "early_stopping",
                                                          "encoder_no_repeat_ngram_size",
                                                          "eos_token_id",
                                                          "exponential_decay_length_penalty",
                                                          "forced_bos_token_id",
                                                          "forced_eos_token_id",
                                                          "is_decoder",
                                                          "is_encoder_decoder",
                                                          "length_penalty",
                                                          "max_length",
                                                          "max_new_tokens",
                                                          "min_length",
                                                          "no_repeat_ngram_size",
                                                          "num_beam_groups",
                                                          "num_beams",
                                                          "num_return_sequences",
                                                          "output_attentions",
                                                          "output_hidden_states",
                                                          "output_past",
                                                          "output_scores",
                                                          "pad_token_id",
                                                          "prefix",
                                                          "remove_invalid_values",
                                                          "repetition_penalty",
                                                          "return_dict",
                                                          "return_dict_in_generate",
                                                          "sep_token_id",
                                                          "suppress_tokens",
                                                          "task_specific_params",
                                                          "temperature",
                                                          "tf_legacy_loss",
                                                          "tie_encoder_decoder",
                                                          "tokenizer_class",
                                                          "top_k",
                                                          "top_p",
                                                          "typical_p",
                                                          "unk_token_id",
                                                          "use_bfloat16",
                                                          "use_cache",
                                                          "cls_token_id",
                                                          "mask_token_id"};
constexpr std::array<std::string_view, 15> kFiles = {
    "_commit_hash",  "_name_or_path",   "architectures",  "auto_map",
    "dtype",         "language",        "license",        "name_or_path",
    "tags",          "torch_dtype",     "torchscript",    "transformers_version",
    "unsloth_fixed", "unsloth_version", "use_safetensors"};
constexpr std::array<std::string_view, 17> kImplementation = {"_attn_implementation",
                                                              "_attn_implementation_autoset",
                                                              "attn_implementation",
                                                              "chunk_size_feed_forward",
                                                              "ep_size",
                                                              "gradient_checkpointing",
                                                              "mlp_bias_fusion",
                                                              "pretraining_tp",
                                                              "pruned_heads",
                                                              "reorder_and_upcast_attn",
                                                              "rope_interleave",
                                                              "tp_plan",
                                                              "use_flash_attn",
                                                              "use_kernels",
                                                              "mamba_ssm_dtype",
                                                              "mamba_ssm_cache_dtype",
                                                              "add_cross_attention"};
constexpr std::array<std::string_view, 11> kOtherTasks = {"finetuning_task",
                                                          "id2label",
                                                          "label2id",
                                                          "num_labels",
                                                          "problem_type",
                                                          "summary_activation",
                                                          "summary_first_dropout",
                                                          "summary_proj_to_labels",
                                                          "summary_type",
                                                          "summary_use_proj",
                                                          "type_vocab_size"};
constexpr std::array<std::string_view, 6> kSecondNames = {"experts_per_token",
                                                          "initial_context_length",
                                                          "max_sequence_length",
                                                          "model_max_length",
                                                          "n_ctx",
                                                          "seq_length"};

struct Group {
  Names names;
  std::string_view reason;
};

const std::array<Group, 5> kGroups = {
    {{kGeneration, "of text generation or of what a call returns, not of training"},
     {kFiles, "describes the files, not the model"},
     {kImplementation, "how transformers computes or stores it; the function is the same"},
     {kOtherTasks, "of a head for another task"},
     {kSecondNames, "said by another key, which is the one that transformers reads"}}};

}  // namespace

std::string_view reason_to_ignore(std::string_view key) {
  for (const Group& group : kGroups)
    if (std::ranges::find(group.names, key) != group.names.end()) return group.reason;
  if (key == "quantization_config")
    return "how the published weights are stored: a plan has its own precision, and quantized "
           "weights are refused by --init-from";
  return "";
}

}  // namespace meshplan::models
