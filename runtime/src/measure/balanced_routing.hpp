// What a router would decide if every expert got its share: integer operands to time operators
// with.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace meshplan::runtime {

/// Contents of the int32 value `name` of a mixture-of-experts block (program/src/shard_experts.cpp
/// names them), such that every index in it is valid and experts and ranks share rows evenly.
/// @param count  elements of the value
/// @param rows  choices of a rank's tokens, tokens * top_k
/// @throws InvariantError for a value whose meaning is not known: its operator would read anywhere
std::vector<std::int32_t> balanced_routing(std::string_view name, std::int64_t count,
                                           std::int64_t rows, int experts);

}  // namespace meshplan::runtime
