#include "node_store/memory_saver.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/index.hpp"
#include "node_store/all_ranks.hpp"
#include "node_store/store_folder.hpp"
#include "os/quiet_thread.hpp"
#include "program/lower/lower.hpp"
#include "program/plan_file/plan_file.hpp"

namespace meshplan::runtime {
namespace {

MutableBuffer bytes_of(std::span<std::byte> data) {
  return {data.data(), std::ssize(data), DType::U8};
}
MutableBuffer bytes_of(std::vector<std::uint64_t>& hashes) {
  return {hashes.data(), std::ssize(hashes), DType::I64};
}

}  // namespace

MemorySaver::MemorySaver(const program::Program& program, const SaverPlace& place,
                         Communicator& world, const NodeStoreOptions& options,
                         const std::string& checkpoints, std::optional<std::int64_t> resumed_step)
    : rank_(world.rank()),
      ring_(options.nodes),
      store_(store_path(options.root, checkpoints, ring_.name(ring_.node_of(rank_)))),
      plan_(program.plan),
      plan_json_(program::to_json(program.plan)),
      plan_has_progress_thread_(program.plan.progress_thread),
      world_(world),
      group_(group_of_all(world, "copies of the state")),
      resumed_step_(resumed_step) {
  try {
    allocate(program, place);
    // Beside what the run does before its first state is there.
    thread_ = start_without_signals([this] {
      try {
        for (int slot = 1; slot < kSharesKept; ++slot) make_room();
      } catch (const std::exception& error) {
        work_failure_ = error.what();
      }
    });
  } catch (const IoError& error) {
    fail(error);
  }
}

MemorySaver::~MemorySaver() {
  if (thread_.joinable()) thread_.join();
  // What a rank that is ended had asked for may still arrive.
  if (is_open_)
    for (Kept& kept : kept_) kept.slots.keep_mapped();
}

void MemorySaver::allocate(const program::Program& program, const SaverPlace& place) {
  open_store(store_);
  const auto keep = [&](int rank, StateShare share) {
    ShareSlots slots(store_, rank, share.header(), share.data_bytes());
    std::vector<std::uint64_t> hashes(share.specs().size());
    kept_.push_back({std::move(share), std::move(slots), std::move(hashes)});
  };
  keep(rank_, StateShare(program, place));
  for (const int source : ring_.sources(rank_)) {
    const SaverPlace there = saver_place(plan_, source);
    if (there.coordinates.pp == place.coordinates.pp)
      keep(source, StateShare(program, there));
    else
      keep(source, StateShare(program::lower(plan_, there.coordinates.pp), there));
  }
}

/// Before the first state is saved.
void MemorySaver::await_first_room() {
  if (is_open_ || !thread_.joinable()) return;
  thread_.join();
  if (!work_failure_.empty()) fail(IoError(work_failure_));
}

MemorySaver::State MemorySaver::state() {
  await_first_room();
  if (is_open_ && failure_.empty()) {
    try {
      if (!arrived() || !worked_) return State::Busy;
      finish_work();
    } catch (const IoError& error) {
      fail(error);
    }
  }
  return failure_.empty() ? State::Ready : State::Failed;
}

bool MemorySaver::arrived() {
  return std::ranges::all_of(copies_, [](Handle& copy) { return copy.test(); });
}

void MemorySaver::finish_work() {
  if (!plan_has_progress_thread_) world_.progress_in_background(false);
  thread_.join();
  copies_.clear();
  is_open_ = false;
  if (!work_failure_.empty()) throw IoError(std::exchange(work_failure_, ""));
  for (std::size_t i = 1; i < kept_.size(); ++i) kept_[i].slots.complete();
  ++num_complete_;
}

void MemorySaver::fail(const std::exception& error) {
  failure_ = error.what();
}

void MemorySaver::save(const RunState& run, kernels::Backend& backend, const Arena& arena) {
  if (resumed_step_ && num_complete_ >= 2) {
    if (ring_.leads(rank_)) remove_step(store_, *resumed_step_);
    resumed_step_.reset();
  }
  await_first_room();
  is_open_ = true;
  work_failure_.clear();
  try {
    for (Kept& kept : kept_) kept.slots.begin(run.step);
  } catch (const IoError& error) {  // its peers wait for what it holds: said with the next state
    work_failure_ = error.what();
  }
  Kept& own = kept_.front();
  own.share.copy(backend, arena, own.slots.data());
  own.hashes = own.share.hashes(own.slots.data());
  exchange_hashes();
  start_copies();
  worked_ = false;
  thread_ = start_without_signals([this, run] { work(run); });
}

/// One transfer of each rank: to its partner, if this round is its place among the partner's
/// sources.
Handle MemorySaver::exchange(int round, ConstBuffer own, std::vector<MutableBuffer> copies) {
  std::vector<std::int64_t> send(static_cast<std::size_t>(group_->size()), 0);
  std::vector<std::int64_t> receive(send.size(), 0);
  const std::vector<int> sources = ring_.sources(rank_);
  const int partner = *ring_.partner(rank_);
  const std::vector<int> beside = ring_.sources(partner);
  ConstBuffer sent{nullptr, 0, own.dtype};
  MutableBuffer received{nullptr, 0, own.dtype};
  if (at(round) < beside.size() && beside[at(round)] == rank_) {
    sent = own;
    send[at(partner)] = own.count;
  }
  if (at(round) < sources.size()) {
    received = copies[at(round)];
    receive[at(sources[at(round)])] = received.count;
  }
  return group_->all_to_all_v(sent, send, received, receive);
}

void MemorySaver::exchange_hashes() {
  if (!has_partner()) return;
  std::vector<MutableBuffer> copies;
  for (std::size_t i = 1; i < kept_.size(); ++i) copies.push_back(bytes_of(kept_[i].hashes));
  for (int round = 0; round < ring_.most_sources(); ++round)
    exchange(round, bytes_of(kept_.front().hashes), copies).wait();
}

/// The rank's thread moves them whenever it communicates, and a progress thread while it computes,
/// where the carrier allows one. The thread is there first: without one, a call sends at once what
/// it can, and the step would wait for that.
void MemorySaver::start_copies() {
  if (!has_partner()) return;
  try {
    if (!plan_has_progress_thread_) world_.progress_in_background(true);
  } catch (const ConfigError&) {  // then without
  }
  std::vector<MutableBuffer> copies;
  for (std::size_t i = 1; i < kept_.size(); ++i) copies.push_back(bytes_of(kept_[i].slots.data()));
  for (int round = 0; round < ring_.most_sources(); ++round)
    copies_.push_back(exchange(round, bytes_of(kept_.front().slots.data()), copies));
}

std::string MemorySaver::index_of(const Kept& kept, const RunState& run) const {
  return to_json(CheckpointIndex{.run = run,
                                 .plan_hash = hex(content_hash(plan_json_)),
                                 .plan_json = plan_json_,
                                 .manifest = kept.share.manifest(kept.slots.rank(), kept.hashes)});
}

/// On a thread of its own.
void MemorySaver::work(const RunState& run) {
  try {
    if (work_failure_.empty()) {
      for (Kept& kept : kept_) kept.slots.write_index(index_of(kept, run));
      kept_.front().slots.complete();
      make_room();
    }
  } catch (const std::exception& error) {
    work_failure_ = error.what();
  }
  worked_ = true;
}

/// For one more state of each share, so that no step waits for it. Beside the set that the run was
/// resumed from there may be no room for three more: two do until that set goes.
void MemorySaver::make_room() {
  try {
    for (Kept& kept : kept_) kept.slots.allocate();
  } catch (const IoError&) {
    const auto has_two = [](const Kept& kept) { return kept.slots.allocated() >= 2; };
    if (!resumed_step_ || !std::ranges::all_of(kept_, has_two)) throw;
  }
}

void MemorySaver::remove() {
  for (Handle& copy : copies_) copy.wait();
  if (thread_.joinable()) thread_.join();
  if (!plan_has_progress_thread_) world_.progress_in_background(false);
  copies_.clear();
  is_open_ = false;
  kept_.clear();
  world_.barrier().wait();  // nobody writes there any more
  if (ring_.leads(rank_)) remove_store(store_);
}

}  // namespace meshplan::runtime
