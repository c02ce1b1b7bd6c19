#include "library/cudnn_graph.hpp"

#include <fmt/format.h>

namespace meshplan::kernels::cuda {

namespace {

constexpr std::int64_t kAlignment = 16;  // bytes, of every tensor in memory

}  // namespace

std::string version_refusal(std::size_t version) {
  constexpr std::size_t kOldest =
      91900;  // whose engines tests/kernels/cuda/cudnn_plans_test.cpp saw
  if (version >= kOldest) return "";
  return fmt::format("cuDNN {}.{}.{} was loaded, 9.19.0 or later is needed", version / 10000,
                     version / 100 % 100, version % 100);
}

Dims dense_strides(const Dims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

cudnnBackendDescriptor_t CudnnGraph::keep(CudnnDescriptor descriptor) {
  descriptors_.push_back(std::move(descriptor));
  return descriptors_.back().get();
}

void CudnnGraph::add_operation(CudnnDescriptor operation) {
  finalize(operation);
  operations_.push_back(keep(std::move(operation)));
}

CudnnGraph::Tensor CudnnGraph::tensor(const Dims& dims, const Dims& strides, cudnnDataType_t type,
                                      Options options) {
  Tensor result{next_id_++, dims, strides, type, nullptr};
  CudnnDescriptor descriptor = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set(descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &result.id);
  set(descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type);
  set(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims.data(), dims.size());
  set(descriptor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), strides.size());
  set(descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &kAlignment);
  set(descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &options.is_virtual);
  set(descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, &options.by_value);
  finalize(descriptor);
  result.descriptor = keep(std::move(descriptor));
  return result;
}

CudnnGraph::Tensor CudnnGraph::memory(const Dims& dims, const Dims& strides, cudnnDataType_t type) {
  return tensor(dims, strides, type, {});
}
CudnnGraph::Tensor CudnnGraph::value(const Dims& dims, cudnnDataType_t type) {
  return tensor(dims, dense_strides(dims), type, {.is_virtual = true});
}
CudnnGraph::Tensor CudnnGraph::constant(float value) {
  const Tensor result = tensor({1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, {.by_value = true});
  constant_ids_.push_back(result.id);
  numbers_.push_back({.real = value});
  return result;
}
CudnnGraph::Tensor CudnnGraph::constant(std::int32_t value) {
  const Tensor result = tensor({1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_INT32, {.by_value = true});
  constant_ids_.push_back(result.id);
  numbers_.push_back({.integer = value});
  return result;
}

std::vector<std::pair<std::int64_t, void*>> CudnnGraph::constants() {
  std::vector<std::pair<std::int64_t, void*>> result;
  for (std::size_t i = 0; i < constant_ids_.size(); ++i)
    result.emplace_back(constant_ids_[i], &numbers_[i]);
  return result;
}

void CudnnGraph::matmul_into(const Tensor& a, const Tensor& b, const Tensor& c) {
  constexpr cudnnDataType_t kCompute = CUDNN_DATA_FLOAT;
  CudnnDescriptor product = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  set(product, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &kCompute);
  finalize(product);
  CudnnDescriptor operation = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor);
  set(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor);
  set(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.descriptor);
  set(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, keep(std::move(product)));
  add_operation(std::move(operation));
}
CudnnGraph::Tensor CudnnGraph::matmul(const Tensor& a, const Tensor& b, cudnnDataType_t type) {
  const Tensor c = value({a.dims[0], a.dims[1], a.dims[2], b.dims[3]}, type);
  matmul_into(a, b, c);
  return c;
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t compute, std::int64_t axis,
                           const Tensor& x, const Tensor* b, const Tensor* mask, const Tensor& y) {
  CudnnDescriptor description = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(description, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode);
  set(description, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &compute);
  if (mode == CUDNN_POINTWISE_GEN_INDEX)
    set(description, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, &axis);
  finalize(description);
  CudnnDescriptor operation = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(description)));
  set(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.descriptor);
  if (b != nullptr) set(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->descriptor);
  if (mask != nullptr) set(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, mask->descriptor);
  set(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.descriptor);
  add_operation(std::move(operation));
}

CudnnGraph::Tensor CudnnGraph::unary(cudnnPointwiseMode_t mode, const Tensor& x) {
  const Tensor y = value(x.dims, CUDNN_DATA_FLOAT);
  pointwise(mode, CUDNN_DATA_FLOAT, 0, x, nullptr, nullptr, y);
  return y;
}
CudnnGraph::Tensor CudnnGraph::binary(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& b,
                                      cudnnDataType_t type) {
  const Tensor y = value(x.dims, type);
  pointwise(mode, type, 0, x, &b, nullptr, y);
  return y;
}
CudnnGraph::Tensor CudnnGraph::rounded_binary(cudnnPointwiseMode_t mode, const Tensor& x,
                                              const Tensor& b, cudnnDataType_t type) {
  const Tensor y = value(x.dims, type);
  pointwise(mode, CUDNN_DATA_FLOAT, 0, x, &b, nullptr, y);
  return y;
}
void CudnnGraph::binary_into(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& b,
                             const Tensor& y) {
  pointwise(mode, CUDNN_DATA_FLOAT, 0, x, &b, nullptr, y);
}
void CudnnGraph::copy_into(const Tensor& x, const Tensor& y) {
  pointwise(CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, 0, x, nullptr, nullptr, y);
}
CudnnGraph::Tensor CudnnGraph::index(const Tensor& like, std::int64_t axis) {
  const Tensor y = value(like.dims, CUDNN_DATA_INT32);
  pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis, like, nullptr, nullptr, y);
  return y;
}
CudnnGraph::Tensor CudnnGraph::select(const Tensor& x, const Tensor& b, const Tensor& mask) {
  const Tensor y = value(x.dims, CUDNN_DATA_FLOAT);
  pointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0, x, &b, &mask, y);
  return y;
}

void CudnnGraph::reduce_into(cudnnReduceTensorOp_t operation, const Tensor& x, const Tensor& y) {
  constexpr cudnnDataType_t kCompute = CUDNN_DATA_FLOAT;
  CudnnDescriptor description = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  set(description, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &operation);
  set(description, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &kCompute);
  finalize(description);
  CudnnDescriptor node = make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  set(node, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor);
  set(node, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.descriptor);
  set(node, CUDNN_ATTR_OPERATION_REDUCTION_DESC, keep(std::move(description)));
  add_operation(std::move(node));
}
CudnnGraph::Tensor CudnnGraph::reduce(cudnnReduceTensorOp_t operation, const Tensor& x,
                                      const Dims& dims) {
  const Tensor y = value(dims, CUDNN_DATA_FLOAT);
  reduce_into(operation, x, y);
  return y;
}

CudnnGraph::Tensor CudnnGraph::transpose(const Tensor& x, cudnnDataType_t type) {
  const auto& [b, h, rows, columns] = x.dims;
  const Tensor y =
      tensor({b, h, columns, rows}, {x.strides[0], x.strides[1], x.strides[3], x.strides[2]}, type,
             {.is_virtual = true});
  CudnnDescriptor node = make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  set(node, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.descriptor);
  set(node, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.descriptor);
  add_operation(std::move(node));
  return y;
}

}  // namespace meshplan::kernels::cuda
