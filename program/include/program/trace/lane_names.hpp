// How files spell lanes and phases.
#pragma once

#include "core/json_fields.hpp"
#include "program/program.hpp"

namespace meshplan {

template <>
struct EnumNames<program::Lane> {
  static constexpr std::array<std::pair<program::Lane, std::string_view>, program::kNumLanes>
      value = {{{program::Lane::Compute, "compute"},
                {program::Lane::Tp, "tp"},
                {program::Lane::PpSendForward, "pp_send_forward"},
                {program::Lane::PpRecvForward, "pp_recv_forward"},
                {program::Lane::PpSendBackward, "pp_send_backward"},
                {program::Lane::PpRecvBackward, "pp_recv_backward"},
                {program::Lane::PpReturnSendForward, "pp_return_send_forward"},
                {program::Lane::PpReturnRecvForward, "pp_return_recv_forward"},
                {program::Lane::PpReturnSendBackward, "pp_return_send_backward"},
                {program::Lane::PpReturnRecvBackward, "pp_return_recv_backward"},
                {program::Lane::Dp, "dp"},
                {program::Lane::Host, "host"},
                {program::Lane::Ep, "ep"},
                {program::Lane::Cp, "cp"},
                {program::Lane::FromHost, "from_host"},
                {program::Lane::ToHost, "to_host"},
                {program::Lane::EpWithin, "ep_within"}}};
};
template <>
struct EnumNames<program::Phase> {
  static constexpr std::array<std::pair<program::Phase, std::string_view>, 6> value = {
      {{program::Phase::Forward, "forward"},
       {program::Phase::Recompute, "recompute"},
       {program::Phase::InputGrad, "input_grad"},
       {program::Phase::WeightGrad, "weight_grad"},
       {program::Phase::Reduce, "reduce"},
       {program::Phase::Optimizer, "optimizer"}}};
};

}  // namespace meshplan
