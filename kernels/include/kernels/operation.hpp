// Everything that a backend can do. A new operator is a struct here, its kernels in each backend
// (none does not compile) and the binding that calls it (bind_*.cpp of the runtime).
#pragma once

#include <variant>

#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_merge.hpp"
#include "kernels/attention/attention_sinks.hpp"
#include "kernels/attention/indexer.hpp"
#include "kernels/attention/latent_heads.hpp"
#include "kernels/attention/sparse_attention.hpp"
#include "kernels/elementwise/accumulate.hpp"
#include "kernels/elementwise/activation.hpp"
#include "kernels/elementwise/add.hpp"
#include "kernels/elementwise/convert.hpp"
#include "kernels/elementwise/copy_rows.hpp"
#include "kernels/elementwise/fill.hpp"
#include "kernels/elementwise/gated_activation.hpp"
#include "kernels/elementwise/scale.hpp"
#include "kernels/elementwise/sigmoid_gate.hpp"
#include "kernels/embeddings/embedding.hpp"
#include "kernels/embeddings/position_embedding.hpp"
#include "kernels/embeddings/rope.hpp"
#include "kernels/experts/expert_dispatch.hpp"
#include "kernels/experts/expert_exchange.hpp"
#include "kernels/experts/router.hpp"
#include "kernels/mixers/gated_delta.hpp"
#include "kernels/mixers/gated_rms_norm.hpp"
#include "kernels/mixers/short_convolution.hpp"
#include "kernels/mixers/ssd.hpp"
#include "kernels/norms/head_rms_norm.hpp"
#include "kernels/norms/layer_norm.hpp"
#include "kernels/norms/rms_norm.hpp"
#include "kernels/products/float8.hpp"
#include "kernels/products/grouped_linear.hpp"
#include "kernels/products/linear.hpp"
#include "kernels/training/cross_entropy.hpp"
#include "kernels/training/gradient_compression.hpp"
#include "kernels/training/optimizer.hpp"
#include "kernels/training/random_normal.hpp"

namespace meshplan::kernels {

using Operation = std::variant<
    // products
    LinearForward, LinearInputGrad, LinearWeightGrad, GroupedLinearForward, GroupedLinearInputGrad,
    GroupedLinearWeightGrad, QuantizeFloat8, ScaledProduct,
    // attention
    AttentionForward, AttentionBackward, AttentionMerge, AttentionSinksGrad, LatentHeadsForward,
    LatentHeadsBackward, SelectKeysForward, SparseAttentionForward, SparseAttentionBackward,
    IndexerLossForward, IndexerLossBackward,
    // mixers
    SsdForward, SsdBackward, ShortConvolutionForward, ShortConvolutionBackward, GatedRmsNormForward,
    GatedRmsNormBackward, GatedDeltaForward, GatedDeltaBackward,
    // norms
    RmsNormForward, RmsNormBackward, LayerNormForward, LayerNormBackward, HeadRmsNormForward,
    HeadRmsNormBackward,
    // embeddings
    EmbeddingForward, EmbeddingBackward, PositionEmbeddingForward, PositionEmbeddingBackward, Rope,
    // elementwise
    ActivationForward, ActivationBackward, GatedActivationForward, GatedActivationBackward,
    SigmoidGateForward, SigmoidGateBackward, Add, Accumulate, Scale, Fill, Convert, CopyRows,
    // experts
    RouterForward, RouterBackward, ExpertLoad, RouterLosses, LimitChoices, BalanceExperts,
    DispatchPlan, DispatchForward, DispatchBackward, CombineForward, CombineBackward, ExpertCounts,
    ExchangeSizes, RegroupRows, NodeChoices, NodeRoutingForward, NodeRoutingBackward,
    PackFloat8Rows, UnpackFloat8Rows,
    // training
    CrossEntropyLocal, CrossEntropyCombine, CrossEntropyBackward, SumLoss, AdamStep, SgdStep,
    SquaredNorm, ClipCoefficient, RandomNormal, QuantizeInt8, DequantizeInt8, TopKSelect,
    TopKScatterAdd, SettleErrors>;

}  // namespace meshplan::kernels
