// How plans, flags and tables spell the enums of a stack's settings (core/enum_names.hpp).
#pragma once

#include "core/enum_names.hpp"
#include "program/plan/stack.hpp"

namespace meshplan {

template <>
struct EnumNames<program::ExpertDispatch> {
  static constexpr std::array<std::pair<program::ExpertDispatch, std::string_view>, 4> value = {
      {{program::ExpertDispatch::AllToAll, "all_to_all"},
       {program::ExpertDispatch::AllGather, "all_gather"},
       {program::ExpertDispatch::DeepEp, "deepep"},
       {program::ExpertDispatch::HybridEp, "hybridep"}}};
};
template <>
struct EnumNames<program::CudaGraphs> {
  static constexpr std::array<std::pair<program::CudaGraphs, std::string_view>, 3> value = {
      {{program::CudaGraphs::None, "none"},
       {program::CudaGraphs::Partial, "partial"},
       {program::CudaGraphs::Full, "full"}}};
};
template <>
struct EnumNames<program::CompiledPart> {
  static constexpr std::array<std::pair<program::CompiledPart, std::string_view>, 3> value = {
      {{program::CompiledPart::None, "none"},
       {program::CompiledPart::Loss, "loss"},
       {program::CompiledPart::All, "all"}}};
};
template <>
struct EnumNames<program::AttentionBackend> {
  static constexpr std::array<std::pair<program::AttentionBackend, std::string_view>, 3> value = {
      {{program::AttentionBackend::Flash, "flash"},
       {program::AttentionBackend::Cudnn, "cudnn"},
       {program::AttentionBackend::Unfused, "unfused"}}};
};
template <>
struct EnumNames<program::LossKernel> {
  static constexpr std::array<std::pair<program::LossKernel, std::string_view>, 3> value = {
      {{program::LossKernel::Unfused, "unfused"},
       {program::LossKernel::Fused, "fused"},
       {program::LossKernel::Chunked, "chunked"}}};
};
template <>
struct EnumNames<program::Fp8Scaling> {
  static constexpr std::array<std::pair<program::Fp8Scaling, std::string_view>, 5> value = {
      {{program::Fp8Scaling::Delayed, "delayed"},
       {program::Fp8Scaling::Tensorwise, "tensorwise"},
       {program::Fp8Scaling::Blockwise, "blockwise"},
       {program::Fp8Scaling::MxFp8, "mxfp8"},
       {program::Fp8Scaling::NvFp4, "nvfp4"}}};
};
template <>
struct EnumNames<program::FrozenStorage> {
  static constexpr std::array<std::pair<program::FrozenStorage, std::string_view>, 4> value = {
      {{program::FrozenStorage::Bf16, "bf16"},
       {program::FrozenStorage::F32, "fp32"},
       {program::FrozenStorage::Int8, "int8"},
       {program::FrozenStorage::Nf4, "nf4"}}};
};
template <>
struct EnumNames<program::MuonTp> {
  static constexpr std::array<std::pair<program::MuonTp, std::string_view>, 3> value = {
      {{program::MuonTp::Duplicated, "duplicated"},
       {program::MuonTp::Blockwise, "blockwise"},
       {program::MuonTp::Distributed, "distributed"}}};
};
template <>
struct EnumNames<program::StateDType> {
  static constexpr std::array<std::pair<program::StateDType, std::string_view>, 4> value = {
      {{program::StateDType::F32, "fp32"},
       {program::StateDType::BF16, "bf16"},
       {program::StateDType::F16, "fp16"},
       {program::StateDType::Fp8, "fp8"}}};
};

}  // namespace meshplan
