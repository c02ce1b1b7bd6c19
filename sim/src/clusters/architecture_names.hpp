// How files spell architectures of devices.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "core/enum_names.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan {

template <>
struct EnumNames<sim::Architecture> {
  static constexpr std::array<std::pair<sim::Architecture, std::string_view>, 8> value = {
      {{sim::Architecture::Other, "other"},
       {sim::Architecture::Ampere, "ampere"},
       {sim::Architecture::Ada, "ada"},
       {sim::Architecture::Hopper, "hopper"},
       {sim::Architecture::Blackwell, "blackwell"},
       {sim::Architecture::BlackwellRtx, "blackwell_rtx"},
       {sim::Architecture::Cdna3, "cdna3"},
       {sim::Architecture::Cdna4, "cdna4"}}};
};

}  // namespace meshplan
