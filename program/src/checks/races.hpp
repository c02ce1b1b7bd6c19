// Do operations that use the same memory run one after the other?
#pragma once

#include <optional>
#include <string>

#include "program/program.hpp"

namespace meshplan::program {

/// Proves that any two instances that touch the same bytes, of which one writes, are ordered by
/// lanes and waits: no place or slot is filled anew while another lane still reads it, no copy or
/// message begins before what it takes is there. Of programs whose layers are not merged.
/// @returns the first two of which this does not hold, in words
std::optional<std::string> race_error(const Program& program);

}  // namespace meshplan::program
