#include "execute/expert_room.hpp"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <optional>

#include "core/error.hpp"
#include "core/index.hpp"
#include "core/units.hpp"
#include "program/cost/cost.hpp"

namespace meshplan::runtime {

using program::Lane;
using program::OperationInstance;
using program::ValueId;

namespace {

/// Eight sizes for each power of two, so that a block serves the next value that is about as large.
std::int64_t block_bytes(std::int64_t bytes) {
  constexpr std::int64_t kLeast = 32 << 10;
  const auto power = static_cast<std::int64_t>(
      std::bit_floor(static_cast<std::uint64_t>(std::max(bytes, kLeast))));
  const std::int64_t step = power / 8;
  return (std::max(bytes, kLeast) + step - 1) / step * step;
}

}  // namespace

ExpertRoom::ExpertRoom(const program::Program& program, Device& device, const IssueOrder& order)
    : program_(program),
      device_(device),
      queues_(device.rules().queues),
      first_mark_(order.num_marks),
      routed_(program.instances.size()),
      rows_(program.layers.size() * at(program.plan.num_microbatches())) {
  for (std::size_t number = 0; number < order.issues.size(); ++number)
    note_uses(order.issues[number], number);
  for (const program::CaptureRegion& region : order.regions)
    for (int i = region.begin; i < region.end; ++i)
      require_invariant(!routed_[at(i)], "a graph is recorded with rows that may lie elsewhere");
}

ExpertRoom::~ExpertRoom() {
  for (const Block& block : blocks_) device_.backend().free(block.memory);
}

void ExpertRoom::note_uses(const Issue& issue, std::size_t number) {
  if (issue.kind != Issue::Kind::Run && issue.kind != Issue::Kind::Await) return;
  const OperationInstance& instance = program_.instances[at(*issue.instance)];
  if (!instance.layer) return;
  const program::Operation& operation = program::operation_of(program_, instance);
  for (const auto* operands : {&operation.inputs, &operation.outputs})
    for (const ValueId id : *operands) {
      if (!program::has_routed_rows(value_of(instance, id))) continue;
      routed_[at(*issue.instance)] = true;
      Uses& uses = uses_[{visit_of(instance), root_of(instance, id)}];
      uses.last_issue = number;
      if (std::ranges::find(uses.lanes, issue.lane) == uses.lanes.end())
        uses.lanes.push_back(issue.lane);
    }
}

std::size_t ExpertRoom::visit_of(const OperationInstance& instance) const {
  return at(*instance.layer) * at(program_.plan.num_microbatches()) + at(*instance.microbatch);
}

const program::Value& ExpertRoom::value_of(const OperationInstance& instance, ValueId value) const {
  return program_.blocks[at(program::layer_of(program_, instance).block)].values[at(value)];
}

ValueId ExpertRoom::root_of(const OperationInstance& instance, ValueId value) const {
  while (const auto other = value_of(instance, value).alias) value = *other;
  return value;
}

void ExpertRoom::set_rows(const OperationInstance& instance, std::int64_t rows) {
  rows_[visit_of(instance)] = rows;
  if (rows <= program_.sizes.routed_tokens) return;
  if (program::operation_of(program_, instance).phase != program::Phase::Forward) return;
  beyond_plan_.layer_visits += 1;
  beyond_plan_.largest_imbalance = std::max(
      beyond_plan_.largest_imbalance,
      static_cast<double>(rows) / static_cast<double>(program::balanced_rows(program_.plan)));
}

bool ExpertRoom::holds_rows_of(int instance) const {
  return routed_[at(instance)] &&
         rows_[visit_of(program_.instances[at(instance)])] > program_.sizes.routed_tokens;
}

models::SymbolValues ExpertRoom::sizes_of(const OperationInstance& instance) const {
  models::SymbolValues sizes = program_.sizes;
  sizes.routed_tokens = rows_[visit_of(instance)];
  return sizes;
}

std::byte* ExpertRoom::memory_of(const OperationInstance& instance, ValueId value) {
  if (!instance.layer || !program::has_routed_rows(value_of(instance, value))) return nullptr;
  const Key key{visit_of(instance), root_of(instance, value)};
  if (rows_[key.first] <= program_.sizes.routed_tokens) return nullptr;
  if (const auto found = lies_in_.find(key); found != lies_in_.end())
    return blocks_[found->second].memory;
  const program::Value& whole = value_of(instance, key.second);
  std::int64_t bytes = size_of(whole.dtype);
  for (const std::int64_t size : program::local_shape(sizes_of(instance), whole)) bytes *= size;
  const std::size_t block = take_block(instance, bytes);
  lies_in_.emplace(key, block);
  ends_at_.emplace(uses_.at(key).last_issue, key);
  return blocks_[block].memory;
}

int ExpertRoom::mark_of(std::size_t block, Lane lane) const {
  return first_mark_ + 2 * static_cast<int>(block) + (lane == Lane::Compute ? 0 : 1);
}

/// The smallest free block that is large enough, unless most of it would lie idle.
std::size_t ExpertRoom::take_block(const OperationInstance& instance, std::int64_t bytes) {
  const std::int64_t wanted = block_bytes(bytes);
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    if (block.taken || block.bytes < wanted || block.bytes > 2 * wanted) continue;
    if (!best || block.bytes < blocks_[*best].bytes) best = i;
  }
  const std::size_t index = best ? *best : make_block(instance, wanted);
  Block& block = blocks_[index];
  block.taken = block.needed = true;
  beyond_plan_.bytes = std::max(beyond_plan_.bytes, static_cast<double>(held_bytes_));
  const Lane lane = program::operation_of(program_, instance).lane;
  for (const Lane earlier : block.marked)
    if (earlier != lane) device_.wait_mark(mark_of(index, earlier), lane);
  block.marked.clear();
  return index;
}

