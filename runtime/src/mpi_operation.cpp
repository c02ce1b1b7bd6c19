#include "mpi_operation.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "mpi_check.hpp"
#include "runtime/reduction.hpp"

namespace meshplan::runtime {
namespace {

#if MPI_VERSION >= 4
int isend(const void* data, std::int64_t bytes, int peer, int tag, MPI_Comm comm,
          MPI_Request* out) {
  return MPI_Isend_c(data, static_cast<MPI_Count>(bytes), MPI_BYTE, peer, tag, comm, out);
}
int irecv(void* data, std::int64_t bytes, int peer, int tag, MPI_Comm comm, MPI_Request* out) {
  return MPI_Irecv_c(data, static_cast<MPI_Count>(bytes), MPI_BYTE, peer, tag, comm, out);
}
#else
int narrow_count(std::int64_t bytes) {
  if (bytes > std::numeric_limits<int>::max())
    throw CommError("message", "MPI", std::nullopt,
                    fmt::format("{} bytes in one message; this MPI (below 4.0) takes 2^31-1: use "
                                "smaller pieces, or ring, direct or pairwise algorithms",
                                bytes));
  return static_cast<int>(bytes);
}
int isend(const void* data, std::int64_t bytes, int peer, int tag, MPI_Comm comm,
          MPI_Request* out) {
  return MPI_Isend(data, narrow_count(bytes), MPI_BYTE, peer, tag, comm, out);
}
int irecv(void* data, std::int64_t bytes, int peer, int tag, MPI_Comm comm, MPI_Request* out) {
  return MPI_Irecv(data, narrow_count(bytes), MPI_BYTE, peer, tag, comm, out);
}
#endif

}  // namespace

MpiGroup::~MpiGroup() {
  if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
}

// ---------------------------------------------------------------- requests

RequestSet::~RequestSet() {
  for (Started& started : requests_) {
    if (started.handle == MPI_REQUEST_NULL) continue;
    if (started.is_recv) {
      // A matched receive cannot be cancelled; its peer may be gone, so do not wait for long.
      MPI_Cancel(&started.handle);
      int done = 0;
      for (int i = 0; i < 1000 && done == 0; ++i)
        MPI_Test(&started.handle, &done, MPI_STATUS_IGNORE);
    }
    if (started.handle != MPI_REQUEST_NULL) MPI_Request_free(&started.handle);
  }
}

void RequestSet::start_send(int request, const void* data, std::int64_t bytes,
                            const Envelope& envelope) {
  Started& started = requests_[static_cast<std::size_t>(request)];
  started = {MPI_REQUEST_NULL, false, envelope.peer, bytes};
  check_mpi(isend(data, bytes, envelope.peer, envelope.tag, envelope.group.comm, &started.handle),
            envelope.operation, envelope.group.name, envelope.peer);
}

void RequestSet::start_recv(int request, void* data, std::int64_t bytes, const Envelope& envelope) {
  Started& started = requests_[static_cast<std::size_t>(request)];
  started = {MPI_REQUEST_NULL, true, envelope.peer, bytes};
  check_mpi(irecv(data, bytes, envelope.peer, envelope.tag, envelope.group.comm, &started.handle),
            envelope.operation, envelope.group.name, envelope.peer);
}

bool RequestSet::test(int request, const MpiGroup& group, const std::string& operation) {
  Started& started = requests_[static_cast<std::size_t>(request)];
  int done = 0;
  MPI_Status status;
  check_mpi(MPI_Test(&started.handle, &done, &status), operation, group.name, started.peer);
  if (done == 0) return false;
  if (started.is_recv) {
    MPI_Count received = 0;
    MPI_Get_elements_x(&status, MPI_BYTE, &received);
    if (received != started.bytes)
      throw CommError(operation, group.name, started.peer,
                      fmt::format("expected {} bytes, got {}: the ranks passed different counts",
                                  started.bytes, static_cast<std::int64_t>(received)));
  }
  return true;
}

// ---------------------------------------------------------------- operations

MpiOperation::~MpiOperation() {
  if (finished_) return;
  group_->engine->remove(*this);
  std::erase(group_->unverified, this);
  if (group_->broken.empty()) group_->broken = name_ + " was abandoned before it was done";
}

void MpiOperation::destroy() noexcept {
  const std::shared_ptr<ProgressEngine> engine = group_->engine;  // outlives this
  const Block block = block_;
  this->~MpiOperation();
  engine->memory().deallocate(block.begin, block.bytes, block.alignment);
}

bool MpiOperation::test() {
  if (!finished_) group_->engine->poll();
  if (error_) std::rethrow_exception(error_);
  return finished_;
}

void MpiOperation::wait(std::optional<Seconds> limit) {
  group_->engine->wait(*this, limit);
  if (error_) std::rethrow_exception(error_);
}

bool MpiOperation::poll() noexcept {
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

ScheduledOperation::ScheduledOperation(std::shared_ptr<MpiGroup> group, std::string name,
                                       std::shared_ptr<const CollectiveSchedule> schedule,
                                       Buffers buffers, int tag)
    : MpiOperation(std::move(group), std::move(name)),
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

MpiOperation::Progress ScheduledOperation::advance() {
  bool moved = false;
  while (next_action_ < schedule_->actions.size()) {
    if (!run(schedule_->actions[next_action_])) return moved ? Progress::Some : Progress::None;
    ++next_action_;
    moved = true;
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

std::int64_t bytes_of(const MutableBuffer& buffer) {
  return buffer.count * size_of(buffer.dtype);
}

int count_pieces(std::span<const Transfer> transfers, std::int64_t piece_bytes) {
  std::int64_t pieces = 0;
  for (const Transfer& transfer : transfers) {
    const std::int64_t bytes = bytes_of(transfer.buffer);
    const std::int64_t piece = transfer_piece(bytes, piece_bytes);
    pieces += (bytes + piece - 1) / piece;
  }
  return static_cast<int>(pieces);
}

}  // namespace

TransferOperation::TransferOperation(std::shared_ptr<MpiGroup> group, std::string name,
                                     std::span<const Transfer> transfers, std::int64_t piece_bytes)
    : MpiOperation(std::move(group), std::move(name)),
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
    const std::int64_t bytes = bytes_of(transfer.buffer);
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

MpiOperation::Progress TransferOperation::advance() {
  bool moved = !started_;
  if (!started_) start();
  for (; static_cast<std::size_t>(next_request_) < peer_of_request_.size(); ++next_request_) {
    if (!requests_.test(next_request_, group(), name()))
      return moved ? Progress::Some : Progress::None;
    moved = true;
  }
  return Progress::Done;
}

// ---------------------------------------------------------------- MPI's own

LibraryOperation::LibraryOperation(std::shared_ptr<MpiGroup> group, std::string name, Call call)
    : MpiOperation(std::move(group), std::move(name)), call_(call) {}

void LibraryOperation::start() {
  if (call_.block_bytes > std::numeric_limits<int>::max())
    throw CommError(name(), group().name, std::nullopt,
                    fmt::format("the library algorithm takes blocks below 2 GiB, not {} bytes",
                                call_.block_bytes));
  const int bytes = static_cast<int>(call_.block_bytes);
  const MPI_Comm comm = group().comm;
  const auto* own_block = static_cast<std::byte*>(call_.recv) + group().me.rank * call_.block_bytes;
  int status = MPI_SUCCESS;
  switch (call_.op) {
    case program::CommOp::AllGather:
      status = MPI_Iallgather(call_.send == own_block ? MPI_IN_PLACE : call_.send, bytes, MPI_BYTE,
                              call_.recv, bytes, MPI_BYTE, comm, &request_);
      break;
    case program::CommOp::AllToAll:
      status =
          MPI_Ialltoall(call_.send, bytes, MPI_BYTE, call_.recv, bytes, MPI_BYTE, comm, &request_);
      break;
    case program::CommOp::Broadcast:
      status = MPI_Ibcast(call_.recv, bytes, MPI_BYTE, call_.root, comm, &request_);
      break;
    case program::CommOp::Barrier:
      status = MPI_Ibarrier(comm, &request_);
      break;
    default:
      throw InvariantError("the library algorithm is offered only where nothing is reduced");
  }
  check_mpi(status, name(), group().name);
  started_ = true;
}

MpiOperation::Progress LibraryOperation::advance() {
  const bool moved = !started_;
  if (!started_) start();
  int done = 0;
  check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), name(), group().name);
  if (done != 0) return Progress::Done;
  return moved ? Progress::Some : Progress::None;
}

}  // namespace meshplan::runtime
