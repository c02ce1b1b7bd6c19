// Which bytes of device memory a kernel call reads and writes, from its own operands. Written from
// the operators' documentation, not from the program's footprints: it checks them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.hpp"

namespace meshplan::test {

struct ByteRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

struct Touched {
  std::vector<ByteRange> reads;
  std::vector<ByteRange> writes;

  Touched& read(const void* data, std::int64_t count, DType dtype) {
    return add(reads, data, count * size_of(dtype));
  }
  Touched& write(const void* data, std::int64_t count, DType dtype) {
    return add(writes, data, count * size_of(dtype));
  }
  /// Rows of `columns` elements that begin `stride` apart.
  Touched& read_rows(const void* data, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                     DType dtype) {
    return read(data, rows == 0 ? 0 : (rows - 1) * stride + columns, dtype);
  }
  Touched& write_rows(const void* data, std::int64_t rows, std::int64_t columns,
                      std::int64_t stride, DType dtype) {
    return write(data, rows == 0 ? 0 : (rows - 1) * stride + columns, dtype);
  }
  /// Written; read as well where it is added to.
  Touched& update(const void* data, std::int64_t count, DType dtype, bool accumulate) {
    if (accumulate) read(data, count, dtype);
    return write(data, count, dtype);
  }

 private:
  Touched& add(std::vector<ByteRange>& ranges, const void* data, std::int64_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    if (data != nullptr && bytes > 0)
      ranges.push_back({begin, begin + static_cast<std::uintptr_t>(bytes)});
    return *this;
  }
};

Touched touched(const kernels::LinearForward& op);
Touched touched(const kernels::LinearInputGrad& op);
Touched touched(const kernels::LinearWeightGrad& op);
Touched touched(const kernels::AttentionForward& op);
Touched touched(const kernels::AttentionBackward& op);
Touched touched(const kernels::AttentionSinksGrad& op);
Touched touched(const kernels::AttentionMerge& op);
Touched touched(const kernels::LatentHeadsForward& op);
Touched touched(const kernels::LatentHeadsBackward& op);
Touched touched(const kernels::SsdForward& op);
Touched touched(const kernels::SsdBackward& op);
Touched touched(const kernels::SelectKeysForward& op);
Touched touched(const kernels::SparseAttentionForward& op);
Touched touched(const kernels::SparseAttentionBackward& op);
Touched touched(const kernels::IndexerLossForward& op);
Touched touched(const kernels::IndexerLossBackward& op);
Touched touched(const kernels::ShortConvolutionForward& op);
Touched touched(const kernels::ShortConvolutionBackward& op);
Touched touched(const kernels::GatedRmsNormForward& op);
Touched touched(const kernels::GatedRmsNormBackward& op);
Touched touched(const kernels::GatedDeltaForward& op);
Touched touched(const kernels::GatedDeltaBackward& op);
Touched touched(const kernels::RmsNormForward& op);
Touched touched(const kernels::RmsNormBackward& op);
Touched touched(const kernels::LayerNormForward& op);
Touched touched(const kernels::LayerNormBackward& op);
Touched touched(const kernels::HeadRmsNormForward& op);
Touched touched(const kernels::HeadRmsNormBackward& op);
Touched touched(const kernels::Rope& op);
Touched touched(const kernels::ActivationForward& op);
Touched touched(const kernels::ActivationBackward& op);
Touched touched(const kernels::GatedActivationForward& op);
Touched touched(const kernels::GatedActivationBackward& op);
Touched touched(const kernels::SigmoidGateForward& op);
Touched touched(const kernels::SigmoidGateBackward& op);
Touched touched(const kernels::Add& op);
Touched touched(const kernels::Accumulate& op);
Touched touched(const kernels::Scale& op);
Touched touched(const kernels::Fill& op);
Touched touched(const kernels::Convert& op);
Touched touched(const kernels::CopyRows& op);
Touched touched(const kernels::EmbeddingForward& op);
Touched touched(const kernels::EmbeddingBackward& op);
Touched touched(const kernels::PositionEmbeddingForward& op);
Touched touched(const kernels::PositionEmbeddingBackward& op);
Touched touched(const kernels::CrossEntropyLocal& op);
Touched touched(const kernels::CrossEntropyCombine& op);
Touched touched(const kernels::CrossEntropyBackward& op);
Touched touched(const kernels::SumLoss& op);
Touched touched(const kernels::AdamStep& op);
Touched touched(const kernels::QuantizeInt8& op);
Touched touched(const kernels::DequantizeInt8& op);
Touched touched(const kernels::TopKSelect& op);
Touched touched(const kernels::TopKScatterAdd& op);
Touched touched(const kernels::SettleErrors& op);
Touched touched(const kernels::QuantizeFloat8& op);
Touched touched(const kernels::ScaledProduct& op);
Touched touched(const kernels::SgdStep& op);
Touched touched(const kernels::SquaredNorm& op);
Touched touched(const kernels::ClipCoefficient& op);
Touched touched(const kernels::RandomNormal& op);
// Experts touch all rows of the buffers, however many the router fills.
Touched touched(const kernels::RouterForward& op);
Touched touched(const kernels::RouterBackward& op);
Touched touched(const kernels::ExpertLoad& op);
Touched touched(const kernels::RouterLosses& op);
Touched touched(const kernels::BalanceExperts& op);
Touched touched(const kernels::LimitChoices& op);
Touched touched(const kernels::DispatchPlan& op);
Touched touched(const kernels::DispatchForward& op);
Touched touched(const kernels::DispatchBackward& op);
Touched touched(const kernels::CombineForward& op);
Touched touched(const kernels::CombineBackward& op);
Touched touched(const kernels::ExpertCounts& op);
Touched touched(const kernels::ExchangeSizes& op);
Touched touched(const kernels::RegroupRows& op);
Touched touched(const kernels::NodeChoices& op);
Touched touched(const kernels::NodeRoutingForward& op);
Touched touched(const kernels::NodeRoutingBackward& op);
Touched touched(const kernels::PackFloat8Rows& op);
Touched touched(const kernels::UnpackFloat8Rows& op);
Touched touched(const kernels::GroupedLinearForward& op);
Touched touched(const kernels::GroupedLinearInputGrad& op);
Touched touched(const kernels::GroupedLinearWeightGrad& op);

}  // namespace meshplan::test
