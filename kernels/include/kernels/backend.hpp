#pragma once

#include <cstdint>
#include <string>

#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_merge.hpp"
#include "kernels/attention/attention_sinks.hpp"
#include "kernels/attention/latent_heads.hpp"
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

/// Runs operations of one device, in the order given. All pointers in operations are device memory
/// of this backend. `run` may return before the work is done (GPU); `synchronize` waits. One host
/// thread uses a backend at a time; several backends may live in one process.
///
/// Memory: `run` keeps nothing that it allocates after the first run of a shape. Operations that
/// need workspace say how much through `scratch_bytes`; the caller hands over one region that
/// covers the largest need. All operations share it, since they run in order.
///
/// Reductions have a fixed order: the same operation on the same input gives the same bits.
/// @throws InvariantError from `run` for a malformed operation or too little scratch
class Backend {
 public:
  virtual ~Backend() = default;
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// "cpu avx512 1 thread": what a report should print.
  virtual std::string name() const = 0;
  virtual int num_threads() const = 0;

  /// Device memory, aligned to 4096 bytes, zeroed (hence touched). @throws IoError if there is none
  virtual void* allocate(std::int64_t bytes) = 0;
  virtual void free(void* memory) noexcept = 0;
  virtual void copy(void* to, const void* from, std::int64_t bytes) = 0;
  virtual void copy_to_device(void* to, const void* from_host, std::int64_t bytes) = 0;
  virtual void copy_to_host(void* to_host, const void* from, std::int64_t bytes) = 0;
  virtual void zero(void* memory, std::int64_t bytes) = 0;
  virtual void synchronize() = 0;

  /// Bytes of workspace that `run` of this operation needs; only shape, dtype, strides and which
  /// pointers are null matter. Operations without an overload below need none.
  template <class Op>
  std::int64_t scratch_bytes(const Op& /*op*/) {
    return 0;
  }
  virtual std::int64_t scratch_bytes(const LinearForward& op) = 0;
  virtual std::int64_t scratch_bytes(const LinearInputGrad& op) = 0;
  virtual std::int64_t scratch_bytes(const LinearWeightGrad& op) = 0;
  /// Does it read on the device where groups of rows begin? Then GroupOffsets::host may be null.
  virtual bool reads_group_offsets() const { return false; }
  virtual std::int64_t scratch_bytes(const GroupedLinearForward& op);
  virtual std::int64_t scratch_bytes(const GroupedLinearInputGrad& op);
  virtual std::int64_t scratch_bytes(const GroupedLinearWeightGrad& op);
  virtual std::int64_t scratch_bytes(const AttentionForward& op) = 0;
  virtual std::int64_t scratch_bytes(const AttentionBackward& op) = 0;
  virtual std::int64_t scratch_bytes(const AttentionSinksGrad& /*op*/) { return 0; }
  virtual std::int64_t scratch_bytes(const RmsNormBackward& /*op*/) { return 0; }
  virtual std::int64_t scratch_bytes(const LayerNormBackward& /*op*/) { return 0; }
  virtual std::int64_t scratch_bytes(const EmbeddingBackward& /*op*/) { return 0; }
  virtual std::int64_t scratch_bytes(const HeadRmsNormBackward& op);
  virtual std::int64_t scratch_bytes(const DispatchPlan& /*op*/) { return 0; }
  virtual std::int64_t scratch_bytes(const RouterForward& /*op*/) { return 0; }
  virtual std::int64_t scratch_bytes(const RouterBackward& /*op*/) { return 0; }
  virtual std::int64_t scratch_bytes(const LimitChoices& /*op*/) { return 0; }
  virtual std::int64_t scratch_bytes(const QuantizeFloat8& /*op*/) { return 0; }
  virtual std::int64_t scratch_bytes(const ScaledProduct& /*op*/) { return 0; }
  virtual std::int64_t scratch_bytes(const SquaredNorm& op) = 0;

