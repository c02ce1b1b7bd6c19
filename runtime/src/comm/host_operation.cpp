#include "comm/host_operation.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "comm/reduction.hpp"
#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::runtime {

HostGroup::~HostGroup() {
  if (engine == nullptr) return;
  const auto held = engine->lock();
  channel.reset();
}

// ---------------------------------------------------------------- requests

RequestSet::~RequestSet() {
  for (const Started& started : requests_)
    if (started.channel != nullptr) started.channel->abandon(started.request, started.is_recv);
}

void RequestSet::start_send(int request, const void* data, std::int64_t bytes,
                            const Envelope& envelope) {
  Channel& channel = *envelope.group.channel;
  const Channel::Request made = channel.start_send(envelope.peer, envelope.tag, data, bytes,
                                                   {envelope.operation, envelope.group.name});
  requests_[at(request)] = {&channel, made, false, envelope.peer, bytes};
}

void RequestSet::start_recv(int request, void* data, std::int64_t bytes, const Envelope& envelope) {
  Channel& channel = *envelope.group.channel;
  const Channel::Request made = channel.start_recv(envelope.peer, envelope.tag, data, bytes,
                                                   {envelope.operation, envelope.group.name});
  requests_[at(request)] = {&channel, made, true, envelope.peer, bytes};
}

bool RequestSet::test(int request, const HostGroup& group, const std::string& operation) {
  Started& started = requests_[at(request)];
  if (started.channel == nullptr) return true;
  Channel& channel = *std::exchange(started.channel, nullptr);  // an error ends the request, too
  const std::optional<std::int64_t> bytes =
      channel.test(started.request, started.peer, {operation, group.name});
  if (!bytes) {
    started.channel = &channel;
    return false;
  }
  if (started.is_recv && *bytes != started.bytes)
    throw CommError(operation, group.name, started.peer,
                    fmt::format("expected {} bytes, got {}: the ranks passed different counts",
                                started.bytes, *bytes));
  return true;
}

// ---------------------------------------------------------------- operations

HostOperation::~HostOperation() {
  if (finished_) return;
  group_->engine->remove(*this);
  std::erase(group_->unverified, this);
  if (group_->broken.empty()) group_->broken = name_ + " was abandoned before it was done";
}

void HostOperation::destroy() noexcept {
  const std::shared_ptr<HostGroup> group = group_;  // outlives this
  const auto held = group->engine->lock();
  const Block block = block_;
  this->~HostOperation();
  group->engine->memory().deallocate(block.begin, block.bytes, block.alignment);
}

bool HostOperation::test() {
  const auto held = group_->engine->lock();
  if (!finished_) group_->engine->poll();
  if (error_) std::rethrow_exception(error_);
  return finished_;
}

void HostOperation::wait(std::optional<Seconds> limit) {
  group_->engine->wait(*this, limit);
  const auto held = group_->engine->lock();
  if (error_) std::rethrow_exception(error_);
}

bool HostOperation::poll() noexcept {
  if (finished_) return false;
  try {
    const Progress progress = advance();
    finished_ = progress == Progress::Done;
    return progress != Progress::None;
  } catch (const CommMismatch&) {
    error_ = std::current_exception();
  } catch (...) {
    error_ = std::current_exception();
    if (group_->broken.empty()) group_->broken = name_ + " failed";
  }
  std::erase(group_->unverified, this);
  finished_ = true;
  return true;
}

ScheduledOperation::ScheduledOperation(std::shared_ptr<HostGroup> group, std::string name,
                                       std::shared_ptr<const CollectiveSchedule> schedule,
                                       Buffers buffers, int tag)
    : HostOperation(std::move(group), std::move(name)),
      schedule_(std::move(schedule)),
      buffers_(buffers),
      tag_(tag),
      scratch_(mutable_group().engine->scratch().take(
          static_cast<std::size_t>(schedule_->scratch_count * size_of(buffers.dtype)))),
      requests_(schedule_->num_requests, memory()) {}

ScheduledOperation::~ScheduledOperation() {
  ScratchPool& pool = mutable_group().engine->scratch();
  if (next_action_ == schedule_->actions.size())
    pool.give_back(std::move(scratch_));
  else
    pool.bury(std::move(scratch_));
}

HostOperation::Progress ScheduledOperation::advance() {
  bool moved = false;
  while (next_action_ < schedule_->actions.size()) {
    if (!run(schedule_->actions[next_action_])) return moved ? Progress::Some : Progress::None;
    ++next_action_;
    moved = true;
    // A sum may take long: the thread that computes does not wait for all that follow.
    if (group().engine->is_wanted()) return Progress::Some;
  }
  return Progress::Done;
}

bool ScheduledOperation::run(const Action& action) {
  if (const auto* wait = std::get_if<Await>(&action))
    return requests_.test(wait->request, group(), name());
  if (const auto* send = std::get_if<StartSend>(&action)) {
    requests_.start_send(send->request, read_at(send->from), bytes_of(send->from),
                         {group(), name(), send->peer, tag_});
  } else if (const auto* recv = std::get_if<StartRecv>(&action)) {
    requests_.start_recv(recv->request, at(recv->to), bytes_of(recv->to),
                         {group(), name(), recv->peer, tag_});
  } else if (const auto* sum = std::get_if<Reduce>(&action)) {
    reduce(*sum);
  } else if (const auto* copy = std::get_if<Copy>(&action)) {
    const std::byte* from = read_at(copy->from);
    std::byte* to = at(copy->to);
    if (from != to) std::memmove(to, from, static_cast<std::size_t>(bytes_of(copy->from)));
  }
  return true;
}

