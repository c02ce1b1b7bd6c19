#include "program/cost.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

#include "compress_reductions.hpp"
#include "core/error.hpp"
#include "models/counts.hpp"
#include "program/address.hpp"
#include "program/context.hpp"
#include "program/frozen.hpp"
#include "program/offload.hpp"
#include "sharded_layer.hpp"

namespace meshplan::program {
namespace {

using models::OpKind;

std::size_t at(int id) {
  return static_cast<std::size_t>(id);
}

const Value& value_of(const Program& program, const OperationInstance& instance, ValueId id) {
  const LayerInstance& layer = program.layers[at(instance.layer)];
  return program.blocks[at(layer.block)].values[at(id)];
}

/// Work is counted for the rows that are expected on the busiest ep rank, for which all others wait
/// in the exchange; memory for the most that may come.
models::SymbolValues counted_sizes(const Program& program) {
  models::SymbolValues sizes = program.sizes;
  sizes.routed_tokens = std::min(sizes.routed_tokens, busiest_rows(program.plan));
  return sizes;
}

std::vector<std::int64_t> counted_shape(const Program& program, const Value& value) {
  const models::SymbolValues sizes = counted_sizes(program);
  std::vector<std::int64_t> shape;
  for (const models::Dim& dim : value.shape) shape.push_back(models::evaluate(dim, sizes));
  return shape;
}

std::int64_t elements_of(const Program& program, const Value& value) {
  const models::SymbolValues sizes = counted_sizes(program);
  std::int64_t elements = 1;
  for (const models::Dim& dim : value.shape) elements *= models::evaluate(dim, sizes);
  return elements;
}

/// Rows, columns of the product: tokens, output features, input features of a linear.
struct LinearSizes {
  std::int64_t tokens = 0;
  std::int64_t out = 0;
  std::int64_t in = 0;
};

/// Of a product (M, K) times (N, K) in FP8, whose operands were laid out for its phase.
LinearSizes scaled_linear_sizes(const Program& program, const OperationInstance& instance,
                                const Operation& operation) {
  const auto a = counted_shape(program, value_of(program, instance, operation.inputs[0]));
  const auto b = counted_shape(program, value_of(program, instance, operation.inputs[2]));
  if (operation.phase == Phase::WeightGrad) return {.tokens = a[1], .out = a[0], .in = b[0]};
  if (operation.phase == Phase::InputGrad) return {.tokens = a[0], .out = a[1], .in = b[0]};
  return {.tokens = a[0], .out = b[0], .in = a[1]};
}

LinearSizes linear_sizes(const Program& program, const OperationInstance& instance,
                         const Operation& operation) {
  if (std::get<ComputeOp>(operation.work).kind == OpKind::ScaledLinear)
    return scaled_linear_sizes(program, instance, operation);
  // Forward and input gradient read (activation, weight); the weight gradient writes the weight's
  // shape.
  const ValueId matrix =
      operation.phase == Phase::WeightGrad ? operation.outputs[0] : operation.inputs[1];
  const std::vector<std::int64_t> weight =
      counted_shape(program, value_of(program, instance, matrix));
  const std::vector<std::int64_t> first =
      counted_shape(program, value_of(program, instance, operation.inputs[0]));
  return {.tokens = first[0], .out = weight[0], .in = weight[1]};
}

/// Pairs of a query and a key that it sees: of queries at positions offset, offset + 1, ..., each
/// of which sees the keys up to its own position, but at most `window` of them.
double causal_pairs(double queries, double offset, double window) {
  const double growing = std::clamp(window - offset, 0.0, queries);  // see all keys before them
  return growing * (offset + (growing + 1) / 2) + (queries - growing) * window;
}

/// What an Attention of rank 0 computes for one sequence. The zig-zag split gives every rank as
/// many pairs.
std::vector<AttentionTile> attention_tiles(const Program& program,
                                           const OperationInstance& instance,
                                           const Operation& operation, const ComputeOp& work) {
  const std::int64_t seq_len = program.plan.workload.seq_len;
  const int cp = program.plan.parallel.cp;
  if (work.ring_step) return {ring_tile(seq_len, cp, 0, *work.ring_step)};
  const bool forward = operation.phase == Phase::Forward || operation.phase == Phase::Recompute;
  if (operation.inputs.size() > (forward ? 1 : 4)) return gathered_tiles(seq_len, cp, 0);
  const std::vector<std::int64_t> rows =
      counted_shape(program, value_of(program, instance, operation.inputs[0]));
  const std::int64_t length = rows[0] / program.sizes.sequences;
  return {{.num_queries = length, .num_keys = length, .causal = work.attributes.causal}};
}

/// Of packed documents, as long as the workload expects.
double document_pairs(const Program& program, const ComputeOp& work) {
  const auto found = std::ranges::find_if(program.document_pairs, [&](const DocumentPairs& entry) {
    return entry.ring_step == work.ring_step.value_or(0) && entry.window == work.attributes.window;
  });
  require_invariant(found != program.document_pairs.end(), "attention of unexpected documents");
  return found->pairs;
}

/// Score entries that attention computes per query head.
double attended_pairs(const Program& program, const OperationInstance& instance,
                      const Operation& operation, const ComputeOp& work) {
  double pairs = 0;
  if (work.documents)
    return document_pairs(program, work) * static_cast<double>(program.sizes.sequences);
  for (const AttentionTile& tile : attention_tiles(program, instance, operation, work)) {
    const auto queries = static_cast<double>(tile.num_queries);
    const auto keys = static_cast<double>(tile.num_keys);
    const double window = work.attributes.window > 0 ? work.attributes.window : keys;
    pairs += tile.causal ? causal_pairs(queries, static_cast<double>(tile.query_offset), window)
                         : queries * keys;
  }
  return pairs * static_cast<double>(program.sizes.sequences);
}

constexpr double kForwardAttentionProducts = 2;   // q k^T, p v
constexpr double kBackwardAttentionProducts = 5;  // q k^T again, do v^T, p^T do, ds k, ds^T q

double compute_flops(const Program& program, const OperationInstance& instance,
                     const Operation& operation, const ComputeOp& work) {
  switch (work.kind) {
    case OpKind::Linear:
    case OpKind::ScaledLinear: {
      const LinearSizes sizes = linear_sizes(program, instance, operation);
      return 2.0 * static_cast<double>(sizes.tokens) * static_cast<double>(sizes.out) *
             static_cast<double>(sizes.in);
    }
    case OpKind::GroupedLinear: {
      const ValueId matrix =
          operation.phase == Phase::WeightGrad ? operation.outputs[0] : operation.inputs[1];
      const std::vector<std::int64_t> weight =
          counted_shape(program, value_of(program, instance, matrix));
      return 2.0 * static_cast<double>(counted_sizes(program).routed_tokens) *
             static_cast<double>(weight[1]) * static_cast<double>(weight[2]);
    }
    case OpKind::Router: {  // its linear layer; two products in the backward pass
      const double pairs = static_cast<double>(
          elements_of(program, value_of(program, instance, operation.inputs[0])));
      const bool forward = operation.phase == Phase::Forward || operation.phase == Phase::Recompute;
      return forward ? 2.0 * pairs * work.attributes.num_experts
                     : 2.0 * pairs * program.plan.model.hidden_size;
    }
    case OpKind::Attention: {
      const bool forward = operation.phase == Phase::Forward || operation.phase == Phase::Recompute;
      const double products = forward ? kForwardAttentionProducts : kBackwardAttentionProducts;
      // q k^T; q k^T again, ds k and ds^T q are on query and key heads, the others on value heads.
      const double on_keys = forward ? 1 : 3;
      return 2.0 * attended_pairs(program, instance, operation, work) * work.attributes.heads *
             (on_keys * work.attributes.head_size +
              (products - on_keys) * work.attributes.value_head_size);
    }
    default:
      return 0.0;  // memory-bound: counted by bytes
  }
}

std::int64_t operand_bytes(const Program& program, const OperationInstance& instance,
                           const Operation& operation, const ComputeOp& work) {
  std::int64_t bytes = 0;
  const auto add = [&](ValueId id) {
    const Value& value = value_of(program, instance, id);
    // An embedding touches one row per token, not the whole table.
    const bool table = work.kind == OpKind::Embedding &&
                       (value.storage == Storage::Parameter || value.storage == Storage::Gradient);
    const std::int64_t elements =
        table ? program.sizes.tokens * program.plan.model.hidden_size : elements_of(program, value);
    bytes += elements * size_of(value.dtype);
  };
  for (const ValueId id : operation.inputs) add(id);
  if (work.kind == OpKind::Quantize) add(operation.inputs.front());  // once for its largest number
  for (const ValueId id : operation.outputs) {
    add(id);
    const Value& value = value_of(program, instance, id);
    if (value.storage == Storage::Gradient && instance.accumulate) add(id);  // read as well
  }
  return bytes;
}

/// fp32 numbers that an optimizer reads and writes per element (see kernels/optimizer.hpp).
constexpr std::int64_t kAdamBytes = 28;
constexpr std::int64_t kSgdBytes = 20;

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::Forward:
    case Phase::Recompute:
      return "forward";  // the same operation, priced alike
    case Phase::InputGrad:
      return "input_grad";
    case Phase::WeightGrad:
      return "weight_grad";
    case Phase::Reduce:
      return "reduce";
    case Phase::Optimizer:
      return "optimizer";
  }
  throw InvariantError("phase without a name");
}

