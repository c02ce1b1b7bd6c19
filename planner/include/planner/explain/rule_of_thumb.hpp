// The plan that one would take without a search.
#pragma once

#include <optional>
#include <string>

#include "planner/search/search.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::planner {

/// What the rule of thumb counts of a rank's memory, in bytes.
struct ThumbMemory {
  double state = 0;        // weights, gradients and optimizer state
  double activations = 0;  // of the micro-batches in flight on the first stage
  double total() const { return state + activations; }
};

/// Weights and gradients in the workload's precision and fp32, the optimizer's state divided as
/// ZeRO says: 6 + 12 / dp bytes a parameter in bf16 with ZeRO-1 and Adam (Megatron-LM, "Distributed
/// Optimizer", table of theoretical bytes). Activations of L layers, whatever pp is: 34 s b h / tp
/// bytes a layer of a GPT with tensor and sequence parallelism and selective recompute (Korthikanti
/// et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section 4.2 and
/// equation 6); of other models as many bytes for each value of hidden and of ffn width.
ThumbMemory thumb_memory(const program::Plan& plan);

struct RuleOfThumb {
  std::optional<program::Plan> plan;  // absent: nothing that the rule allows fits
  std::string reason;                 // what the rule met, in words
};

/// The choice that is usually advised for a request, whatever it pins: micro-batches of one
/// sequence, selective recompute, ZeRO-1, sp beside tp, 1F1B; tp doubles until the state and
/// activations of a rank fit, up to the devices of a node, and only then pp grows; all other ranks
/// are replicas (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
/// Clusters Using Megatron-LM", takeaways 1 and 2; Megatron-LM's parallelism guide says the same).
/// Of models with experts ep takes tp's place, which such models pay more for (Megatron Core's MoE
/// guide: "prefer EP over TP for the experts", both inside a node).
/// Degrees that break a rule are passed over. Software without tp, pipelines or ZeRO-1 goes
/// without, with the ZeRO stage that it has unless told otherwise.
RuleOfThumb rule_of_thumb(const SearchRequest& request);

}  // namespace meshplan::planner
