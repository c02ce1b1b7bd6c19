// How plans and flags spell the enums of a plan (core/enum_names.hpp).
#pragma once

#include "core/enum_names.hpp"
#include "program/plan/plan.hpp"

namespace meshplan {

template <>
struct EnumNames<program::Precision> {
  static constexpr std::array<std::pair<program::Precision, std::string_view>, 4> value = {
      {{program::Precision::F32, "fp32"},
       {program::Precision::BF16, "bf16"},
       {program::Precision::F16, "fp16"},
       {program::Precision::Fp8, "fp8"}}};
};
template <>
struct EnumNames<program::OptimizerKind> {
  static constexpr std::array<std::pair<program::OptimizerKind, std::string_view>, 4> value = {
      {{program::OptimizerKind::AdamW, "adamw"},
       {program::OptimizerKind::Adam, "adam"},
       {program::OptimizerKind::Sgd, "sgd"},
       {program::OptimizerKind::Muon, "muon"}}};
};
template <>
struct EnumNames<program::LearningRateSchedule> {
  static constexpr std::array<std::pair<program::LearningRateSchedule, std::string_view>, 2> value =
      {{{program::LearningRateSchedule::Constant, "constant"},
        {program::LearningRateSchedule::Cosine, "cosine"}}};
};
template <>
struct EnumNames<program::ScheduleKind> {
  static constexpr std::array<std::pair<program::ScheduleKind, std::string_view>, 8> value = {
      {{program::ScheduleKind::GPipe, "gpipe"},
       {program::ScheduleKind::OneFOneB, "1f1b"},
       {program::ScheduleKind::Interleaved, "interleaved"},
       {program::ScheduleKind::OverlappedOneFOneB, "1f1b-overlapped"},
       {program::ScheduleKind::ZbH1, "zb-h1"},
       {program::ScheduleKind::ZbV, "zb-v"},
       {program::ScheduleKind::DualPipeV, "dualpipe-v"},
       {program::ScheduleKind::Custom, "custom"}}};
};
template <>
struct EnumNames<program::ContextMethod> {
  static constexpr std::array<std::pair<program::ContextMethod, std::string_view>, 3> value = {
      {{program::ContextMethod::AllGather, "all_gather"},
       {program::ContextMethod::Ring, "ring"},
       {program::ContextMethod::Ulysses, "ulysses"}}};
};
template <>
struct EnumNames<program::CompressionKind> {
  static constexpr std::array<std::pair<program::CompressionKind, std::string_view>, 3> value = {
      {{program::CompressionKind::None, "none"},
       {program::CompressionKind::Int8, "int8"},
       {program::CompressionKind::TopK, "top-k"}}};
};
template <>
struct EnumNames<program::AttentionKernels> {
  static constexpr std::array<std::pair<program::AttentionKernels, std::string_view>, 3> value = {
      {{program::AttentionKernels::Auto, "auto"},
       {program::AttentionKernels::Own, "own"},
       {program::AttentionKernels::Cudnn, "cudnn"}}};
};
template <>
struct EnumNames<program::RecomputeKind> {
  static constexpr std::array<std::pair<program::RecomputeKind, std::string_view>, 3> value = {
      {{program::RecomputeKind::None, "none"},
       {program::RecomputeKind::Selective, "selective"},
       {program::RecomputeKind::Full, "full"}}};
};

}  // namespace meshplan