std::size_t ExpertRoom::make_block(const OperationInstance& instance, std::int64_t bytes) {
  // What earlier steps left is of other sizes. With queues it goes at the end of the step: freeing
  // may wait for all of them, and so for ranks that wait for this one.
  if (!queues_) free_blocks(/*needed_ones=*/device_.free_bytes() < bytes);
  if (device_.free_bytes() < bytes) refuse(instance, bytes, "the device has none left");
  void* memory = nullptr;
  try {
    memory = device_.backend().allocate(bytes);
  } catch (const IoError& error) {
    refuse(instance, bytes, error.what());
  }
  auto place = std::ranges::find(blocks_, nullptr, &Block::memory);
  if (place == blocks_.end()) place = blocks_.insert(place, Block{});
  *place = {.memory = static_cast<std::byte*>(memory), .bytes = bytes};
  const auto index = static_cast<std::size_t>(place - blocks_.begin());
  if (queues_) {  // it is zeroed there
    device_.set_mark(mark_of(index, Lane::Compute), Lane::Compute);
    place->marked = {Lane::Compute};
  }
  held_bytes_ += bytes;
  return index;
}

void ExpertRoom::refuse(const OperationInstance& instance, std::int64_t bytes,
                        const std::string& reason) const {
  const std::int64_t rows = rows_[visit_of(instance)];
  const auto& layer = program::layer_of(program_, instance);
  throw ConfigError(fmt::format(
      "stage {}, layer {}, micro-batch {}: the router sends {} rows to the experts here, {:.2f} "
      "times as many as a balanced one; expert_imbalance = {} plans buffers for {}, and there is "
      "no memory for more: {:.2f} MiB wanted, {:.2f} MiB free, {:.2f} MiB taken for such rows "
      "before ({}); set a larger expert_imbalance in the plan, or plan with a larger "
      "--expert-imbalance, a smaller micro batch, or recomputation",
      program_.role.stage, layer.layer.value_or(-1), *instance.microbatch, rows,
      static_cast<double>(rows) / static_cast<double>(program::balanced_rows(program_.plan)),
      program_.plan.expert_imbalance, program_.sizes.routed_tokens,
      static_cast<double>(bytes) / kMib, static_cast<double>(device_.free_bytes()) / kMib,
      static_cast<double>(held_bytes_) / kMib, reason));
}

void ExpertRoom::issued(std::size_t issue) {
  while (!ends_at_.empty() && ends_at_.begin()->first <= issue) {
    const auto node = lies_in_.extract(ends_at_.begin()->second);
    ends_at_.erase(ends_at_.begin());
    Block& block = blocks_[node.mapped()];
    block.taken = false;
    if (!queues_) continue;
    for (const Lane lane : uses_.at(node.key()).lanes) {
      device_.set_mark(mark_of(node.mapped(), lane), lane);
      block.marked.push_back(lane);
    }
  }
}

program::RowsBeyondPlan ExpertRoom::end_step() {
  require_invariant(lies_in_.empty(), "a step leaves rows of experts behind");
  free_blocks(/*needed_ones=*/false);
  for (Block& block : blocks_) {
    block.needed = false;
    block.marked.clear();
  }
  std::ranges::fill(rows_, 0);
  return std::exchange(beyond_plan_, {});
}

void ExpertRoom::give_back() {
  free_blocks(/*needed_ones=*/true);
}

void ExpertRoom::free_blocks(bool needed_ones) {
  for (Block& block : blocks_) {
    if (block.memory == nullptr || block.taken || (block.needed && !needed_ones)) continue;
    device_.backend().free(block.memory);
    held_bytes_ -= block.bytes;
    block = {};
  }
}

}  // namespace meshplan::runtime
