#include "certify/settle.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <numeric>
#include <span>
#include <xxhash.h>

#include "certify/sum_check.hpp"
#include "core/index.hpp"

namespace meshplan::runtime {
namespace {

using program::CommOp;
using program::ExactCheck;

/// Bytes for, or of, each rank of the world.
using Parcels = std::vector<std::vector<std::byte>>;

/// A block as its sender has it.
struct Note {
  std::int32_t group = 0;
  std::int32_t lane = 0;
  std::int32_t operation = 0;
  std::int32_t call = 0;
  std::uint64_t hash = 0;
};
static_assert(sizeof(Note) == 24);

void append(std::vector<std::byte>& parcel, const void* data, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  parcel.insert(parcel.end(), begin, begin + bytes);
}

std::uint64_t hash_of(const std::vector<std::byte>& data) {
  return XXH3_64bits(data.data(), data.size());
}

/// Elements of a sum that rank `part` of the group checks: its block of a reduce_scatter.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

std::int64_t elements_of(const Sum& sum) {
  return std::ssize(sum.given) / size_of(sum.dtype);
}

Slice slice_of(const Sum& sum, int part, int parts) {
  const std::int64_t all = elements_of(sum);
  const std::int64_t begin = all * part / parts;
  return {.begin = begin, .count = all * (part + 1) / parts - begin};
}

class Settlement {
 public:
  Settlement(Ledger& ledger, Communicator& world, std::string when)
      : ledger_(ledger), world_(world), when_(std::move(when)) {}

  std::vector<ExactCheck> result() {
    add_result_blocks();
    exchange();
    for (const auto& group : ledger_) {
      check_blocks(*group);
      check_sums(*group);
      repeat_sums(*group);
      group->clear();
    }
    return std::move(checks_);
  }

 private:
  /// Where the group's member is in the world that exchanges.
  std::size_t in_world(const GroupLedger& group, int member) const {
    const int job_rank = group.inner->world_ranks()[at(member)];
    return static_cast<std::size_t>(std::ranges::find(world_.world_ranks(), job_rank) -
                                    world_.world_ranks().begin());
  }

  void add_result_blocks();
  void exchange();
  void check_blocks(GroupLedger& group);
  void check_lane_end(const GroupLedger& group, int peer, std::size_t sent, std::size_t received);
  void check_sums(const GroupLedger& group);
  void repeat_sums(const GroupLedger& group);
  ExactCheck& check_of(const GroupLedger& group, CommOp operation);
  void report_sum(const GroupLedger& group, const Sum& sum, std::string_view fault,
                  const OddElement& odd);