  /// The region that operations may use until the next call; aligned to 64 bytes, owned by the
  /// caller.
  virtual void set_scratch(void* memory, std::int64_t bytes) = 0;

  virtual void run(const LinearForward& op) = 0;
  virtual void run(const LinearInputGrad& op) = 0;
  virtual void run(const LinearWeightGrad& op) = 0;
  /// By default a loop over the groups, in blocks of rows whose sizes repeat, which reads
  /// `offsets` on the host.
  virtual void run(const GroupedLinearForward& op);
  virtual void run(const GroupedLinearInputGrad& op);
  virtual void run(const GroupedLinearWeightGrad& op);
  /// By default the RMS norm of one head after the other.
  virtual void run(const HeadRmsNormForward& op);
  virtual void run(const HeadRmsNormBackward& op);
  /// By default row by row.
  virtual void run(const CopyRows& op);
  virtual void run(const AttentionForward& op) = 0;
  virtual void run(const AttentionBackward& op) = 0;
  virtual void run(const RmsNormForward& op) = 0;
  virtual void run(const RmsNormBackward& op) = 0;
  virtual void run(const LayerNormForward& op) = 0;
  virtual void run(const LayerNormBackward& op) = 0;
  virtual void run(const Rope& op) = 0;
  virtual void run(const ActivationForward& op) = 0;
  virtual void run(const ActivationBackward& op) = 0;
  virtual void run(const GatedActivationForward& op) = 0;
  virtual void run(const GatedActivationBackward& op) = 0;
  virtual void run(const Add& op) = 0;
  virtual void run(const Accumulate& op) = 0;
  virtual void run(const Scale& op) = 0;
  virtual void run(const Fill& op) = 0;
  virtual void run(const Convert& op) = 0;
  virtual void run(const EmbeddingForward& op) = 0;
  virtual void run(const EmbeddingBackward& op) = 0;
  virtual void run(const PositionEmbeddingForward& op) = 0;
  virtual void run(const PositionEmbeddingBackward& op) = 0;
  virtual void run(const CrossEntropyLocal& op) = 0;
  virtual void run(const CrossEntropyCombine& op) = 0;
  virtual void run(const CrossEntropyBackward& op) = 0;
  virtual void run(const SumLoss& op) = 0;
  virtual void run(const AdamStep& op) = 0;
  virtual void run(const SgdStep& op) = 0;
  virtual void run(const SquaredNorm& op) = 0;
  virtual void run(const ClipCoefficient& op) = 0;
  virtual void run(const RandomNormal& op) = 0;

  /// Not every backend has these yet: by default an InvariantError that names the operation.
  virtual void run(const RouterForward& op);
  virtual void run(const RouterBackward& op);
  virtual void run(const DispatchPlan& op);
  virtual void run(const DispatchForward& op);
  virtual void run(const DispatchBackward& op);
  virtual void run(const CombineForward& op);
  virtual void run(const CombineBackward& op);
  virtual void run(const ExpertCounts& op);
  virtual void run(const ExchangeSizes& op);
  virtual void run(const RegroupRows& op);
  virtual void run(const ExpertLoad& op);
  virtual void run(const RouterLosses& op);
  virtual void run(const LimitChoices& op);
  virtual void run(const BalanceExperts& op);
  virtual void run(const LatentHeadsForward& op);
  virtual void run(const LatentHeadsBackward& op);
  virtual void run(const SigmoidGateForward& op);
  virtual void run(const SigmoidGateBackward& op);
  virtual void run(const AttentionMerge& op);
  virtual void run(const AttentionSinksGrad& op);
  virtual void run(const QuantizeInt8& op);
  virtual void run(const DequantizeInt8& op);
  virtual void run(const TopKSelect& op);
  virtual void run(const TopKScatterAdd& op);
  virtual void run(const SettleErrors& op);
  virtual void run(const QuantizeFloat8& op);
  virtual void run(const ScaledProduct& op);
};

}  // namespace meshplan::kernels
