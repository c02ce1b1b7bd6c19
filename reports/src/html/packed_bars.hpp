// Bars of a timeline, packed: whole nanoseconds as differences in few bytes, names in a table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/trace/trace.hpp"

namespace meshplan::reports {

/// What bars have in common: an operation with its work.
struct BarOperation {
  std::string name;
  std::string phase;
  int category = 0;  // of sim::all_categories()
  std::string group;
  int peer = -1;  // world rank; -1 = none
  std::int64_t bytes = 0;
  double flops = 0;
  auto operator<=>(const BarOperation&) const = default;
};

/// A lane of a rank.
struct BarRow {
  int rank = 0;
  int stage = 0;
  std::string lane;
  int bars = 0;
  /// Base64 of numbers in LEB128, for each bar in the order of their starts: its operation's index,
  /// micro-batch and layer (-1 = none; zigzag, against the bar before), the start against the one
  /// before, and the duration, both in nanoseconds.
  std::string packed;
};

struct PackedBars {
  std::vector<BarOperation> operations;
  std::vector<BarRow> rows;  // by stage, rank and lane
};

PackedBars pack_bars(const program::Trace& trace);

std::string base64(std::span<const std::uint8_t> bytes);

}  // namespace meshplan::reports
