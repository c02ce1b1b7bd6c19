#include "train/verify.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <optional>
#include <xxhash.h>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/index.hpp"
#include "program/memory/address.hpp"
#include "program/shard_layout.hpp"
#include "runtime/job/run_rank.hpp"

namespace meshplan::runtime {
namespace {

using program::MatrixPiece;
using program::Region;

constexpr std::uint64_t kNoBox = 0;

std::uint64_t identity_of(const std::string& name, const MatrixPiece& piece) {
  const std::array<std::int64_t, 4> box = {piece.global_row, piece.global_column, piece.rows,
                                           piece.columns};
  const std::uint64_t hash =
      XXH3_64bits_withSeed(box.data(), sizeof box, XXH3_64bits(name.data(), name.size()));
  return hash == kNoBox ? 1 : hash;
}

const char* what_is_in(Region region) {
  if (region == Region::Gradients) return "reduced gradient";
  if (region == Region::Moment1) return "first moment";
  if (region == Region::Moment2) return "second moment";
  return region == Region::Weights ? "weight" : "fp32 master weight";
}

/// "rank 2", "ranks 0, 1 and 3", "ranks 0, 1, 2, 3 and 12 more".
std::string name_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t kMostNamed = 8;
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  if (ranks.size() > kMostNamed)
    return fmt::format("ranks {} and {} more",
                       fmt::join(ranks.begin(), ranks.begin() + kMostNamed, ", "),
                       ranks.size() - kMostNamed);
  return fmt::format("ranks {} and {}", fmt::join(ranks.begin(), ranks.end() - 1, ", "),
                     ranks.back());
}

}  // namespace

ReplicaVerifier::ReplicaVerifier(Trainer& trainer, Communicator& world)
    : trainer_(trainer), world_(world) {
  const auto& parameters = trainer.program().parameters;
  if (trainer.program().plan.zero_stage > 0)
    add_owned_boxes();
  else
    for (std::size_t i = 0; i < parameters.size(); ++i)
      for (const MatrixPiece& piece :
           program::matrix_pieces(parameters[i], trainer.groups().coordinates()))
        boxes_.push_back({i, piece, identity_of(parameters[i].name, piece), {}});
  auto most = static_cast<std::int64_t>(boxes_.size());
  const MutableBuffer buffer{&most, 1, DType::I64};
  world.all_reduce(buffer, buffer, ReduceOp::Max).wait();
  most_boxes_ = static_cast<std::size_t>(most);
}

/// After a step only the owner's gradients are reduced and weights updated. Ranks that own the same
/// must agree: replicas in hybrid sharding, tp ranks of what they hold alike.
void ReplicaVerifier::add_owned_boxes() {
  const program::Program& program = trainer_.program();
  const auto runs = program::owned_runs(program, Region::Weights, trainer_.shard_place());
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const program::Parameter& parameter = program.parameters[i];
    const program::HeldRun owned = program::clipped(
        runs[at(parameter.bucket)], {parameter.offset, parameter.offset + parameter.elements()});
    if (owned.range.size() == 0) continue;
    const auto pieces = program::matrix_pieces(parameter, trainer_.groups().coordinates());
    if (pieces.empty()) continue;
    const std::array<std::int64_t, 2> part = {owned.range.begin - parameter.offset,
                                              owned.range.end - parameter.offset};
    std::uint64_t identity = XXH3_64bits(part.data(), sizeof part);
    for (const MatrixPiece& piece : pieces) {
      const std::uint64_t one = identity_of(parameter.name, piece);
      identity = XXH3_64bits_withSeed(&one, sizeof one, identity);
    }
    boxes_.push_back({i, pieces.front(), identity == kNoBox ? 1 : identity, owned.range});
  }
}

/// Hashes what the rank owns of the box.
std::uint64_t ReplicaVerifier::hash_of(const Box& box, Region region) const {
  const program::Program& program = trainer_.program();
  const program::Parameter& parameter = program.parameters[box.parameter];
  const std::int64_t element = program::element_bytes(program, region);
  const std::int64_t offset =
      program::element_offset(program.plan, region, program.buckets[at(parameter.bucket)],
                              box.owned.begin, trainer_.shard_place());
  std::vector<std::byte> values(static_cast<std::size_t>(box.owned.size() * element));
  trainer_.device().backend().copy_to_host(
      values.data(), trainer_.arena().region(region) + offset * element, std::ssize(values));
  return XXH3_64bits(values.data(), values.size());
}

