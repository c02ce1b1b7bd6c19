#include "runtime/certify/planted_bugs.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "program/certificate/large_plans.hpp"

namespace meshplan::test {
namespace {

using program::Collective;
using program::CompressionKind;
using program::ContextMethod;
using program::Group;
using program::Operation;
using program::OperationInstance;
using program::Phase;
using program::Plan;
using program::Precision;
using program::Program;
using program::RecomputeKind;
using program::ReduceOp;
using program::ScheduleKind;
using program::StepWork;
using program::TwinPrecision;
using program::test::large_plan;

// ---------------------------------------------------------------- plans

Plan scheduled(Plan plan, ScheduleKind schedule) {
  plan.schedule = schedule;
  return plan;
}

Plan over_context(Plan plan, ContextMethod method) {
  plan.context_parallel = method;
  return plan;
}

/// Some replicas have an empty sequence in their last micro-batch.
Plan uneven(Plan plan) {
  plan.workload.global_batch_size -= plan.parallel.dp / 2;
  plan.uneven_batch = true;
  return plan;
}

Plan with_zero(Plan plan, int stage, int group = 0) {
  plan.zero_stage = stage;
  plan.zero_shard_group = group;
  return plan;
}

Plan recomputing(Plan plan, RecomputeKind kind, models::ModuleSet modules = {}) {
  plan.recompute = {.kind = kind, .modules = modules};
  return plan;
}

Plan packed(Plan plan, std::int64_t max_tokens_per_rank = 0) {
  plan.workload.documents = {.packed = true, .end_of_document = 2};
  plan.max_tokens_per_rank = max_tokens_per_rank;
  return plan;
}

Plan compressed(Plan plan, CompressionKind kind) {
  plan.compression = {.kind = kind, .ratio = 0.05};
  return plan;
}

Plan frozen(Plan plan) {
  plan.frozen = {"embedding", "layers.16-23"};
  return plan;
}

Plan offloaded(Plan plan) {
  plan.offload_optimizer = true;
  return plan;
}

Plan with_weights_on_host(Plan plan) {
  plan.offload_optimizer = plan.offload_parameters = true;
  return plan;
}

Plan with_activations_on_host(Plan plan) {
  plan.offload_activations = plan.model.num_layers / plan.parallel.pp;
  return plan;
}

Plan trained_in(Plan plan, Precision precision) {
  program::set_precision(plan.workload, precision);
  return plan;
}

Plan custom() {
  Plan plan = large_plan("llama3-8b", {.pp = 2, .vpp = 2, .dp = 8}, 2);
  plan.schedule = ScheduleKind::Custom;
  plan.custom_schedule = {"0F0,0F1,3F0,3F1,3B0,3B1,0B0,0B1", "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1"};
  return plan;
}

Plan with_layers(Plan plan, std::vector<int> layers) {
  plan.layers_per_stage = std::move(layers);
  return plan;
}

// ---------------------------------------------------------------- edits

/// Every attention of a ring takes its keys for those of the next step.
Mutation ring_off_by_one() {
  return [](Program& program) {
    const int cp = program.plan.parallel.cp;
    each_operation([cp](Operation& operation) {
      auto* work = std::get_if<program::ComputeOp>(&operation.work);
      if (work != nullptr && work->kind == program::ComputeKind::Attention && work->ring_step)
        work->ring_step = (*work->ring_step + 1) % cp;
    })(program);
  };
}

Mutation each_attention(std::function<void(program::ComputeOp&)> edit) {
  return each_operation([edit](Operation& operation) {
    auto* work = std::get_if<program::ComputeOp>(&operation.work);
    if (work != nullptr && work->kind == program::ComputeKind::Attention) edit(*work);
  });
}

/// Of the flat regions, by what it does and over whom.
Mutation without_flat(program::Region region, Collective collective,
                      std::optional<Group> group = std::nullopt) {
  return without([=](const auto& /*instance*/, const Operation& operation) {
    const auto* flat = std::get_if<program::FlatCollectiveOp>(&operation.work);
    return flat != nullptr && flat->region == region && flat->collective.collective == collective &&
           (!group || flat->collective.group == *group);
  });
}

Mutation without_step_work(StepWork work) {
  return without([work](const auto& /*instance*/, const Operation& operation) {
    const auto* step = std::get_if<program::StepOp>(&operation.work);
    return step != nullptr && step->work == work;
  });
}

Mutation without_recomputing(const std::string& part) {
  return without([part](const OperationInstance& instance, const Operation& operation) {
    return instance.microbatch == 1 && operation.phase == Phase::Recompute &&
           operation.name.find(part) != std::string::npos;
  });
}

/// ZeRO-3: a layer's forward of the second micro-batch reads what lies in the other slot.
void read_stale_weights(Program& program) {
  for (OperationInstance& instance : program.instances)
    if (instance.microbatch == 1 && instance.layer == 1 &&
        program::operation_of(program, instance).phase == Phase::Forward)
      instance.weight_slot = 1 - instance.weight_slot;
}

// ---------------------------------------------------------------- the list

using Bugs = std::vector<PlantedBug>;

Bugs tensor_parallel_bugs() {
  const Plan tp = large_plan("llama3-8b", {.tp = 4, .dp = 2});
  const Plan sp = large_plan("llama3-8b", {.tp = 4, .dp = 2, .sp = true});
  return {
      {"tp", "a sum of partial products left out", tp, without("mlp_down.all_reduce")},
      {"tp", "largest instead of sum", tp, reduced_by("attention_out.all_reduce", ReduceOp::Max)},
      {"tp", "an input gradient not summed", tp, without("mlp_norm.grad.all_reduce")},
      {"tp", "softmax over a part of the vocabulary", tp,
       each_operation_named("loss.all_gather",
                            [](Operation& operation) {
                              std::get<program::CollectiveOp>(operation.work).group =
                                  Group::Embedding;
                            })},
      {"tp", "norm counts what tp replicates on every rank", tp,
       each_step_operation(StepWork::SquaredNorm,
                           [](program::StepOp& step) { step.tp_copies = 1; })},
      {"tp", "bias added tp times", large_plan("gpt2-xl", {.tp = 5, .dp = 2}),
       add_bias_on_every_rank},
      {"sp", "norm gradients not summed", sp, without("sequence_gradients.all_reduce")},
      {"sp", "mean instead of sum", sp, reduced_by("mlp_norm.grad.reduce_scatter", ReduceOp::Avg)},
      {"copied key heads", "their gradients not summed",
       large_plan("llama3-8b", {.tp = 16, .dp = 2}), without("copied_heads.all_reduce")},
      {"latent", "gradient of the shared key not summed",
       large_plan("deepseek-v3", {.tp = 4, .dp = 4, .ep = 4, .sp = true}),
       without("rope.k.grad.all_reduce")},
  };
}

/// The last gather of frozen weights is left out: another unit's are where they are read.
void drop_frozen_gather(Program& program) {
  for (auto i = program.instances.rbegin(); i != program.instances.rend(); ++i) {
    const auto* flat = std::get_if<program::FlatCollectiveOp>(&operation_of(program, *i).work);
    if (flat == nullptr || flat->region != program::Region::GatheredWeights || !flat->bucket ||
        !program.buckets[static_cast<std::size_t>(*flat->bucket)].frozen)
      continue;
    program.instances.erase(std::next(i).base());
    return;
  }
}

Bugs pipeline_bugs() {
  const Plan pp = large_plan("llama3-8b", {.pp = 4, .dp = 2});
  const auto chunked = [](ScheduleKind schedule) {
    return scheduled(large_plan("llama3-8b", {.pp = 4, .vpp = 2, .dp = 2}), schedule);
  };
  return {
      {"pp", "weight gradients of the last micro-batch left out", pp, drop_last_microbatch},
      {"1f1b", "last micro-batch overwrites the gradient", pp, overwrite_gradients},
      {"gpipe", "two received micro-batches swapped", scheduled(pp, ScheduleKind::GPipe),
       swap_received_microbatches},
      {"vpp", "two micro-batches keep activations in one place", chunked(ScheduleKind::Interleaved),
       share_kept_place},
      {"interleaved", "two layers' weights swapped", chunked(ScheduleKind::Interleaved),
       swap_layers},
      {"1f1b-overlapped", "two micro-batches keep activations in one place",
       chunked(ScheduleKind::OverlappedOneFOneB), share_kept_place},
      {"zb-h1", "W pass skipped once", scheduled(pp, ScheduleKind::ZbH1), skip_one_weight_gradient},
      {"zb-v", "W pass skipped once", chunked(ScheduleKind::ZbV), skip_one_weight_gradient},
      {"dualpipe-v", "two micro-batches keep activations in one place",
       chunked(ScheduleKind::DualPipeV), share_kept_place},
      {"custom schedule", "two layers' weights swapped", custom(), swap_layers},
      {"uneven stages", "two layers' weights swapped",
       with_layers(large_plan("llama3-8b", {.pp = 4}), {5, 9, 10, 8}), swap_layers},
      {"a stage in the middle", "an input gradient not passed on", pp,
       [](Program& program) {
         if (!program.role.first_stage && !program.role.last_stage)
           without_in_last_microbatch("attention_norm.grad")(program);
       }},
      {"embedding at both ends", "gradients not summed", large_plan("gpt2-xl", {.pp = 4}),
       without("tied_embedding.all_reduce")},
      {"selective", "a norm not recomputed", recomputing(pp, RecomputeKind::Selective),
       without_recomputing("norm")},
      {"modules", "the first product of an MLP not recomputed",
       recomputing(pp, RecomputeKind::Selective, {models::Module::Mlp}),
       without_recomputing("gate_up")},
      {"full", "an attention not recomputed", recomputing(pp, RecomputeKind::Full),
       without_recomputing("attention")},
      {"frozen", "gradient stops at a frozen layer", frozen(pp),
       without_in_last_microbatch("attention.input_grad")},
      {"frozen", "divided weights not gathered",
       frozen(with_zero(large_plan("llama3-8b", {.dp = 8}), 3)), drop_frozen_gather},
  };
}

Bugs context_bugs() {
  const Plan cp = large_plan("llama3-8b", {.cp = 4, .dp = 2});
  const Plan gather = over_context(cp, ContextMethod::AllGather);
  const Plan ring = over_context(cp, ContextMethod::Ring);
  const Plan ulysses = over_context(cp, ContextMethod::Ulysses);
  return {
      {"cp-gather", "keys in the order of ranks, not of positions", gather,
       without("attention.keys_values.order")},
      {"cp-gather", "gradients of keys not summed", gather,
       without("attention.keys_values.all_gather.input_grad")},
      {"cp-ring", "off-by-one step of the ring", ring, ring_off_by_one()},
      {"cp-ring", "one step's part left out of the softmax", ring,
       without("attention.step1.merge")},
      {"cp-ring", "keys not passed on", ring, without("keys_values.shift")},
      {"cp over more than two ranks", "keys stop half way round", ring,
       without("step1.keys_values.shift")},
      {"cp-ulysses", "gradients of queries not exchanged", ulysses,
       without("attention.qkv.all_to_all.input_grad")},
      {"cp-ulysses", "no causal mask", ulysses,
       each_attention([](program::ComputeOp& work) { work.attributes.causal = false; })},
      {"packed", "attention from one document to another",
       packed(large_plan("llama3-8b", {.dp = 2})),
       each_attention([](program::ComputeOp& work) { work.documents = false; })},
      {"cp-hybrid", "gradients of keys not summed", packed(gather, 2048),
       without("attention.keys_values.all_gather.input_grad")},
  };
}

Bugs replica_bugs() {
  const Plan dp = large_plan("llama3-8b", {.dp = 8});
  return {
      {"dp", "last bucket not reduced", dp, drop_last_bucket},
      {"dp", "mean of means", dp, each_operation([](Operation& operation) {
         if (is_gradient_bucket(operation))
           std::get<program::FlatCollectiveOp>(operation.work).collective.reduce = ReduceOp::Avg;
       })},
      {"dp", "norms decayed", dp,
       each_step_operation(StepWork::OptimizerUpdate,
                           [](program::StepOp& step) { step.weight_decay = true; })},
      {"dp", "some parameters not updated", dp,
       without([](const auto& /*instance*/, const Operation& operation) {
         const auto* step = std::get_if<program::StepOp>(&operation.work);
         return step != nullptr && step->work == StepWork::OptimizerUpdate && !step->weight_decay;
       })},
      {"dp", "wrong group: only neighbours sum", large_plan("llama3-8b", {.cp = 2, .dp = 4}),
       each_operation([](Operation& operation) {
         if (is_gradient_bucket(operation))
           std::get<program::FlatCollectiveOp>(operation.work).collective.group = Group::Cp;
       })},
      {"uneven", "last micro-batch overwrites the gradient", uneven(dp), overwrite_gradients},
      {"zero1", "updated weights not gathered", with_zero(dp, 1),
       without_flat(program::Region::Weights, Collective::AllGather)},
      {"zero1", "gradients not reduced", with_zero(dp, 1),
       without_flat(program::Region::Gradients, Collective::ReduceScatter)},
      {"zero2", "a micro-batch's sums not added", with_zero(dp, 2),
       without_in_last_microbatch("accumulate")},
      {"zero3", "stale weights in the other slot", with_zero(dp, 3), read_stale_weights},
      {"zero-hybrid", "replicas not summed", with_zero(dp, 2, 2),
       without_flat(program::Region::Gradients, Collective::AllReduce, Group::ZeroReplicas)},
      {"int8", "parts not summed", compressed(dp, CompressionKind::Int8),
       without_step_work(StepWork::SumCompressed)},
      {"top-k", "others' gradients not added", compressed(dp, CompressionKind::TopK),
       without_step_work(StepWork::DecompressGradients)},
      {"offloaded optimizer", "updated state not stored", offloaded(dp),
       without_step_work(StepWork::StoreState)},
      {"offloaded parameters", "weights of the unit before", with_weights_on_host(with_zero(dp, 3)),
       without_step_work(StepWork::FetchWeights)},
      {"offloaded activations", "another layer's left in the slot", with_activations_on_host(dp),
       without_step_work(StepWork::FetchActivations)},
      {"offloaded activations", "not copied to the host", with_activations_on_host(dp),
       without_step_work(StepWork::StoreActivations)},
      {"bf16", "last bucket not reduced", dp, drop_last_bucket, TwinPrecision::Own},
      {"fp16", "last bucket not reduced", trained_in(dp, Precision::F16), drop_last_bucket,
       TwinPrecision::Own},
      {"fp8", "last bucket not reduced", trained_in(dp, Precision::Fp8), drop_last_bucket,
       TwinPrecision::Own},
      // A scaled loss, whose scale what compression has lost does not have.
      {"int8", "parts not summed, in fp16",
       trained_in(compressed(dp, CompressionKind::Int8), Precision::F16),
       without_step_work(StepWork::SumCompressed), TwinPrecision::Own},
      {"top-k", "others' gradients not added, in fp16",
       trained_in(compressed(dp, CompressionKind::TopK), Precision::F16),
       without_step_work(StepWork::DecompressGradients), TwinPrecision::Own},
      // Parts that amplify rounding: norms of heads, norms behind the parts, an encoder's classes.
      {"bf16", "last bucket not reduced, of Gemma 3", large_plan("gemma3-4b", {.tp = 2, .dp = 4}),
       drop_last_bucket, TwinPrecision::Own},
      {"fp8", "last bucket not reduced, of Gemma 3",
       trained_in(large_plan("gemma3-4b", {.tp = 2, .dp = 4, .sp = true}), Precision::Fp8),
       drop_last_bucket, TwinPrecision::Own},
      {"bf16", "last bucket not reduced, of BERT",
       large_plan("bert-base", {.tp = 2, .dp = 4, .sp = true}), drop_last_bucket,
       TwinPrecision::Own},
  };
}

Bugs expert_bugs() {
  const Plan experts = large_plan("mixtral-8x7b", {.tp = 2, .dp = 4, .sp = true});
  const Plan ep = large_plan("mixtral-8x7b", {.dp = 8, .ep = 8});
  const Plan etp = large_plan("mixtral-8x7b", {.tp = 2, .dp = 4, .ep = 2, .etp = 2, .sp = true});
  Plan by_node = large_plan("deepseek-v3", {.dp = 32, .ep = 32});
  by_node.expert_node_ranks = 8;
  Plan float8 = trained_in(ep, Precision::BF16);
  float8.expert_dispatch_fp8 = true;
  return {
      {"experts", "weight gradients of the last micro-batch left out", experts,
       without_in_last_microbatch("expert_down.weight_grad")},
      {"ep", "rows given to the wrong experts", ep, without("dispatch.regroup")},
      {"ep", "gradients stay with the wrong rank", ep, without("combine.all_to_all.input_grad")},
      {"by-node", "sums of a node kept from the ranks of their tokens", by_node,
       without("combine.node_all_to_all")},
      {"by-node", "gradients of weights kept from the router", by_node,
       without("dispatch.node_probabilities.input_grad")},
      {"fp8-dispatch", "tokens that came in FP8 are not unpacked", float8,
       without("dispatch.unpack"), TwinPrecision::Own},
      {"experts on several ranks", "their gradients not summed",
       large_plan("mixtral-8x7b", {.dp = 16, .ep = 8}),
       without_flat(program::Region::Gradients, Collective::AllReduce, Group::ExpertDp)},
      {"etp", "largest instead of sum", etp,
       reduced_by("combine.etp_reduce_scatter", ReduceOp::Max)},
      {"ep", "correction biases do not move", large_plan("deepseek-v3", {.dp = 4, .ep = 4}),
       without_step_work(StepWork::BalanceExperts)},
  };
}

}  // namespace

std::vector<PlantedBug> planted_bugs() {
  Bugs bugs;
  for (Bugs& list : std::vector{tensor_parallel_bugs(), pipeline_bugs(), context_bugs(),
                                replica_bugs(), expert_bugs()})
    std::ranges::move(list, std::back_inserter(bugs));
  return bugs;
}

}  // namespace meshplan::test