void ScheduledOperation::reduce(const Reduce& action) {
  std::pmr::vector<const void*> sources(&memory());
  sources.reserve(action.sources.size());
  for (const Extent& source : action.sources) sources.push_back(read_at(source));
  const bool divide = action.last && buffers_.reduce == ReduceOp::Avg;
  reduce_in_order(buffers_.dtype, buffers_.reduce, sources, at(action.to), action.to.count,
                  divide ? group().me.size : 1);
}

std::byte* ScheduledOperation::at(Extent extent) {
  require_invariant(extent.space != Space::Input, "a schedule may not write its input");
  std::byte* base =
      extent.space == Space::Output ? static_cast<std::byte*>(buffers_.output) : scratch_.data();
  return base + extent.offset * size_of(buffers_.dtype);
}

const std::byte* ScheduledOperation::read_at(Extent extent) {
  if (extent.space != Space::Input) return at(extent);
  return static_cast<const std::byte*>(buffers_.input) + extent.offset * size_of(buffers_.dtype);
}

// ---------------------------------------------------------------- transfers

namespace {

/// Both sides cut a message alike. At most 64 pieces, for all of them start at once: pieces of
/// later transfers with the same tag must not overtake.
std::int64_t transfer_piece(std::int64_t bytes, std::int64_t piece_bytes) {
  constexpr std::int64_t kMaxPieces = 64;
  constexpr std::int64_t kMaxPieceBytes = std::int64_t{1} << 30;
  return std::min(kMaxPieceBytes, std::max(piece_bytes, bytes / kMaxPieces + 1));
}

int count_pieces(std::span<const Transfer> transfers, std::int64_t piece_bytes) {
  std::int64_t pieces = 0;
  for (const Transfer& transfer : transfers) {
    const std::int64_t bytes = transfer.buffer.bytes();
    const std::int64_t piece = transfer_piece(bytes, piece_bytes);
    pieces += (bytes + piece - 1) / piece;
  }
  return static_cast<int>(pieces);
}

}  // namespace

TransferOperation::TransferOperation(std::shared_ptr<HostGroup> group, std::string name,
                                     std::span<const Transfer> transfers, std::int64_t piece_bytes)
    : HostOperation(std::move(group), std::move(name)),
      transfers_(transfers.begin(), transfers.end(), &memory()),
      piece_bytes_(piece_bytes),
      peer_of_request_(&memory()),
      requests_(count_pieces(transfers_, piece_bytes), memory()) {
  peer_of_request_.reserve(static_cast<std::size_t>(count_pieces(transfers_, piece_bytes)));
}

std::optional<int> TransferOperation::peer() const {
  if (transfers_.size() == 1) return transfers_.front().peer;
  const auto next = static_cast<std::size_t>(next_request_);
  return next < peer_of_request_.size() ? std::optional(peer_of_request_[next]) : std::nullopt;
}

void TransferOperation::start() {
  for (const Transfer& transfer : transfers_) {
    const std::int64_t bytes = transfer.buffer.bytes();
    const std::int64_t piece = transfer_piece(bytes, piece_bytes_);
    auto* data = static_cast<std::byte*>(transfer.buffer.data);
    const RequestSet::Envelope envelope{group(), name(), transfer.peer,
                                        tag_of(TagKind::PointToPoint, transfer.tag)};
    for (std::int64_t begin = 0; begin < bytes; begin += piece) {
      const int request = static_cast<int>(peer_of_request_.size());
      peer_of_request_.push_back(transfer.peer);
      const std::int64_t length = std::min(piece, bytes - begin);
      if (transfer.direction == Transfer::Direction::Send)
        requests_.start_send(request, data + begin, length, envelope);
      else
        requests_.start_recv(request, data + begin, length, envelope);
    }
  }
  started_ = true;
}

HostOperation::Progress TransferOperation::advance() {
  bool moved = !started_;
  if (!started_) start();
  for (; static_cast<std::size_t>(next_request_) < peer_of_request_.size(); ++next_request_) {
    if (!requests_.test(next_request_, group(), name()))
      return moved ? Progress::Some : Progress::None;
    moved = true;
  }
  return Progress::Done;
}

// ---------------------------------------------------------------- the carrier's own

LibraryOperation::LibraryOperation(std::shared_ptr<HostGroup> group, std::string name,
                                   const Channel::LibraryCall& call)
    : HostOperation(std::move(group), std::move(name)), call_(call) {}

HostOperation::Progress LibraryOperation::advance() {
  const CallName call{name(), group().name};
  const bool moved = !started_;
  if (!started_) request_ = group().channel->start_library(call_, group().me.rank, call);
  started_ = true;
  if (group().channel->test(request_, std::nullopt, call)) return Progress::Done;
  return moved ? Progress::Some : Progress::None;
}

}  // namespace meshplan::runtime
