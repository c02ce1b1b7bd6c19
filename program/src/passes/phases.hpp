#pragma once

#include "program/program.hpp"

namespace meshplan::program {

/// A part of the forward pass, or the same once more.
constexpr bool is_forward(Phase phase) {
  return phase == Phase::Forward || phase == Phase::Recompute;
}

}  // namespace meshplan::program
