// Operation graphs of cuDNN's backend API (cudnn_graph.h), as far as attention needs them: 4-D
// tensors, matrix products, pointwise operations, reductions, reshapes. Building one needs no GPU,
// nor does planning it for a described device.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "library/cudnn_descriptor.hpp"

#if CUDNN_VERSION < 91900
#error "meshplan needs the headers of cuDNN 9.19.0 or later (or -DMESHPLAN_CUDA=OFF)"
#endif

namespace meshplan::kernels::cuda {

/// Empty, or why the cuDNN that was loaded is not to be trusted with our graphs.
/// @param version  as of cudnnGetVersion(): 10000 major + 100 minor + patch
std::string version_refusal(std::size_t version);

/// (sequences, heads, rows, columns)
using Dims = std::array<std::int64_t, 4>;

/// Row-major and dense.
Dims dense_strides(const Dims& dims);

class CudnnGraph {
 public:
  /// A value of the graph.
  struct Tensor {
    std::int64_t id = 0;
    Dims dims{};
    Dims strides{};
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t descriptor = nullptr;
  };

  /// In device memory, aligned to 16 bytes; given at each run under its id.
  Tensor memory(const Dims& dims, const Dims& strides, cudnnDataType_t type);
  /// A number that is part of the graph.
  Tensor constant(float value);
  Tensor constant(std::int32_t value);

  /// c = a b over the last two dims; heads of `b` may be fewer than those of `a`.
  Tensor matmul(const Tensor& a, const Tensor& b, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  void matmul_into(const Tensor& a, const Tensor& b, const Tensor& c);
  Tensor unary(cudnnPointwiseMode_t mode, const Tensor& x);
  /// `b` broadcasts. Computes in fp32, int32 or, for comparisons, booleans: the type of the result.
  Tensor binary(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& b,
                cudnnDataType_t type = CUDNN_DATA_FLOAT);
  /// Computed in fp32, kept in `type`.
  Tensor rounded_binary(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& b,
                        cudnnDataType_t type);
  void binary_into(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& b, const Tensor& y);
  /// The same numbers in the type of `y`.
  void copy_into(const Tensor& x, const Tensor& y);
  /// Place of each element along a dim, int32.
  Tensor index(const Tensor& like, std::int64_t axis);
  /// x where `mask`, else b.
  Tensor select(const Tensor& x, const Tensor& b, const Tensor& mask);
  /// Over the dims where the result has 1 (or fewer heads).
  Tensor reduce(cudnnReduceTensorOp_t operation, const Tensor& x, const Dims& dims);
  void reduce_into(cudnnReduceTensorOp_t operation, const Tensor& x, const Tensor& y);
  /// The same elements with rows and columns exchanged.
  Tensor transpose(const Tensor& x, cudnnDataType_t type);

  const std::vector<cudnnBackendDescriptor_t>& operations() const { return operations_; }
  /// (id, host address) of the constants.
  std::vector<std::pair<std::int64_t, void*>> constants();

 private:
  struct Options {
    bool is_virtual = false;
    bool by_value = false;
  };
  union Number {
    float real;
    std::int32_t integer;
  };
  Tensor tensor(const Dims& dims, const Dims& strides, cudnnDataType_t type, Options options);
  Tensor value(const Dims& dims, cudnnDataType_t type);
  cudnnBackendDescriptor_t keep(CudnnDescriptor descriptor);
  void add_operation(CudnnDescriptor operation);
  void pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t compute, std::int64_t axis,
                 const Tensor& x, const Tensor* b, const Tensor* mask, const Tensor& y);

  std::vector<CudnnDescriptor> descriptors_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::vector<std::int64_t> constant_ids_;
  std::deque<Number> numbers_;  // cuDNN reads them through pointers
  std::int64_t next_id_ = 1;
};

}  // namespace meshplan::kernels::cuda
