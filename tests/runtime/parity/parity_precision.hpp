// How far 16-bit runs may lie apart.
#pragma once

#include "program/certificate/tolerance.hpp"
#include "runtime/parity/parity_fixture.hpp"

namespace meshplan::test {

using program::float8_tolerance;
using program::half_tolerance;
using program::unit_roundoff;

/// Below this part of the global norm a gradient is mostly what cancellation left of it.
constexpr double kSmallInHalf = 1e-2;

}  // namespace meshplan::test