std::string_view kind_name(OpKind kind) {
  switch (kind) {
    case OpKind::Embedding:
      return "embedding";
    case OpKind::PositionEmbedding:
      return "position_embedding";
    case OpKind::Scale:
      return "scale";
    case OpKind::RmsNorm:
      return "rms_norm";
    case OpKind::LayerNorm:
      return "layer_norm";
    case OpKind::HeadRmsNorm:
      return "head_rms_norm";
    case OpKind::Linear:
      return "linear";
    case OpKind::Rope:
      return "rope";
    case OpKind::Attention:
      return "attention";
    case OpKind::GatedActivation:
      return "gated_activation";
    case OpKind::Activation:
      return "activation";
    case OpKind::Add:
      return "add";
    case OpKind::Accumulate:
      return "accumulate";
    case OpKind::BiasAdd:
      return "bias_add";
    case OpKind::CrossEntropy:
      return "cross_entropy";
    case OpKind::CrossEntropyLocal:
      return "cross_entropy_local";
    case OpKind::CrossEntropyCombine:
      return "cross_entropy_combine";
    case OpKind::SumLoss:
      return "sum_loss";
    case OpKind::Router:
      return "router";
    case OpKind::DispatchPlan:
      return "dispatch_plan";
    case OpKind::ExchangeSizes:
      return "exchange_sizes";
    case OpKind::Dispatch:
      return "dispatch";
    case OpKind::RegroupRows:
      return "regroup_rows";
    case OpKind::GroupedLinear:
      return "grouped_linear";
    case OpKind::Combine:
      return "combine";
    case OpKind::SliceRows:
      return "slice_rows";
    case OpKind::SliceColumns:
      return "slice_columns";
    case OpKind::PackColumns:
      return "pack_columns";
    case OpKind::UnpackColumns:
      return "unpack_columns";
    case OpKind::KeyValues:
      return "key_values";
    case OpKind::OrderChunks:
      return "order_chunks";
    case OpKind::MergeAttention:
      return "merge_attention";
    case OpKind::Convert:
      return "convert";
    case OpKind::Slice:
      return "slice";
    case OpKind::LatentHeads:
      return "latent_heads";
    case OpKind::SigmoidGate:
      return "sigmoid_gate";
    case OpKind::RouterLoad:
      return "router_load";
    case OpKind::SequenceLoad:
      return "sequence_load";
    case OpKind::RouterLosses:
      return "router_losses";
    case OpKind::LimitChoices:
      return "limit_choices";
    case OpKind::Quantize:
      return "quantize";
    case OpKind::ScaledLinear:
      return "scaled_linear";
    default:
      throw InvariantError("operation without a signature");
  }
}

