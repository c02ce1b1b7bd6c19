#include <numeric>

#include "planner/rules/rules.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::planner {
namespace {

using program::Plan;
using program::ScheduleKind;
using Value = std::optional<std::int64_t>;

struct PlanFact {
  const char* name;
  const char* meaning;
  Value (*of)(const Plan&);
};

/// Of numbers that come from a file, the product may be too large.
Value product(std::initializer_list<std::int64_t> factors) {
  std::int64_t result = 1;
  for (const std::int64_t factor : factors)
    if (__builtin_mul_overflow(result, factor, &result)) return std::nullopt;
  return result;
}

/// Of a model without such a part.
template <class Part>
Value of_part(const std::optional<Part>& part, int Part::*size) {
  return part ? (*part).*size : 0;
}

Value runs(const Plan& plan, ScheduleKind kind) {
  return plan.schedule == kind ? 1 : 0;
}
Value exchanges(const Plan& plan, program::ContextMethod method) {
  return plan.context_parallel == method ? 1 : 0;
}
Value computes_in(const Plan& plan, program::Precision precision) {
  return precision_of(plan.workload) == precision ? 1 : 0;
}

Value recompute(const Plan& plan) {
  switch (plan.recompute.kind) {
    case program::RecomputeKind::None:
      return 0;
    case program::RecomputeKind::Selective:
      return 1;
    case program::RecomputeKind::Full:
      return 2;
  }
  return std::nullopt;
}

template <models::Module module>
Value recomputes(const Plan& plan) {
  return plan.recompute.modules.contains(module) ? 1 : 0;
}

constexpr PlanFact kPlanFacts[] = {
    {"tp", "tensor parallel size", [](const Plan& p) { return Value(p.parallel.tp); }},
    {"cp", "context parallel size", [](const Plan& p) { return Value(p.parallel.cp); }},
    {"pp", "pipeline stages", [](const Plan& p) { return Value(p.parallel.pp); }},
    {"vpp", "virtual stages a rank", [](const Plan& p) { return Value(p.parallel.vpp); }},
    {"dp", "data parallel size", [](const Plan& p) { return Value(p.parallel.dp); }},
    {"ep", "expert parallel size", [](const Plan& p) { return Value(p.parallel.ep); }},
    {"etp", "expert tensor parallel size", [](const Plan& p) { return Value(p.parallel.etp); }},
    {"sp", "sequence parallelism", [](const Plan& p) { return Value(p.parallel.sp); }},
    {"world", "ranks: tp * cp * pp * dp",
     [](const Plan& p) {
       return product({p.parallel.tp, p.parallel.cp, p.parallel.pp, p.parallel.dp});
     }},
    {"pp_last", "the pipeline is the outermost axis of the rank order",
     [](const Plan& p) { return Value(p.rank_order.ends_with("pp")); }},

    {"layers", "transformer layers", [](const Plan& p) { return Value(p.model.num_layers); }},
    {"hidden", "model width", [](const Plan& p) { return Value(p.model.hidden_size); }},
    {"heads", "query heads", [](const Plan& p) { return Value(p.model.num_heads); }},
    {"kv_heads", "key/value heads", [](const Plan& p) { return Value(p.model.num_kv_heads); }},
    {"head_size", "elements of a head", [](const Plan& p) { return Value(p.model.head_size); }},
    {"ffn", "feed-forward width of dense layers; 0 = there are none",
     [](const Plan& p) { return Value(p.model.ffn_size); }},
    {"vocab", "vocabulary", [](const Plan& p) { return Value(p.model.vocab_size); }},
    {"max_positions", "longest sequence of the model",
     [](const Plan& p) { return Value(p.model.max_positions); }},
    {"learned_positions", "positions have parameters",
     [](const Plan& p) { return Value(p.model.positions == models::Positions::Learned); }},
    {"tied", "the head shares the embedding's weights",
     [](const Plan& p) { return Value(p.model.tied_embeddings); }},
    {"mtp", "multi-token prediction modules",
     [](const Plan& p) { return Value(p.model.mtp_layers); }},
    {"mla", "multi-head latent attention",
     [](const Plan& p) { return Value(p.model.mla.has_value()); }},
    {"q_lora", "rank of compressed queries; 0 = they are not compressed",
     [](const Plan& p) { return Value(p.model.mla ? p.model.mla->q_lora_rank.value_or(0) : 0); }},
    {"kv_lora", "rank of compressed keys and values",
     [](const Plan& p) { return of_part(p.model.mla, &models::MlaSpec::kv_lora_rank); }},
    {"qk_rope", "rotated elements of a latent head",
     [](const Plan& p) { return of_part(p.model.mla, &models::MlaSpec::qk_rope_head_size); }},
    {"experts", "experts of a layer; 0 = the model has none",
     [](const Plan& p) { return of_part(p.model.moe, &models::MoeSpec::num_experts); }},
    {"top_k", "experts of a token",
     [](const Plan& p) { return of_part(p.model.moe, &models::MoeSpec::top_k); }},
    {"expert_ffn", "width of an expert",
     [](const Plan& p) { return of_part(p.model.moe, &models::MoeSpec::expert_ffn_size); }},
    {"shared_ffn", "width of the shared experts",
     [](const Plan& p) { return of_part(p.model.moe, &models::MoeSpec::shared_expert_ffn_size); }},
    {"expert_groups", "groups that the router chooses first",
     [](const Plan& p) { return Value(p.model.moe ? p.model.moe->router.num_groups : 0); }},
    {"top_groups", "groups of a token",
     [](const Plan& p) { return Value(p.model.moe ? p.model.moe->router.top_groups : 0); }},
    {"expert_bias", "experts have biases",
     [](const Plan& p) { return Value(p.model.moe && p.model.moe->expert_bias); }},
    {"correction_bias", "the router has a bias that load moves",
     [](const Plan& p) { return Value(p.model.moe && p.model.moe->router.correction_bias); }},
    {"sigmoid_router", "the router's scores are sigmoids",
     [](const Plan& p) {
       return Value(p.model.moe && p.model.moe->router.score == models::RouterScore::Sigmoid);
     }},

    {"seq", "tokens of a sequence", [](const Plan& p) { return Value(p.workload.seq_len); }},
    {"gbs", "sequences of a step",
     [](const Plan& p) { return Value(p.workload.global_batch_size); }},
    {"mbs", "sequences of a micro-batch", [](const Plan& p) { return Value(p.micro_batch_size); }},
    {"bf16", "computes in bf16",
     [](const Plan& p) { return computes_in(p, program::Precision::BF16); }},
    {"fp16", "computes in fp16",
     [](const Plan& p) { return computes_in(p, program::Precision::F16); }},
    {"fp8", "products in fp8",
     [](const Plan& p) { return computes_in(p, program::Precision::Fp8); }},
    {"fp32", "computes in fp32",
     [](const Plan& p) { return computes_in(p, program::Precision::F32); }},

    {"zero", "ZeRO stage", [](const Plan& p) { return Value(p.zero_stage); }},
    {"zero_group", "ranks that share one copy of what ZeRO divides; 0 = all",
     [](const Plan& p) { return Value(p.zero_shard_group); }},
    {"offload_optimizer", "the optimizer's state lies in host memory",
     [](const Plan& p) { return Value(p.offload_optimizer); }},
    {"offload_parameters", "the weights that a rank owns lie in host memory",
     [](const Plan& p) { return Value(p.offload_parameters); }},
    {"offload_activations", "layers of a virtual stage whose activations lie in host memory",
     [](const Plan& p) { return Value(p.offload_activations); }},
    {"recompute", "0 nothing, 1 selective, 2 full", recompute},
    {"recompute_limited", "some layers of a stage alone recompute",
     [](const Plan& p) {
       return Value(p.recompute.num_layers || !p.recompute.layers_per_stage.empty());
     }},
    {"recompute_by_stage", "stages recompute different numbers of layers",
     [](const Plan& p) { return Value(!p.recompute.layers_per_stage.empty()); }},
    {"recomputes_norms", "norms are among the modules that are named",
     recomputes<models::Module::Norms>},
    {"recomputes_moe_act", "so are experts' activation functions",
     recomputes<models::Module::MoeAct>},
    {"recomputes_mla_up_proj", "so are projections of latents",
     recomputes<models::Module::MlaUpProj>},
    {"recomputes_shared_experts", "so are shared experts",
     recomputes<models::Module::SharedExperts>},
    {"recomputes_moe", "so are layers of experts as a whole", recomputes<models::Module::Moe>},
    {"gpipe", "schedule GPipe", [](const Plan& p) { return runs(p, ScheduleKind::GPipe); }},
    {"one_f_one_b", "schedule 1F1B", [](const Plan& p) { return runs(p, ScheduleKind::OneFOneB); }},
    {"interleaved", "schedule interleaved 1F1B",
     [](const Plan& p) { return runs(p, ScheduleKind::Interleaved); }},
    {"overlapped_1f1b", "schedule 1F1B, interleaved or not, of forwards beside backwards",
     [](const Plan& p) { return runs(p, ScheduleKind::OverlappedOneFOneB); }},
    {"zb_h1", "schedule ZB-H1", [](const Plan& p) { return runs(p, ScheduleKind::ZbH1); }},
    {"zb_v", "schedule ZB-V", [](const Plan& p) { return runs(p, ScheduleKind::ZbV); }},
    {"dualpipe_v", "schedule DualPipe-V",
     [](const Plan& p) { return runs(p, ScheduleKind::DualPipeV); }},
    {"custom_schedule", "a schedule of the plan's own",
     [](const Plan& p) { return runs(p, ScheduleKind::Custom); }},
    {"cp_all_gather", "keys and values are gathered",
     [](const Plan& p) { return exchanges(p, program::ContextMethod::AllGather); }},
    {"cp_ring", "keys and values go round a ring",
     [](const Plan& p) { return exchanges(p, program::ContextMethod::Ring); }},
    {"cp_ulysses", "heads are exchanged for tokens",
     [](const Plan& p) { return exchanges(p, program::ContextMethod::Ulysses); }},
    {"layout", "the plan lists the layers of each virtual stage",
     [](const Plan& p) { return Value(!p.layers_per_stage.empty()); }},
    {"layout_stages", "virtual stages of that list; absent without one",
     [](const Plan& p) {
       return p.layers_per_stage.empty()
                  ? std::nullopt
                  : Value(static_cast<std::int64_t>(p.layers_per_stage.size()));
     }},
    {"layout_layers", "layers of that list",
     [](const Plan& p) {
       return p.layers_per_stage.empty()
                  ? std::nullopt
                  : Value(std::accumulate(p.layers_per_stage.begin(), p.layers_per_stage.end(),
                                          std::int64_t{0}));
     }},
    {"ends_as_layers", "embedding and head count as a layer each where layers are divided",
     [](const Plan& p) { return Value(p.count_ends_as_layers); }},
    {"packed", "documents are packed into sequences",
     [](const Plan& p) { return Value(p.workload.documents.packed); }},
};

}  // namespace

const std::vector<FactMeaning>& plan_facts() {
  static const auto kAll = [] {
    std::vector<FactMeaning> meanings;
    for (const PlanFact& fact : kPlanFacts) meanings.push_back({fact.name, fact.meaning});
    return meanings;
  }();
  return kAll;
}

std::vector<Value> plan_fact_values(const Plan& plan) {
  std::vector<Value> values;
  values.reserve(std::size(kPlanFacts));
  for (const PlanFact& fact : kPlanFacts) values.push_back(fact.of(plan));
  return values;
}

Facts facts_of(const Plan& plan) {
  Facts facts;
  for (const PlanFact& fact : kPlanFacts)
    if (const Value value = fact.of(plan)) facts[fact.name] = *value;
  return facts;
}

}  // namespace meshplan::planner
