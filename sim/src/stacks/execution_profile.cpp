#include "sim/stacks/execution_profile.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "core/embedded_file.hpp"
#include "core/json_fields.hpp"
#include "program/plan/plan_names.hpp"
#include "stacks/release_fields.hpp"

namespace meshplan {

template <>
struct EnumNames<sim::TpOverlap> {
  static constexpr std::array<std::pair<sim::TpOverlap, std::string_view>, 3> value = {
      {{sim::TpOverlap::None, "none"},
       {sim::TpOverlap::Gradients, "gradients"},
       {sim::TpOverlap::UserBuffers, "user_buffers"}}};
};

template <>
struct EnumNames<sim::ShardCopies> {
  static constexpr std::array<std::pair<sim::ShardCopies, std::string_view>, 3> value = {
      {{sim::ShardCopies::None, "none"},
       {sim::ShardCopies::Gradients, "gradients"},
       {sim::ShardCopies::All, "all"}}};
};

template <>
struct EnumNames<sim::ContextExchange> {
  static constexpr std::array<std::pair<sim::ContextExchange, std::string_view>, 3> value = {
      {{sim::ContextExchange::Ring, "ring"},
       {sim::ContextExchange::Gather, "gather"},
       {sim::ContextExchange::GatherThenRing, "gather_then_ring"}}};
};

}  // namespace meshplan