/// What besides its shape an operation's time depends on.
std::string attribute_flags(const ComputeOp& work) {
  const models::OpAttributes& a = work.attributes;
  switch (work.kind) {
    case OpKind::Activation:
    case OpKind::GatedActivation:
      return fmt::format(" {}", models::name_of_activation(a.activation));
    case OpKind::Rope:
      return fmt::format(" heads={} rotated={}", a.heads + a.kv_heads, a.rope_size);
    case OpKind::HeadRmsNorm:
      return fmt::format(" heads={} size={}", a.heads + a.kv_heads, a.head_size);
    case OpKind::Quantize:
      return fmt::format(" {}{}{}", work.cast->gradient ? "e5m2" : "e4m3",
                         work.cast->rows ? " rows" : "", work.cast->columns ? " columns" : "");
    case OpKind::Attention:
    case OpKind::CrossEntropyLocal:
    case OpKind::CrossEntropy:
      return a.softcap > 0 ? " softcap" : "";
    default:
      return "";
  }
}

/// "192", or "192:128" where value heads have another size.
std::string head_sizes(const models::OpAttributes& a) {
  return a.value_head_size == a.head_size ? fmt::format("{}", a.head_size)
                                          : fmt::format("{}:{}", a.head_size, a.value_head_size);
}