/// One entry per box, in the order of boxes_, filled up to most_boxes_.
std::vector<ReplicaVerifier::Entry> ReplicaVerifier::entries(Region region) {
  const program::Program& program = trainer_.program();
  const std::int64_t element = program::element_bytes(program, region);
  std::vector<Entry> list;
  std::vector<std::byte> values;
  std::optional<std::size_t> loaded;  // parameter in `values`
  for (const Box& box : boxes_) {
    const program::Parameter& parameter = program.parameters[box.parameter];
    if (parameter.frozen && region != Region::Weights) continue;
    if (box.owned.size() > 0) {
      list.push_back({box.identity, hash_of(box, region)});
      continue;
    }
    if (loaded != box.parameter) {
      values.resize(static_cast<std::size_t>(parameter.elements() * element));
      trainer_.device().backend().copy_to_host(
          values.data(), trainer_.arena().region(region) + parameter.offset * element,
          std::ssize(values));
      loaded = box.parameter;
    }
    std::uint64_t hash = 0;
    for (std::int64_t row = 0; row < box.piece.rows; ++row)
      hash = XXH3_64bits_withSeed(
          values.data() + (box.piece.local_offset + row * box.piece.local_stride) * element,
          static_cast<std::size_t>(box.piece.columns * element), hash);
    list.push_back({box.identity, hash});
  }
  list.resize(most_boxes_);
  return list;
}

void ReplicaVerifier::compare(Region region, const std::string& when) {
  static_assert(sizeof(Entry) == 2 * sizeof(std::int64_t));
  std::vector<Entry> own = entries(region);
  std::vector<Entry> all(most_boxes_ * static_cast<std::size_t>(world_.size()));
  world_
      .all_gather({own.data(), 2 * std::ssize(own), DType::I64},
                  {all.data(), 2 * std::ssize(all), DType::I64})
      .wait();
  std::map<std::uint64_t, std::uint64_t> first;  // hash by identity
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].identity != kNoBox &&
        first.try_emplace(all[i].identity, all[i].hash).first->second != all[i].hash)
      report(region, when, all, i);
}

/// All ranks know the same hashes; only the holder of the box knows its name.
void ReplicaVerifier::report(Region region, const std::string& when, const std::vector<Entry>& all,
                             std::size_t different) {
  const std::uint64_t identity = all[different].identity;
  std::map<std::uint64_t, std::vector<int>> ranks_by_hash;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].identity == identity)
      ranks_by_hash[all[i].hash].push_back(static_cast<int>(i / most_boxes_));
  const auto most = std::ranges::max_element(ranks_by_hash, [](const auto& a, const auto& b) {
    return std::pair(a.second.size(), b.second.front()) <
           std::pair(b.second.size(), a.second.front());
  });
  auto odd = ranks_by_hash.begin();
  if (odd == most) ++odd;

  std::array<char, 512> text{};
  const int holder = static_cast<int>(different / most_boxes_);
  if (world_.rank() == holder) {
    const Box& box = boxes_[different % most_boxes_];
    const MatrixPiece& piece = box.piece;
    fmt::format_to_n(text.data(), text.size() - 1, "{} (rows {} to {}, columns {} to {})",
                     trainer_.program().parameters[box.parameter].name, piece.global_row,
                     piece.global_row + piece.rows - 1, piece.global_column,
                     piece.global_column + piece.columns - 1);
  }
  world_.broadcast({text.data(), std::ssize(text), DType::U8}, holder).wait();
  throw SharedError(
      fmt::format("{}: the {} of {} differs between ranks that must agree: {} on {}, but {} on {}",
                  when, what_is_in(region), text.data(), hex(odd->first), name_ranks(odd->second),
                  hex(most->first), name_ranks(most->second)));
}

void ReplicaVerifier::verify_state(const std::string& when) {
  trainer_.device().synchronize();
  // What the plan has: a stage whose parameters are all frozen compares, too, with nothing.
  const program::Plan& plan = trainer_.program().plan;
  compare(Region::Weights, when);
  if (plan.workload.precision != DType::F32) compare(Region::MasterWeights, when);
  compare(Region::Moment1, when);
  if (plan.workload.optimizer.kind != program::OptimizerKind::Sgd) compare(Region::Moment2, when);
}

void ReplicaVerifier::verify(const std::string& when) {
  trainer_.device().synchronize();
  compare(Region::Gradients, when);
  compare(Region::Weights, when);
  if (trainer_.program().plan.workload.precision != DType::F32)
    compare(Region::MasterWeights, when);
}

}  // namespace meshplan::runtime
