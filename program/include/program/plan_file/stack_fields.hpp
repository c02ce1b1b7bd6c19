// The declaration of a stack's settings: one for plans, flags, recipes of releases and tables of
// runs. Include this only from .cpp files (core/json_fields.hpp).
#pragma once

#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "program/plan/stack_names.hpp"

namespace meshplan::program {

template <class Visitor>
void fields(Visitor& v, StackSettings& s) {
  v.stated("overlap_dp", s.overlap_dp, "gradients are summed while backward computes");
  v.stated("overlap_tp", s.overlap_tp,
           "gathers and scatters of tp move in pieces beside the products");
  v.stated("overlap_p2p", s.overlap_p2p, "stages send while they compute");
  v.stated("overlap_ep", s.overlap_ep,
           "the exchange of experts moves beside the computation of another micro-batch");
  v.stated("async_tp", s.async_tp, "torch.compile's tensor parallelism in pieces");
  v.stated("expert_dispatch", s.expert_dispatch,
           "how tokens go to their experts' ranks: all_to_all and all_gather by NCCL, deepep and "
           "hybridep one copy a rank");
  v.stated("expert_dispatch_sms", s.expert_dispatch_sms,
           "multiprocessors that the dispatch keeps from the products beside it", between(0, 256));
  v.stated("token_drop", s.token_drop,
           "experts have a capacity of 1 and are padded to it: equal numbers of tokens");
  v.stated("balanced_routing", s.balanced_routing, "the router is forced to balance");
  v.stated("grouped_experts", s.grouped_experts, "one grouped product for all experts of a rank");
  v.stated("fused_experts", s.fused_experts,
           "experts' products are one kernel each, with activation and casts");
  v.stated("cuda_graphs", s.cuda_graphs, "of the router (partial) or of whole steps (full)");
  v.stated("compile", s.compile, "what torch.compile fuses");
  v.stated("attention", s.attention, "its kernels; unfused: scores go through memory");
  v.stated("fp8_scaling", s.fp8_scaling, "what shares a scale in FP8, or nvfp4: four bits");
  v.stated("bf16_layers_at_start", s.bf16_layers_at_start,
           "beside FP8 or four bits: whose products stay in 16 bit", between(0, limits::kLayers));
  v.stated("bf16_layers_at_end", s.bf16_layers_at_end, "likewise", between(0, limits::kLayers));
  v.stated("fp8_attention", s.fp8_attention, "attention's products in FP8, too");
  v.stated("loss", s.loss, "one fused kernel, or in chunks of tokens");
  v.stated("dropout", s.dropout, "probability", between(0, 1));
  v.stated("gradient_dtype", s.gradient_dtype, "that gradients are accumulated in");
  v.stated("gradient_sum_dtype", s.gradient_sum_dtype,
           "that gradients travel in to their sum over replicas");
  v.stated("first_moment_dtype", s.first_moment_dtype, "of Adam");
  v.stated("second_moment_dtype", s.second_moment_dtype, "of Adam");
  v.stated("muon_tp", s.muon_tp,
           "how Muon makes matrices orthogonal that tp divides: whole on every rank (duplicated), "
           "each part by itself (blockwise), or together (distributed)");
  v.stated("layer_wise_layout", s.layer_wise_layout,
           "with Muon and ZeRO 1 gradients of matrices are scattered to the ranks that update "
           "them, else summed on all");
  v.stated("fp8_param_gather", s.fp8_param_gather, "sharded parameters are gathered in FP8");
  v.stated("shard_frozen", s.shard_frozen, "parameters that are not trained are sharded, too");
  v.stated("frozen_storage", s.frozen_storage,
           "how weights that are not trained are kept: bf16, fp32, or quantized (int8, nf4)");
  v.stated("live_parameters", s.live_parameters,
           "with ZeRO 3 gathered parameters stay while they are fewer",
           between(0, limits::kParameters));
  v.stated("megatron_fsdp", s.megatron_fsdp, "Megatron-LM's own fully sharded data parallelism");
  v.stated("recipes", s.recipes,
           "what is open is chosen as the release's recipes do; false: off, as a launch script "
           "that does not turn it on");
}

template <class Visitor>
void fields(Visitor& v, Stack& s) {
  v.optional("software", s.software,
             "training stack, with a release or without: megatron-core@25.09", of_name());
  fields(v, s.settings);
}

}  // namespace meshplan::program