/// Of a Linear.
bool has_bias(const Operation& operation, const ComputeOp& work) {
  if (work.kind == OpKind::ScaledLinear) return operation.inputs.size() > 4;
  if (operation.phase == Phase::WeightGrad) return operation.outputs.size() > 1;
  return operation.phase != Phase::InputGrad && operation.inputs.size() > 2;
}

/// Of work on routed rows: measured are operators with the rows of a balanced router.
std::string imbalance_flag(const Program& program, const OperationInstance& instance,
                           const Operation& operation) {
  if (counted_sizes(program).routed_tokens <= balanced_rows(program.plan)) return "";
  const auto routed = [&](ValueId id) {
    const std::vector<models::Dim>& shape = value_of(program, instance, id).shape;
    return !shape.empty() && shape.front().symbol == models::Symbol::RoutedTokens;
  };
  if (std::ranges::none_of(operation.inputs, routed) &&
      std::ranges::none_of(operation.outputs, routed))
    return "";
  return fmt::format(" busiest=x{:g}", program.plan.expected_expert_imbalance);
}

std::string compute_signature(const Program& program, const OperationInstance& instance,
                              const Operation& operation, const ComputeOp& work) {
  std::string text = fmt::format("{}.{} {}", kind_name(work.kind), phase_name(operation.phase),
                                 name_of(program.plan.workload.precision));
  if (work.kind == OpKind::Linear || work.kind == OpKind::ScaledLinear) {
    const LinearSizes sizes = linear_sizes(program, instance, operation);
    text += fmt::format(" t={} out={} in={}{}{}", sizes.tokens, sizes.out, sizes.in,
                        has_bias(operation, work) ? " bias" : "",
                        instance.accumulate ? " accumulate" : "");
    if (!work.fused_activation) return text;
    // Whether it also keeps what the function reads makes a difference to what it writes.
    const bool keeps = operation.outputs.size() > 1;
    return text + fmt::format(" {}{}", models::name_of_activation(*work.fused_activation),
                              keeps ? " aux" : "");
  }
  if (work.kind == OpKind::GroupedLinear) {
    const ValueId matrix =
        operation.phase == Phase::WeightGrad ? operation.outputs[0] : operation.inputs[1];
    const std::vector<std::int64_t> weight =
        counted_shape(program, value_of(program, instance, matrix));
    return text + fmt::format(" t={} experts={} out={} in={}{}",
                              counted_sizes(program).routed_tokens, weight[0], weight[1], weight[2],
                              instance.accumulate ? " accumulate" : "");
  }
  if (work.kind == OpKind::Attention && work.documents) {
    const bool backward = operation.phase == Phase::InputGrad;
    const ValueId queries = operation.inputs[backward ? 1 : 0];
    const bool apart = operation.inputs.size() > (backward ? 5 : 2);
    const ValueId keys = apart ? operation.inputs[backward ? 4 : 1] : queries;
    const auto rows = [&](ValueId id) {
      return local_shape(program, value_of(program, instance, id)).front() /
             program.sizes.sequences;
    };
    return text + fmt::format(" b={} s={} keys={} h={} k={} e={} documents pairs={:.0f}",
                              program.sizes.sequences, rows(queries), rows(keys),
                              work.attributes.heads, work.attributes.kv_heads,
                              head_sizes(work.attributes), document_pairs(program, work));
  }
  if (work.kind == OpKind::Attention) {
    const std::vector<AttentionTile> tiles = attention_tiles(program, instance, operation, work);
    const AttentionTile& last = tiles.back();
    text +=
        fmt::format(" b={} s={} h={} k={} e={} {}{}", program.sizes.sequences, last.num_queries,
                    work.attributes.heads, work.attributes.kv_heads, head_sizes(work.attributes),
                    last.causal ? "causal" : "full",
                    work.attributes.window > 0 ? fmt::format(" window={}", work.attributes.window)
                                               : std::string());
    if (tiles.size() > 1)
      text += fmt::format(" chunks={} keys={}", tiles.size(), program.plan.workload.seq_len);
    else if (last.num_keys != last.num_queries)
      text += fmt::format(" keys={}", last.num_keys);
    return text + attribute_flags(work);
  }
  // An embedding reads ids; what it moves is rows of the model's width.
  const bool lookup = work.kind == OpKind::Embedding && operation.phase == Phase::Forward;
  const Value& first =
      value_of(program, instance, lookup ? operation.outputs[0] : operation.inputs[0]);
  for (const std::int64_t size : local_shape(program, first)) text += fmt::format(" {}", size);
  // A norm that adds its gradient to the residual stream's reads that, too.
  const bool norm = work.kind == OpKind::RmsNorm || work.kind == OpKind::LayerNorm;
  const std::size_t plain_inputs = work.kind == OpKind::RmsNorm ? 4 : 5;
  if (norm && operation.phase == Phase::InputGrad && operation.inputs.size() > plain_inputs)
    text += " residual";
  if (instance.accumulate) text += " accumulate";
  return text + imbalance_flag(program, instance, operation) + attribute_flags(work);
}

}  // namespace

