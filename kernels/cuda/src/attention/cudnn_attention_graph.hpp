// Attention as the graph of elementary operations that cuDNN recognizes and fuses.
//
// cuDNN 9.19's single-node descriptors have no attribute for a mask, hence the graph. Source: cuDNN
// developer guide, "Fused flash attention", and the graphs of cudnn-frontend's composite nodes.
#pragma once

#include <memory>
#include <string>

#include "kernels/attention/attention.hpp"
#include "library/cudnn_graph.hpp"

namespace meshplan::kernels::cuda {

/// Empty, or why the graph below cannot stand for this attention. Decided from the shape alone.
std::string graph_refusal(const AttentionForward& op);
std::string graph_refusal(const AttentionBackward& op);

/// How the backward sums a query's gradient over blocks of keys. Source: cudnn-frontend,
/// scaled_dot_product_flash_attention.h, deterministic_algorithm.
enum class QueryGradientSum {
  FromScores,  // of the scores' gradient, which cuDNN keeps in its workspace: 2 B H Q S bytes
  InFloat32,   // added up in memory by whichever block is ready: 4 B H Q E bytes of ours
};

/// Tensors of a graph by role; an id of 0 is a role that the direction does not have. Statistics
/// are (sequences, heads, rows), dense.
struct AttentionGraph {
  CudnnGraph graph;
  std::int64_t q = 0, k = 0, v = 0, o = 0, stats = 0;
  std::int64_t output_grad = 0, dq = 0, dk = 0, dv = 0;
  std::int64_t delta = 0;   // backward: row sums of do * o, (sequences, heads, rows), in memory
  std::int64_t dq_sum = 0;  // InFloat32: (sequences, heads, rows, head size), in memory
};

std::unique_ptr<AttentionGraph> attention_graph(const AttentionForward& op);
std::unique_ptr<AttentionGraph> attention_graph(const AttentionBackward& op, QueryGradientSum sum);

}  // namespace meshplan::kernels::cuda
