// Model FLOPs of a step, and what of them frozen parameters leave out.
#include "program/cost/model_flops.hpp"

#include <cmath>
#include <map>

#include "core/index.hpp"
#include "models/counts.hpp"
#include "program/context/context.hpp"
#include "program/context/document_context.hpp"
#include "program/plan/frozen.hpp"

namespace meshplan::program {
namespace {

/// FLOPs of one sequence for the gradients of a layer that a plan leaves out. An operation costs as
/// much again for the gradient of what it reads, and of its parameter; attention, which has none,
/// twice as much for the former.
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
  double flops = of(num_layers, graph.ending, "head.");
  for (int layer = 0; layer < num_layers; ++layer)
    flops += of(layer, graph.kinds[at(graph.layer_kind[at(layer)])], layer_prefix(layer));
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