std::int64_t busiest_rows(const Plan& plan) {
  const auto balanced = static_cast<double>(balanced_rows(plan));
  return static_cast<std::int64_t>(std::ceil(balanced * plan.expected_expert_imbalance));
}

std::int64_t balanced_rows(const Plan& plan) {
  if (!plan.model.moe) return 0;
  const std::int64_t shards = plan.parallel.sp ? plan.parallel.tp : 1;
  return plan.tokens_per_microbatch() / shards * plan.parallel.etp * plan.model.moe->top_k;
}

/// Elements that a rank works on: of a divided bucket its part, which is equal for all ranks up to
/// the run's share of it.
std::int64_t step_elements(const Plan& plan, const StepOp& step) {
  if (!step.bucket || plan.zero_stage == 0) return step.range.size();
  const Group group = step.expert ? Group::ExpertZeroShards : Group::ZeroShards;
  const std::int64_t shards = group_size(group, plan);
  return (step.range.size() + shards - 1) / shards;
}

std::int64_t state_bytes(const Plan& plan, const StepOp& step) {
  return step_elements(plan, step) * std::ssize(offloaded_regions(plan)) * size_of(DType::F32);
}

OperationCost step_cost(const Plan& plan, const StepOp& step) {
  const std::int64_t elements = step_elements(plan, step);
  switch (step.work) {
    case StepWork::SquaredNorm:
      return {.flops = 2.0 * static_cast<double>(elements), .bytes = 4 * elements};
    case StepWork::AccumulateGradients:
      return {.flops = static_cast<double>(elements), .bytes = 12 * elements};
    case StepWork::OptimizerUpdate: {
      const bool sgd = plan.workload.optimizer.kind == OptimizerKind::Sgd;
      const std::int64_t copy =
          plan.workload.precision == DType::F32 ? 0 : size_of(plan.workload.precision);
      return {.flops = 0, .bytes = elements * ((sgd ? kSgdBytes : kAdamBytes) + copy)};
    }
    case StepWork::FetchState:
    case StepWork::StoreState:  // read here and written there
      return {.flops = 0, .bytes = 2 * state_bytes(plan, step)};
    case StepWork::LoadBatch:
    case StepWork::MaskLoss:
    case StepWork::ClipCoefficient:
    case StepWork::ClearGradients:  // gaps of a few elements
    case StepWork::BalanceExperts:
      return {};
    case StepWork::CompressGradients:
    case StepWork::SumCompressed:
    case StepWork::CompressSum:
    case StepWork::DecompressGradients:
    case StepWork::SettleErrors:
      throw InvariantError("compression is priced by its bucket");
  }
  throw InvariantError("step work without a cost");
}

