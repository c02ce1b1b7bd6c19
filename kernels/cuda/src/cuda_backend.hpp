#pragma once

#include <memory>
#include <unordered_map>

#include "attention/attention.hpp"
#include "kernels/cuda/handles.hpp"
#include "kernels/cuda_backend.hpp"
#include "operators.hpp"
#include "products/linear.hpp"

namespace meshplan::kernels::cuda {

class StreamBackend final : public CudaBackend {
 public:
  StreamBackend(int device_index, const CudaBackendOptions& options);
  ~StreamBackend() override;

  std::string name() const override;
  int num_threads() const override { return 1; }
  bool reads_group_offsets() const override { return true; }
  int device_index() const override { return context_.device; }
  CUstream_st* stream() const override { return context_.stream; }
  ProductTuning* product_tuning() override;

  void* allocate(std::int64_t bytes) override;
  void free(void* memory) noexcept override;
  void copy(void* to, const void* from, std::int64_t bytes) override;
  void copy_to_device(void* to, const void* from_host, std::int64_t bytes) override;
  void copy_to_host(void* to_host, const void* from, std::int64_t bytes) override;
  void zero(void* memory, std::int64_t bytes) override;
  void synchronize() override;

  using Backend::run;
  using Backend::scratch_bytes;
  std::int64_t scratch_bytes(const LinearForward& op) override;
  std::int64_t scratch_bytes(const LinearInputGrad& op) override;
  std::int64_t scratch_bytes(const LinearWeightGrad& op) override;
  std::int64_t scratch_bytes(const HeadRmsNormBackward& op) override;
  std::int64_t scratch_bytes(const GroupedLinearForward& /*op*/) override { return 0; }
  std::int64_t scratch_bytes(const GroupedLinearInputGrad& /*op*/) override { return 0; }
  std::int64_t scratch_bytes(const GroupedLinearWeightGrad& /*op*/) override { return 0; }
  std::int64_t scratch_bytes(const AttentionForward& op) override;
  std::int64_t scratch_bytes(const AttentionBackward& op) override;
  std::int64_t scratch_bytes(const AttentionSinksGrad& op) override;
  std::int64_t scratch_bytes(const RmsNormBackward& op) override;
  std::int64_t scratch_bytes(const LayerNormBackward& op) override;
  std::int64_t scratch_bytes(const EmbeddingBackward& op) override;
  std::int64_t scratch_bytes(const DispatchPlan& op) override;
  std::int64_t scratch_bytes(const SquaredNorm& op) override;
  std::int64_t scratch_bytes(const QuantizeFloat8& op) override;
  std::int64_t scratch_bytes(const ScaledProduct& op) override;
  void set_scratch(void* memory, std::int64_t bytes) override;

  void run(const LinearForward& op) override;
  void run(const LinearInputGrad& op) override;
  void run(const LinearWeightGrad& op) override;
  void run(const GroupedLinearForward& op) override;
  void run(const GroupedLinearInputGrad& op) override;
  void run(const GroupedLinearWeightGrad& op) override;
  void run(const AttentionForward& op) override;
  void run(const AttentionBackward& op) override;
  void run(const HeadRmsNormForward& op) override;
  void run(const HeadRmsNormBackward& op) override;
  void run(const CopyRows& op) override;
  void run(const RmsNormForward& op) override;
  void run(const RmsNormBackward& op) override;
  void run(const LayerNormForward& op) override;
  void run(const LayerNormBackward& op) override;
  void run(const Rope& op) override;
  void run(const ActivationForward& op) override;
  void run(const ActivationBackward& op) override;
  void run(const GatedActivationForward& op) override;
  void run(const GatedActivationBackward& op) override;
  void run(const Add& op) override;
  void run(const Accumulate& op) override;
  void run(const Scale& op) override;
  void run(const Fill& op) override;
  void run(const Convert& op) override;
  void run(const EmbeddingForward& op) override;
  void run(const EmbeddingBackward& op) override;
  void run(const PositionEmbeddingForward& op) override;
  void run(const PositionEmbeddingBackward& op) override;
  void run(const CrossEntropyLocal& op) override;
  void run(const CrossEntropyCombine& op) override;
  void run(const CrossEntropyBackward& op) override;
  void run(const SumLoss& op) override;
  void run(const AdamStep& op) override;
  void run(const SgdStep& op) override;
  void run(const SquaredNorm& op) override;
  void run(const ClipCoefficient& op) override;
  void run(const RandomNormal& op) override;
  void run(const RouterForward& op) override;
  void run(const RouterBackward& op) override;
  void run(const DispatchPlan& op) override;
  void run(const DispatchForward& op) override;
  void run(const DispatchBackward& op) override;
  void run(const CombineForward& op) override;
  void run(const CombineBackward& op) override;
  void run(const ExpertCounts& op) override;
  void run(const ExchangeSizes& op) override;
  void run(const RegroupRows& op) override;
  void run(const ExpertLoad& op) override;
  void run(const RouterLosses& op) override;
  void run(const LimitChoices& op) override;
  void run(const BalanceExperts& op) override;
  void run(const LatentHeadsForward& op) override;
  void run(const LatentHeadsBackward& op) override;
  void run(const SigmoidGateForward& op) override;
  void run(const SigmoidGateBackward& op) override;
  void run(const AttentionMerge& op) override;
  void run(const AttentionSinksGrad& op) override;
  void run(const QuantizeInt8& op) override;
  void run(const DequantizeInt8& op) override;
  void run(const TopKSelect& op) override;
  void run(const TopKScatterAdd& op) override;
  void run(const SettleErrors& op) override;
  void run(const QuantizeFloat8& op) override;
  void run(const ScaledProduct& op) override;

 private:
  class Tuning;

  /// Keeps the operation for product_tuning().
  template <class Op>
  void note_product(const Op& op);

  /// CUDA's current device belongs to the host thread, not to us.
  void use_device() const;

  struct FreeMemory {
    void operator()(unsigned* memory) const noexcept;
  };

  Context context_;
  std::string device_name_;
  Stream own_stream_;
  std::unique_ptr<unsigned, FreeMemory> tickets_;
  LinearKernels linear_;
  AttentionKernels attention_;
  std::unique_ptr<Tuning> tuning_;
  std::unordered_map<void*, void*> allocations_;  // what we handed out -> what CUDA gave
};

}  // namespace meshplan::kernels::cuda