  Ledger& ledger_;
  Communicator& world_;
  std::string when_;
  std::vector<std::vector<Note>> notes_;  // by sender, of all groups
  Parcels slices_;                        // by sender: of sums, in the order of the ledger
  std::vector<std::size_t> read_;         // bytes of slices_ so far
  std::vector<ExactCheck> checks_;
};

ExactCheck& Settlement::check_of(const GroupLedger& group, CommOp operation) {
  const std::string name = fmt::format("{} of {}", program::name_of(operation), group.kind);
  const auto found = std::ranges::find(checks_, name, &ExactCheck::name);
  if (found != checks_.end()) return *found;
  return checks_.emplace_back(ExactCheck{.what = std::string(program::kMessage), .name = name});
}

/// The first rank's result of an all_reduce is everyone's.
void Settlement::add_result_blocks() {
  for (const auto& group : ledger_)
    for (const Sum& sum : group->sums) {
      if (sum.operation != CommOp::AllReduce || group->inner->size() == 1) continue;
      const Block block{.lane = Block::kSumResult,
                        .operation = sum.operation,
                        .call = sum.call,
                        .hash = hash_of(sum.result),
                        .seen = sum.seen};
      if (group->inner->rank() == 0)
        for (int peer = 1; peer < group->inner->size(); ++peer)
          group->sent[at(peer)].push_back(block);
      else
        group->received.front().push_back(block);
    }
}

/// Notes of all blocks, and of each sum the part that its receiver checks.
void Settlement::exchange() {
  const auto ranks = static_cast<std::size_t>(world_.size());
  std::vector<std::vector<Note>> notes(ranks);
  Parcels out(ranks);
  for (const auto& group : ledger_)
    for (int peer = 0; peer < group->inner->size(); ++peer) {
      const std::size_t to = in_world(*group, peer);
      for (const Block& block : group->sent[at(peer)])
        notes[to].push_back({group->number, block.lane, static_cast<std::int32_t>(block.operation),
                             block.call, block.hash});
      for (const Sum& sum : group->sums) {
        const Slice slice = slice_of(sum, peer, group->inner->size());
        const std::int64_t element = size_of(sum.dtype);
        append(out[to], sum.given.data() + slice.begin * element,
               static_cast<std::size_t>(slice.count * element));
      }
    }
  std::vector<std::byte> sent, received;
  std::vector<std::int64_t> sizes(2 * ranks), arriving(2 * ranks), send_bytes, receive_bytes;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    sizes[2 * rank] = std::ssize(notes[rank]) * static_cast<std::int64_t>(sizeof(Note));
    sizes[2 * rank + 1] = std::ssize(out[rank]);
    append(sent, notes[rank].data(), static_cast<std::size_t>(sizes[2 * rank]));
    append(sent, out[rank].data(), out[rank].size());
    send_bytes.push_back(sizes[2 * rank] + sizes[2 * rank + 1]);
  }
  world_
      .all_to_all({sizes.data(), std::ssize(sizes), DType::I64},
                  {arriving.data(), std::ssize(arriving), DType::I64})
      .wait();
  for (std::size_t rank = 0; rank < ranks; ++rank)
    receive_bytes.push_back(arriving[2 * rank] + arriving[2 * rank + 1]);
  received.resize(static_cast<std::size_t>(
      std::accumulate(receive_bytes.begin(), receive_bytes.end(), std::int64_t{0})));
  world_
      .all_to_all_v({sent.data(), std::ssize(sent), DType::U8}, send_bytes,
                    {received.data(), std::ssize(received), DType::U8}, receive_bytes)
      .wait();
  notes_.resize(ranks);
  slices_.resize(ranks);
  read_.assign(ranks, 0);
  const std::byte* next = received.data();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::byte* slices = next + arriving[2 * rank];
    notes_[rank].resize(static_cast<std::size_t>(arriving[2 * rank]) / sizeof(Note));
    if (!notes_[rank].empty())
      std::memcpy(notes_[rank].data(), next, static_cast<std::size_t>(arriving[2 * rank]));
    slices_[rank].assign(slices, slices + arriving[2 * rank + 1]);
    next = slices + arriving[2 * rank + 1];
  }
}

/// Both sides by lane, in the order of calls: number i of one is number i of the other.
void Settlement::check_blocks(GroupLedger& group) {
  for (int peer = 0; peer < group.inner->size(); ++peer) {
    std::vector<Note> sent;
    std::ranges::copy_if(notes_[in_world(group, peer)], std::back_inserter(sent),
                         [&](const Note& note) { return note.group == group.number; });
    std::vector<Block>& received = group.received[at(peer)];
    std::ranges::stable_sort(sent, {}, &Note::lane);
    std::ranges::stable_sort(received, {}, &Block::lane);
    const std::size_t both = std::min(sent.size(), received.size());
    for (std::size_t i = 0; i < both; ++i) {
      const Block& block = received[i];
      if (!block.seen) continue;
      ExactCheck& check = check_of(group, block.operation);
      ++check.checked;
      const bool same_call = sent[i].lane == block.lane && sent[i].call == block.call &&
                             sent[i].operation == static_cast<std::int32_t>(block.operation);
      if (same_call && sent[i].hash == block.hash) continue;
      const std::string message =
          block.lane >= 0 ? fmt::format("message {} with tag {}", block.call, block.lane)
                          : fmt::format("call {}", block.call);
      program::add_difference(
          check,
          {.name = fmt::format("{}, {} of {}, {}: {}", when_, program::name_of(block.operation),
                               group.inner->name(), message,
                               block.lane == Block::kSumResult
                                   ? fmt::format("the sum on rank {} is not that on rank {}",
                                                 group.inner->rank(), peer)
                                   : fmt::format("rank {} did not receive what rank {} sent",
                                                 group.inner->rank(), peer))});
    }
    check_lane_end(group, peer, sent.size(), received.size());
  }
}

