#include "device/rows.cuh"
#include "experts/operators.hpp"
#include "kernels/experts/expert_exchange.hpp"

namespace meshplan::kernels::cuda {

namespace {

__device__ inline std::int64_t own_index() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

/// Nodes that a token goes to at most.
template <class Op>
__host__ __device__ int most_nodes(const Op& op) {
  return op.top_k < op.nodes ? op.top_k : op.nodes;
}

/// A thread for each token.
__global__ void node_choices_kernel(const NodeChoices op) {
  const std::int64_t t = own_index();
  if (t >= op.tokens) return;
  const int held = op.experts / op.nodes;
  const int most = most_nodes(op);
  std::int32_t* nodes = op.node_choices + t * most;
  int count = 0;
  for (int k = 0; k < op.top_k; ++k) {
    const std::int32_t expert = op.choices[t * op.top_k + k];
    if (expert < 0) continue;
    const std::int32_t node = expert / held;
    bool known = false;
    for (int m = 0; m < count; ++m) known = known || nodes[m] == node;
    if (!known) nodes[count++] = node;
  }
  for (int m = count; m < most; ++m) nodes[m] = -1;
}

/// A thread for each choice of each row.
__global__ void node_routing_kernel(const NodeRoutingForward op) {
  const std::int64_t i = own_index();
  const int most = most_nodes(op);
  if (i >= op.tokens * most * op.top_k) return;
  const std::int32_t choice = op.choice_of_row[i / op.top_k];
  if (choice < 0) return;
  const int held = op.experts / op.nodes;
  const std::int32_t first = op.node_choices[choice] * held;
  const std::int64_t from = std::int64_t{choice / most} * op.top_k + i % op.top_k;
  const std::int32_t expert = op.choices[from];
  const bool here = expert >= first && expert < first + held;
  op.row_choices[i] = here ? expert - first : -1;
  op.row_probabilities[i] = here ? op.probabilities[from] : 0.0F;
}

/// A thread for each choice of each token.
__global__ void node_routing_backward_kernel(const NodeRoutingBackward op) {
  const std::int64_t i = own_index();
  if (i >= op.tokens * op.top_k) return;
  const int held = op.experts / op.nodes;
  const int most = most_nodes(op);
  const std::int64_t first = i / op.top_k * most;
  const std::int32_t expert = op.choices[i];
  float gradient = 0.0F;
  for (int m = 0; m < most && expert >= 0; ++m)
    if (op.node_choices[first + m] == expert / held)
      gradient = op.drow_probabilities[std::int64_t{op.row_of_choice[first + m]} * op.top_k +
                                       i % op.top_k];
  op.dprobabilities[i] = gradient;
}

LaunchShape one_thread_each(std::int64_t count) {
  return {.grid = dim3(static_cast<unsigned>(ceil_div(count, kRowThreads))),
          .block = dim3(kRowThreads)};
}

}  // namespace

void enqueue(const Context& context, const NodeChoices& op) {
  launch(context, one_thread_each(op.tokens), node_choices_kernel, op);
}

void enqueue(const Context& context, const NodeRoutingForward& op) {
  launch(context, one_thread_each(op.tokens * most_nodes(op) * op.top_k), node_routing_kernel, op);
}

void enqueue(const Context& context, const NodeRoutingBackward& op) {
  launch(context, one_thread_each(op.tokens * op.top_k), node_routing_backward_kernel, op);
}

}  // namespace meshplan::kernels::cuda