namespace {

bool compresses(StepWork work) {
  return work >= StepWork::CompressGradients && work <= StepWork::SettleErrors;
}

}  // namespace

OperationCost operation_cost(const Program& program, const OperationInstance& instance) {
  const Operation& operation = operation_of(program, instance);
  if (const auto* compute = std::get_if<ComputeOp>(&operation.work))
    return {.flops = compute_flops(program, instance, operation, *compute),
            .bytes = operand_bytes(program, instance, operation, *compute)};
  if (const auto* step = std::get_if<StepOp>(&operation.work))
    return compresses(step->work) ? compression_cost(program, *step)
                                  : step_cost(program.plan, *step);
  return {.flops = 0, .bytes = message_bytes(program, instance)};
}

std::string signature(const Program& program, const OperationInstance& instance) {
  const Operation& operation = operation_of(program, instance);
  if (const auto* compute = std::get_if<ComputeOp>(&operation.work))
    return compute_signature(program, instance, operation, *compute);
  const auto* step = std::get_if<StepOp>(&operation.work);
  if (step == nullptr) return {};
  return compresses(step->work) ? compression_signature(program, *step)
                                : step_signature(program.plan, *step);
}

std::string step_signature(const Plan& plan, const StepOp& step) {
  switch (step.work) {
    case StepWork::SquaredNorm:
      return fmt::format("squared_norm {}", step_elements(plan, step));
    case StepWork::AccumulateGradients:
      return fmt::format("accumulate_gradients {}", step_elements(plan, step));
    case StepWork::OptimizerUpdate: {
      constexpr std::string_view kNames[] = {"adamw", "adam", "sgd"};
      return fmt::format("{} {} {}", kNames[static_cast<int>(plan.workload.optimizer.kind)],
                         name_of(plan.workload.precision), step_elements(plan, step));
    }
    case StepWork::FetchState:
    case StepWork::StoreState:
      return fmt::format("copy_state {}", state_bytes(plan, step));
    case StepWork::LoadBatch:
    case StepWork::MaskLoss:
    case StepWork::ClipCoefficient:
    case StepWork::ClearGradients:
    case StepWork::BalanceExperts:
      return {};
    case StepWork::CompressGradients:
    case StepWork::SumCompressed:
    case StepWork::CompressSum:
    case StepWork::DecompressGradients:
    case StepWork::SettleErrors:
      throw InvariantError("compression is described by its bucket");
  }
  throw InvariantError("step work without a signature");
}