namespace meshplan::sim {

std::span<const EmbeddedFile> profile_presets();

template <class Visitor>
void fields(Visitor& v, OperationHabit& h) {
  v.required("forward_bytes", h.forward_bytes, "memory traffic per element", at_least(0));
  v.required("backward_bytes", h.backward_bytes, "memory traffic per element", at_least(0));
  v.required("forward_kernels", h.forward_kernels, "launches", at_least(0));
  v.required("backward_kernels", h.backward_kernels, "launches", at_least(0));
}

template <class Visitor>
void fields(Visitor& v, SoftwareFeatures& f) {
  v.required("tensor_parallel", f.tensor_parallel, "divides layers over tp");
  v.required("expert_parallel", f.expert_parallel, "divides experts over ep");
  v.required("schedules", f.schedules, "of pipelines; none: it has no pipeline");
  v.required("context_methods", f.context_methods, "none: it has no context parallelism");
  v.required("zero_stages", f.zero_stages, "that it has");
  v.optional("uneven_stages", f.uneven_stages, "a run says how many layers each stage has");
  v.optional("shards_in_pipelines", f.shards_in_pipelines, "ZeRO 2 and 3 beside pp");
  v.optional("recomputes_operations", f.recomputes_operations,
             "selective recompute is operation by operation, else of attention's core");
  v.optional("recompute_modules", f.recompute_modules,
             "whose recompute a run can ask for by name; none: it has no such choice");
  v.optional("recomputes_some_layers", f.recomputes_some_layers,
             "full recompute of a stage's first layers only");
  v.optional("recomputes_nth_layers", f.recomputes_nth_layers,
             "full recompute of every nth layer, planned as so many of a stage");
  v.optional("chunks_loss", f.chunks_loss,
             "a run can have the loss in chunks of tokens, and does where nothing else fits");
  v.optional("muon", f.muon, "this optimizer");
  v.optional("fused_dispatch", f.fused_dispatch,
             "experts by DeepEP or HybridEP, where a run asks for it");
  v.optional("overlaps", f.overlaps, "communication with computation");
}

template <class Visitor>
void fields(Visitor& v, ExecutionProfile& p) {
  v.required("name", p.name, "the stack");
  v.required("reasons", p.reasons, "why each habit is as it is");
  v.required("can", p.can, "what it can be asked for");
  v.optional("releases", p.releases, "what changed with them; the rest is as in the oldest");
  v.optional("linear", p.linear, "beside the matrix products: bias, layout");
  v.optional("norm", p.norm, "RMS or layer norm");
  v.optional("residual_add", p.residual_add, "with bias and dropout where they are fused");
  v.optional("fused_residuals", p.fused_residuals,
             "a sum is part of the product before it, else of the norm after it");
  v.optional("fused_rotations", p.fused_rotations, "a norm of heads rotates them");
  v.optional("activation", p.activation, "GELU, squared ReLU");
  v.optional("gelu_in_products", p.gelu_in_products,
             "a tanh GELU and its gradient are epilogues of the products");
  v.optional("gated_activation", p.gated_activation, "SwiGLU and its like");
  v.optional("clamped_activation", p.clamped_activation, "beside it: clamping what it gates");
  v.optional("expert_bias", p.expert_bias, "of experts' outputs; launches are of each expert");
  v.optional("rope", p.rope, "rotary positions");
  v.optional("attention", p.attention, "layout changes around the kernel");
  v.optional("stores_score_gradient", p.stores_score_gradient,
             "deterministic fused attention passes its scores' gradient through memory");
  v.optional("fused_sinks", p.fused_sinks, "its fused attention knows learned sinks");
  v.optional("scores", p.scores, "softmax and dropout of unfused attention");
  v.optional("router", p.router, "per token and expert");
  v.optional("permutation", p.permutation, "sorting tokens by expert and back");
  v.optional("embedding", p.embedding, "lookup");
  v.optional("cross_entropy", p.cross_entropy, "per logit");
  v.optional("fp8_cast", p.fp8_cast, "per element of a product's input and output gradient");
  v.optional("block_cast", p.block_cast, "the same with a scale per block");
  v.optional("fp4_cast", p.fp4_cast, "the same in four bits (NVFP4)");
  v.optional("hybrid_ep_wire", p.hybrid_ep_wire,
             "part that HybridEP reaches of the links between nodes", between(0.01, 1));
  v.optional("expert_padding", p.expert_padding,
             "per routed element that FP8 products of experts want in whole tiles");
  v.optional("ring", p.ring, "per output element and step of a context-parallel ring");
  v.optional("context", p.context, "exchange of keys and values: ring, gather, gather_then_ring");
  v.optional("flash", p.flash, "generation of fused attention");
  v.optional("cudnn_on_blackwell", p.cudnn_on_blackwell, "attention by cuDNN 9 there");
  v.optional("blackwell_head", p.blackwell_head,
             "largest value head of it there; larger ones have the second generation; 0: any",
             at_least(0));
  v.optional("largest_head", p.largest_head, "of fused attention; larger ones are unfused; 0: any",
             at_least(0));
  v.optional("nccl_minor", p.nccl_minor, "of the NCCL 2.x that the stack came with", at_least(0));
  v.optional("saves_fp8_inputs", p.saves_fp8_inputs, "a product keeps its input in FP8");
  v.optional("issue_fraction", p.issue_fraction, "of an eager launch's host time", between(0, 1));
  v.optional("layer_kernels", p.layer_kernels, "launches and hooks of a layer beyond these",
             at_least(0));
  v.optional("load_kernels", p.load_kernels,
             "launches that bring a micro-batch to the first and to the last stage", at_least(0));
  v.optional("recompute_stops_early", p.recompute_stops_early,
             "recomputes no more than backward reads");
  v.optional("recompute_skips_gathers", p.recompute_skips_gathers,
             "nor gathers what its backward pass gathers");
  v.optional("keeps_unread_products", p.keeps_unread_products,
             "recompute by operation keeps products that backward does not read, too");
  v.optional("keeps_exchanged_rows", p.keeps_exchanged_rows,
             "recompute by operation: of what experts' ranks send");
  v.optional("selective_skips_layers", p.selective_skips_layers,
             "selective recompute is of every second layer");
  v.optional("recomputes_what_exceeds", p.recomputes_what_exceeds,
             "the device's memory, whatever a run asks for");
  v.optional("recompute_kernels", p.recompute_kernels, "of entering a recomputed region",
             at_least(0));
  v.optional("gradient_accumulation_bytes", p.gradient_accumulation_bytes,
             "per weight and micro-batch", at_least(0));
  v.optional("bias_gradient_bytes", p.bias_gradient_bytes,
             "per output element of a product with a bias; 0: summed by its epilogue", at_least(0));
  v.optional("accumulates_first", p.accumulates_first,
             "adds the first micro-batch's gradients to zeros");
  v.optional("dropout", p.dropout, "default probability", between(0, 1));
  v.optional("gradient_bytes", p.gradient_bytes, "kept per parameter", between(2, 8));
  v.optional("reduce_bytes", p.reduce_bytes, "sent per parameter", between(1, 4));
  v.optional("distributed_optimizer", p.distributed_optimizer, "where the run does not say");
  v.optional("shards_fully", p.shards_fully, "where the run does not say: parameters, too");
  v.optional("fused_optimizer", p.fused_optimizer, "one pass over the state");
  v.optional("sequence_parallel", p.sequence_parallel, "beside tp, where the run does not say");
  v.optional("replicated_activation_sends", p.replicated_activation_sends,
             "every tp rank sends the whole activation to the next stage");
  v.optional("separate_dropout_masks", p.separate_dropout_masks, "a byte per element is kept");
  v.optional("keeps_gathered_inputs", p.keeps_gathered_inputs,
             "under sequence parallelism, instead of gathering them again in backward");
  v.optional("copies_sequences", p.copies_sequences,
             "around tensor-parallel gathers and scatters of several sequences");
  v.optional("tp_gathers_fp8", p.tp_gathers_fp8, "operands are cast before tp ranks gather them");
  v.optional("lays_out_fp8", p.lays_out_fp8, "what was gathered in FP8, for weight gradients");
  v.optional("compiles_unasked", p.compiles_unasked,
             "where a published run in 16 bit does not say");
  v.optional("balances_stages", p.balances_stages, "stages cut by cost, the head's among it");
  v.optional("tp_overlap", p.tp_overlap, "none, gradients or user_buffers");
  v.optional("rate_limited_gathers", p.rate_limited_gathers, "one layer ahead at most");
  v.optional(
      "shard_copies", p.shard_copies,
      "of fully sharded units, to and from the buffers of collectives: none, gradients, all");
  v.optional("share_follows_rate", p.share_follows_rate,
             "communication takes the less from compute, the slower it moves");
  v.optional("head_in_own_unit", p.head_in_own_unit, "fully sharded, apart from the embedding");
  v.optional("defers_gradient_sync", p.defers_gradient_sync,
             "fully sharded: gradients are kept whole and summed once a step");
  v.optional("keeps_gathered_experts", p.keeps_gathered_experts,
             "fully sharded: models with experts gather once a step");
  v.optional("gathers_fp8", p.gathers_fp8, "sharded parameters travel in FP8");
  v.optional("gathers_after_step", p.gathers_after_step,
             "updated parameters are gathered beside nothing");
  v.optional("expert_tokens_padded", p.expert_tokens_padded, "to the tile of the FP8 products");
  v.optional("balances_over_neighbours", p.balances_over_neighbours,
             "balanced routing gives a token neighbouring experts");
  v.optional("experts_in_one_kernel", p.experts_in_one_kernel,
             "the host issues the products of all experts at once");
  v.optional("weighs_expert_outputs", p.weighs_expert_outputs,
             "which are kept for it; else between an expert's products");
  v.optional("context_mib", p.context_mib, "outside the allocator", at_least(0));
  v.optional("workspace_mib", p.workspace_mib, "in the allocator", at_least(0));
  v.optional("reserved_fraction", p.reserved_fraction, "held beyond what is allocated",
             between(0, 1));
  v.optional("optimizer_bucket", p.optimizer_bucket,
             "elements of each of a sharded optimizer's two buffers", at_least(0));
  v.optional("optimizer_bytes", p.optimizer_bytes, "kept per parameter", between(0, 24));
  v.optional("sharded_gradient_bytes", p.sharded_gradient_bytes,
             "more per parameter where the optimizer is sharded", between(0, 8));
  v.optional("accumulated_copy_bytes", p.accumulated_copy_bytes,
             "kept per parameter beside gradients that a run accumulates in fp32", between(0, 2));
  v.optional("sharded_parameter_bytes", p.sharded_parameter_bytes,
             "more per parameter of a shard, where layers are sharded", between(0, 4));
  v.optional("live_parameters", p.live_parameters,
             "gathered parameters stay while they are fewer; 0: one layer ahead", at_least(0));
  v.optional("unfused_saved_bytes", p.unfused_saved_bytes,
             "kept per token and hidden element by copies that fusion avoids", at_least(0));
  v.optional("logit_bytes", p.logit_bytes, "kept per logit at the peak", at_least(2));
  v.optional("logit_block_bytes", p.logit_block_bytes,
             "of the blocks for it, where layers are sharded; 0: logit_bytes", at_least(0));
  v.optional("metric_logit_bytes", p.metric_logit_bytes,
             "kept per logit after backward, by metrics of the step", at_least(0));
}

ExecutionProfile parse_execution_profile(std::string_view text, const std::string& file) {
  ExecutionProfile profile = read_json<ExecutionProfile>(text, file);
  require_in_order(profile.releases, file);
  return profile;
}

namespace {

/// A stack as it was from a release on.
struct ProfileSince {
  std::optional<Release> since;
  ExecutionProfile profile;
};

struct StackProfiles {
  std::vector<ProfileSince> releases;  // the oldest, and what each change makes of it
  ExecutionProfile undated;
};

StackProfiles profiles_of(const EmbeddedFile& file) {
  const std::string name(file.name);
  StackProfiles profiles{{{{}, parse_execution_profile(file.text, name)}}, {}};
  const Releases releases = profiles.releases.front().profile.releases;
  Json text = parse_json(file.text, name), undated = text;
  bool dated = false;
  for (const ReleaseChange& change : releases.changes) {
    const std::string place = fmt::format("{}: releases.changes: {}", name, change.since);
    const Json changed = Json::parse(change.profile);
    text.merge_patch(changed);
    dated = dated || change.dated;
    if (!change.dated) undated.merge_patch(changed);
    profiles.releases.push_back(
        {Release::parse(change.since), parse_execution_profile(text.dump(), place)});
  }
  profiles.undated =
      dated ? parse_execution_profile(undated.dump(), name) : profiles.releases.back().profile;
  return profiles;
}

const std::map<std::string, StackProfiles, std::less<>>& all_profiles() {
  static const auto kProfiles = [] {
    std::map<std::string, StackProfiles, std::less<>> parsed;
    for (const EmbeddedFile& file : profile_presets()) parsed.emplace(file.name, profiles_of(file));
    return parsed;
  }();
  return kProfiles;
}

}  // namespace

std::vector<std::string> execution_profile_names() {
  std::vector<std::string> names;
  for (const auto& [name, profiles] : all_profiles()) names.push_back(name);
  return names;
}

namespace {

const StackProfiles& profiles_of_stack(const std::string& name) {
  const auto found = all_profiles().find(name);
  if (found == all_profiles().end())
    throw ConfigError(unknown_name_message("software stack", name, execution_profile_names()));
  return found->second;
}

}  // namespace

const ExecutionProfile& load_undated_profile(std::string_view name) {
  return profiles_of_stack(std::string(name)).undated;
}

const ExecutionProfile& load_execution_profile(std::string_view software) {
  const SoftwareRelease asked = parse_software(software);
  const std::vector<ProfileSince>& profiles = profiles_of_stack(asked.name).releases;
  if (!asked.release) return profiles.back().profile;
  require_known(asked, profiles.front().profile.releases);
  const auto release = Release::parse(*asked.release);
  const auto newer = std::ranges::find_if(
      profiles, [&](const ProfileSince& profile) { return profile.since > release; });
  return std::prev(newer)->profile;
}

}  // namespace meshplan::sim
