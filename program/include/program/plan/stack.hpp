// The training stack that runs a plan, and how it is asked to run it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/module.hpp"

namespace meshplan::program {

/// The stack whose runs are programs of ours: planned, priced and run operation by operation.
inline constexpr std::string_view kOwnSoftware = "meshplan";

/// How tokens go to the ranks of their experts, and back.
enum class ExpertDispatch {
  AllToAll,   // a copy for each expert, by NCCL
  AllGather,  // every rank of the group gets all tokens
  DeepEp,     // fused: a copy for each rank that holds one of a token's experts
  HybridEp,   // the same over racks of NVLink
};

enum class CudaGraphs { None, Partial, Full };

/// What a compiler fuses (torch.compile).
enum class CompiledPart { None, Loss, All };

enum class AttentionBackend {
  Flash,    // scores stay on chip
  Cudnn,    // the same, by cuDNN
  Unfused,  // scores are written to memory
};

/// How the loss of a micro-batch's logits is computed.
enum class LossKernel {
  Unfused,  // operation by operation, in fp32
  Fused,    // one kernel over 16-bit logits
  Chunked,  // logits and their gradients exist for a part of the tokens at a time
};

/// What shares a scale in FP8, or in four bits (Transformer Engine's recipes, --fp8-recipe and
/// --fp4-recipe).
enum class Fp8Scaling {
  Delayed,     // a tensor, by the largest values of the steps before
  Tensorwise,  // a tensor, by its own
  Blockwise,   // 128 x 128 of weights, 1 x 128 of activations
  MxFp8,       // 32 elements (OCP microscaling formats)
  NvFp4,       // 16 elements of four bits, and a tensor besides
};

/// How matrices that tp divides are made orthogonal (Megatron-LM, --muon-tp-mode).
enum class MuonTp {
  Duplicated,   // gathered, and each rank does the whole
  Blockwise,    // each rank its own part, by itself
  Distributed,  // each rank its part, with Gram matrices summed over the ranks
};

/// Of gradients and of the optimizer's moments.
enum class StateDType { F32, BF16, F16, Fp8 };
/// Bytes of one element.
int size_of(StateDType dtype);

/// How weights that are not trained are kept.
enum class FrozenStorage {
  Bf16,  // as they are computed with
  F32,
  Int8,  // a byte, with a scale for each row (Dettmers et al. 2022, LLM.int8())
  Nf4,  // four bits, with a scale for 64 of them, itself in a byte (Dettmers et al. 2023, QLoRA, 3)
};
/// Bytes of one element with its part of the scales.
double bytes_of(FrozenStorage storage);

/// What is asked of a stack beyond what a plan says of every stack. What is absent is as the stack
/// does it by itself: its profile knows (sim/profiles). docs/export/stacks.md lists for each
/// setting what it changes and how each stack says it.
struct StackSettings {
  std::optional<bool> overlap_dp;
  std::optional<bool> overlap_tp;
  std::optional<bool> overlap_p2p;
  std::optional<bool> overlap_ep;
  std::optional<bool> async_tp;
  std::optional<ExpertDispatch> expert_dispatch;
  std::optional<int> expert_dispatch_sms;
  std::optional<bool> token_drop;
  std::optional<bool> balanced_routing;
  std::optional<bool> grouped_experts;
  std::optional<bool> fused_experts;
  std::optional<CudaGraphs> cuda_graphs;
  std::optional<CompiledPart> compile;
  std::optional<AttentionBackend> attention;
  std::optional<Fp8Scaling> fp8_scaling;
  std::optional<int> bf16_layers_at_start;  // whose products stay in 16 bit
  std::optional<int> bf16_layers_at_end;
  std::optional<bool> fp8_attention;
  std::optional<LossKernel> loss;
  std::optional<double> dropout;
  std::optional<StateDType> gradient_dtype;
  std::optional<StateDType> gradient_sum_dtype;
  std::optional<StateDType> first_moment_dtype;
  std::optional<StateDType> second_moment_dtype;
  std::optional<MuonTp> muon_tp;
  std::optional<bool> layer_wise_layout;  // Muon's ZeRO 1: gradients of matrices are scattered
  std::optional<bool> fp8_param_gather;
  std::optional<bool> shard_frozen;
  std::optional<FrozenStorage> frozen_storage;
  std::optional<std::int64_t> live_parameters;  // with ZeRO 3 gathered ones stay while fewer
  std::optional<bool> megatron_fsdp;
  std::optional<bool> recipes;
  bool operator==(const StackSettings&) const = default;
};

/// Is it stated, and on?
constexpr bool is_on(const std::optional<bool>& setting) {
  return setting.value_or(false);
}

struct Stack {
  std::string software = std::string(kOwnSoftware);  // "NAME" or "NAME@RELEASE"
  StackSettings settings;
  bool operator==(const Stack&) const = default;

  /// Is it this project's runtime?
  bool is_own() const { return software == kOwnSoftware; }
};

}  // namespace meshplan::program