std::int64_t message_bytes(const Program& program, const OperationInstance& instance) {
  const Operation& operation = operation_of(program, instance);
  const models::SymbolValues sizes = counted_sizes(program);
  const auto bytes = [&](const models::Dim& elements, DType dtype) {
    return models::evaluate(elements, sizes) * size_of(dtype);
  };
  if (const auto* collective = std::get_if<CollectiveOp>(&operation.work)) {
    std::int64_t moved = bytes(collective->elements, collective->dtype);
    // Every rank sends about as much; the busiest one receives more, or sends it back.
    if (collective->collective == Collective::AllToAllV)
      moved = std::max(
          moved, elements_of(program, value_of(program, instance, operation.outputs.front())) *
                     size_of(collective->dtype));
    return moved;
  }
  if (const auto* peer = std::get_if<PeerOp>(&operation.work))
    return bytes(peer->elements, peer->dtype);
  if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work))
    return bytes(flat->collective.elements, flat->collective.dtype);
  return 0;
}

namespace {

/// Of one sequence: the gradients of a layer that a plan leaves out. An operation costs as much
/// again for the gradient of what it reads, and of its parameter; attention, which has none, twice
/// as much for the former.
double unneeded_flops(const models::LayerGraph& layer, const std::vector<bool>& frozen,
                      bool needs_input_gradient, std::int64_t seq_len) {
  std::map<models::TensorId, bool> is_frozen;
  for (std::size_t id = 0; id < layer.tensors.size(); ++id)
    if (layer.tensors[id].tensor_class == models::TensorClass::Parameter)
      is_frozen.emplace(static_cast<models::TensorId>(id), frozen[is_frozen.size()]);
  models::SymbolValues sizes{.tokens = seq_len, .sequences = 1};
  for (const models::Op& op : layer.ops)
    if (op.attributes.top_k > 0) sizes.routed_tokens = seq_len * op.attributes.top_k;
  bool reads_trained = needs_input_gradient;  // has anything up to here a gradient?
  double flops = 0;
  for (const models::Op& op : layer.ops) {
    const double forward = models::forward_flops(op, layer, sizes, seq_len).value;
    if (!reads_trained) flops += (op.parameters.empty() ? 2 : 1) * forward;
    if (!op.parameters.empty() && is_frozen.at(op.parameters.front())) flops += forward;
    for (const models::TensorId id : op.parameters)
      reads_trained = reads_trained || !is_frozen.at(id);
  }
  return flops;
}

double unneeded_flops(const Plan& plan, const models::ModelGraph& graph, std::int64_t seq_len) {
  if (plan.frozen.empty()) return 0;
  const FrozenParameters frozen(plan.frozen, graph);
  const auto of = [&](int layer, const models::LayerGraph& own, const std::string& prefix) {
    return unneeded_flops(own, frozen.mask(own, prefix), frozen.needs_input_gradient(layer),
                          seq_len);
  };
  const int num_layers = static_cast<int>(graph.layer_kind.size());
  double flops = of(num_layers, graph.head, "head.");
  for (int layer = 0; layer < num_layers; ++layer)
    flops +=
        of(layer,
           graph.kinds[static_cast<std::size_t>(graph.layer_kind[static_cast<std::size_t>(layer)])],
           layer_prefix(layer));
  return flops;
}

}  // namespace

double model_flops_per_step(const Plan& plan) {
  const double tokens = static_cast<double>(plan.workload.global_batch_size) *
                        static_cast<double>(plan.workload.seq_len);
  std::int64_t length = plan.workload.seq_len;
  if (plan.workload.documents.packed) {
    // Packed, a query sees as many keys in the mean as in a plain sequence of this length: S tokens
    // have S (S + 1) / 2 pairs.
    Plan whole = plan;
    whole.parallel = {};
    whole.max_tokens_per_rank = 0;
    const double pairs = expected_pairs(whole).front().pairs;
    length = std::max<std::int64_t>(
        1, std::llround(2 * pairs / static_cast<double>(plan.workload.seq_len)) - 1);
  }
  const models::ModelGraph graph = models::build_graph(plan.model);
  return tokens * (models::model_flops_per_token(graph, length).value -
                   unneeded_flops(plan, graph, length) / static_cast<double>(length));
}

}  // namespace meshplan::program
