#include "program/calibration/collective_table.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <utility>

#include "calibration/comm_names.hpp"
#include "core/error.hpp"

namespace meshplan::program {
namespace {

using enum CommOp;
using enum CommAlgorithm;

constexpr auto kOffered = std::to_array<std::pair<CommOp, CommAlgorithm>>({
    {AllReduce, OneShot},    {AllReduce, Direct},   {AllReduce, Doubling}, {AllReduce, Ring},
    {ReduceScatter, Direct}, {ReduceScatter, Ring}, {AllGather, Direct},   {AllGather, Ring},
    {AllGather, Library},    {AllToAll, Direct},    {AllToAll, Pairwise},  {AllToAll, Library},
    {AllToAllV, Direct},     {AllToAllV, Pairwise}, {Broadcast, Tree},     {Broadcast, Ring},
    {Broadcast, Library},    {Barrier, Doubling},   {Barrier, Library},    {PointToPoint, Direct},
});

template <NamedEnum E>
E parse(std::string_view kind, std::string_view given) {
  const std::optional<E> found = from_name<E>(given);
  if (!found) throw ConfigError(unknown_name_message(kind, given, all_names<E>()));
  return *found;
}

}  // namespace

std::string_view name_of(CommOp op) {
  return meshplan::name_of<CommOp>(op);
}
std::string_view name_of(CommAlgorithm algorithm) {
  return meshplan::name_of<CommAlgorithm>(algorithm);
}
CommOp parse_comm_op(std::string_view name) {
  return parse<CommOp>("operation", name);
}
CommAlgorithm parse_comm_algorithm(std::string_view name) {
  return parse<CommAlgorithm>("algorithm", name);
}

bool is_offered(CommOp op, CommAlgorithm algorithm) {
  return std::ranges::find(kOffered, std::pair(op, algorithm)) != kOffered.end();
}

CommAlgorithm fallback_algorithm(CommOp op) {
  switch (op) {
    case AllReduce:
    case ReduceScatter:
    case AllGather:
    case Broadcast:
      return Ring;
    case AllToAll:
    case AllToAllV:
      return Pairwise;
    case Barrier:
      return Doubling;
    case PointToPoint:
      return Direct;
  }
  throw InvariantError("unknown operation");
}

CommAlgorithm CollectiveTable::choose(CommOp op, int group_size, Bytes message) const {
  for (const CollectiveRule& rule : rules)
    if (rule.op == op && message <= rule.max_message && group_size >= rule.min_group_size &&
        group_size <= rule.max_group_size)
      return rule.algorithm;
  return fallback_algorithm(op);
}

CollectiveTable default_collective_table() {
  constexpr Bytes kKib{1024};
  constexpr Bytes kMessageMib{1024 * 1024};
  constexpr Bytes kAnySize{std::numeric_limits<std::int64_t>::max()};
  CollectiveTable table;
  // Where ranks outnumber cores every step costs a turn of the scheduler, so few steps win. Beyond
  // the eight ranks that were measured, n-1 messages a step are not risked.
  table.rules = {
      {AllReduce, OneShot, 64 * kKib, 2, 4},   {AllReduce, OneShot, 4 * kKib, 5, 8},
      {AllReduce, Direct, kAnySize, 2, 8},     {AllReduce, Doubling, 16 * kKib},
      {ReduceScatter, Direct, kAnySize, 2, 8}, {AllGather, Direct, kAnySize, 2, 8},
      {AllToAll, Direct, kAnySize, 2, 8},      {AllToAllV, Direct, kAnySize, 2, 8},
      {Broadcast, Tree, kAnySize, 2, 2},       {Broadcast, Tree, 4 * kMessageMib},
  };
  return table;
}

void validate(const CollectiveTable& table) {
  if (table.piece.value < 1)
    throw ConfigError(
        fmt::format("collective table: piece = {} bytes; it must be positive", table.piece.value));
  for (std::size_t i = 0; i < table.rules.size(); ++i) {
    const CollectiveRule& rule = table.rules[i];
    if (!is_offered(rule.op, rule.algorithm)) {
      std::string offered;
      for (const auto& [op, algorithm] : kOffered)
        if (op == rule.op) offered += fmt::format(" {}", name_of(algorithm));
      throw ConfigError(fmt::format(
          "collective table: rules[{}]: {} is not offered for {}{}; choose one of:{}", i,
          name_of(rule.algorithm), name_of(rule.op),
          rule.algorithm == Library ? " (its order of reduction is not fixed)" : "", offered));
    }
    if (rule.max_message.value < 0 || rule.min_group_size < 1 ||
        rule.max_group_size < rule.min_group_size)
      throw ConfigError(fmt::format(
          "collective table: rules[{}]: up to {} bytes in groups of {} to {} ranks matches nothing",
          i, rule.max_message.value, rule.min_group_size, rule.max_group_size));
  }
}

}  // namespace meshplan::program
