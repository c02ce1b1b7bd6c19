#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "device/cpu_isa.hpp"
#include "kernels/cpu_backend.hpp"
#include "products/linear.hpp"

namespace meshplan::kernels {

class CpuBackend : public Backend {
 public:
  CpuBackend(int num_threads, CpuIsa isa)
      : num_threads_(num_threads), isa_(isa), table_(table_of(isa)), matmul_(num_threads, table_) {}

  std::string name() const override;
  int num_threads() const override { return num_threads_; }

  void* allocate(std::int64_t bytes) override;
  void free(void* memory) noexcept override;
  void copy(void* to, const void* from, std::int64_t bytes) override;
  void copy_to_device(void* to, const void* from_host, std::int64_t bytes) override;
  void copy_to_host(void* to_host, const void* from, std::int64_t bytes) override;
  void zero(void* memory, std::int64_t bytes) override;
  void synchronize() override {}

  using Backend::run;
  using Backend::scratch_bytes;
  std::int64_t scratch_bytes(const LinearForward& op) override;
  std::int64_t scratch_bytes(const LinearInputGrad& op) override;
  std::int64_t scratch_bytes(const LinearWeightGrad& op) override;
  std::int64_t scratch_bytes(const AttentionForward& op) override;
  std::int64_t scratch_bytes(const AttentionBackward& op) override;
  std::int64_t scratch_bytes(const SquaredNorm& op) override;
  std::int64_t scratch_bytes(const RouterForward& op) override;
  std::int64_t scratch_bytes(const RouterBackward& op) override;
  std::int64_t scratch_bytes(const LimitChoices& op) override;
  std::int64_t scratch_bytes(const ScaledProduct& op) override;
  void set_scratch(void* memory, std::int64_t bytes) override;

  void run(const LinearForward& op) override;
  void run(const LinearInputGrad& op) override;
  void run(const LinearWeightGrad& op) override;
  void run(const AttentionForward& op) override;
  void run(const AttentionBackward& op) override;
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
  void run(const AttentionMerge& op) override;
  void run(const AttentionSinksGrad& op) override;
  void run(const ExpertLoad& op) override;
  void run(const RouterLosses& op) override;
  void run(const LimitChoices& op) override;
  void run(const BalanceExperts& op) override;
  void run(const LatentHeadsForward& op) override;
  void run(const LatentHeadsBackward& op) override;
  void run(const SigmoidGateForward& op) override;
  void run(const SigmoidGateBackward& op) override;
  void run(const QuantizeInt8& op) override;
  void run(const DequantizeInt8& op) override;
  void run(const TopKSelect& op) override;
  void run(const TopKScatterAdd& op) override;
  void run(const SettleErrors& op) override;
  void run(const QuantizeFloat8& op) override;
  void run(const ScaledProduct& op) override;

 private:
  void require_scratch(std::int64_t bytes) const;
  /// One thread's part of the scratch when each takes `floats`.
  float* thread_scratch(int thread, std::int64_t floats) const;
  template <class Op>
  void for_rows(void (*kernel)(const Op&, Range), const Op& op, std::int64_t rows,
                std::int64_t row_size) const;
  template <class Body>
  void for_each_row(std::int64_t rows, std::int64_t row_size, const Body& body) const;
  template <class Op>
  void for_columns(void (*kernel)(const Op&, Range), const Op& op, std::int64_t columns) const;
  template <class Op>
  void for_elements(void (*kernel)(const Op&, Range), const Op& op) const;
  void add_residual(const LinearForward& op) const;
  template <class Op>
  void run_linear(const Op& op);
  template <class Op>
  void run_attention(void (*kernel)(const Op&, Range, float*), const Op& op,
                     std::int64_t thread_floats) const;

  int num_threads_;
  CpuIsa isa_;
  const KernelTable& table_;
  Matmul matmul_;
  std::span<std::byte> scratch_;
};

}  // namespace meshplan::kernels