void Settlement::check_lane_end(const GroupLedger& group, int peer, std::size_t sent,
                                std::size_t received) {
  if (sent == received) return;
  ExactCheck& check = check_of(group, CommOp::PointToPoint);
  ++check.checked;
  program::add_difference(
      check, {.name = fmt::format("{}, {}: rank {} sent {} messages, rank {} received {}", when_,
                                  group.inner->name(), peer, sent, group.inner->rank(), received)});
}

void Settlement::report_sum(const GroupLedger& group, const Sum& sum, std::string_view fault,
                            const OddElement& odd) {
  program::add_difference(
      check_of(group, sum.operation),
      program::differing_element(fmt::format("{}, {} of {}, call {}: {} on rank {}", when_,
                                             program::name_of(sum.operation), group.inner->name(),
                                             sum.call, fault, group.inner->rank()),
                                 {odd.index}, odd.value, odd.expected));
}

void Settlement::check_sums(const GroupLedger& group) {
  const int ranks = group.inner->size(), rank = group.inner->rank();
  for (const Sum& sum : group.sums) {
    const Slice slice = slice_of(sum, rank, ranks);
    const std::int64_t element = size_of(sum.dtype);
    const bool scattered = sum.operation == CommOp::ReduceScatter;
    SumPart part{.reduce = sum.reduce, .dtype = sum.dtype, .count = slice.count};
    bool complete = sum.seen;
    for (int peer = 0; peer < ranks; ++peer) {
      const std::size_t from = in_world(group, peer);
      const auto bytes = static_cast<std::size_t>(slice.count * element);
      complete = complete && read_[from] + bytes <= slices_[from].size();
      part.given.push_back(slices_[from].data() + read_[from]);
      read_[from] += bytes;
    }
    if (!complete) continue;
    part.result = sum.result.data() + (scattered ? 0 : slice.begin * element);
    ++check_of(group, sum.operation).checked;
    if (auto odd = first_odd_element(part)) {
      if (!scattered) odd->index += slice.begin;
      report_sum(group, sum, "the sum is not that of its inputs", *odd);
    }
  }
}

/// The order of a sum is fixed, so a second one has the same bits. (Over one or two ranks there is
/// one order, which sum_check.hpp has tried.)
void Settlement::repeat_sums(const GroupLedger& group) {
  if (group.inner->size() <= 2) return;
  for (const Sum& sum : group.sums) {
    std::vector<std::byte> given = sum.given;
    const std::int64_t count = elements_of(sum);
    const std::int64_t blocks = sum.operation == CommOp::ReduceScatter ? group.inner->size() : 1;
    std::vector<std::byte> result(given.size() / static_cast<std::size_t>(blocks));
    const ConstBuffer from{given.data(), count, sum.dtype};
    const MutableBuffer to{result.data(), count / blocks, sum.dtype};
    if (blocks == 1)
      group.inner->all_reduce(from, to, sum.reduce).wait();
    else
      group.inner->reduce_scatter(from, to, sum.reduce).wait();
    if (!sum.seen) continue;
    if (const auto other =
            first_other_element(sum.dtype, sum.result.data(), result.data(), to.count))
      report_sum(group, sum, "the sum is another one when it is repeated", *other);
  }
}

}  // namespace

std::vector<ExactCheck> settle(Ledger& ledger, Communicator& world, const std::string& when) {
  return Settlement(ledger, world, when).result();
}

std::vector<ExactCheck> all_checks(const std::vector<ExactCheck>& own, Communicator& world) {
  std::string text = program::to_json(own);
  auto longest = std::ssize(text);
  const MutableBuffer buffer{&longest, 1, DType::I64};
  world.all_reduce(buffer, buffer, ReduceOp::Max).wait();
  text.resize(static_cast<std::size_t>(longest), ' ');
  std::string texts(static_cast<std::size_t>(longest * world.size()), ' ');
  world
      .all_gather({text.data(), std::ssize(text), DType::U8},
                  {texts.data(), std::ssize(texts), DType::U8})
      .wait();
  std::vector<ExactCheck> all;
  if (world.rank() != 0) return all;
  for (int rank = 0; rank < world.size(); ++rank)
    program::add_checks(all,
                        program::parse_exact_checks(
                            std::string_view(texts).substr(static_cast<std::size_t>(rank * longest),
                                                           static_cast<std::size_t>(longest)),
                            fmt::format("rank {}", rank)));
  return all;
}

}  // namespace meshplan::runtime
