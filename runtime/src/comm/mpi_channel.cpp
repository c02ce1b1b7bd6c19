#include "comm/mpi_channel.hpp"

#include <mpi.h>

#include <cstring>
#include <fmt/format.h>
#include <limits>

#include "comm/mpi_check.hpp"
#include "core/error.hpp"

namespace meshplan::runtime {

Channel::Request Channel::start_library(const LibraryCall& /*library*/, int /*rank*/,
                                        const CallName& call) {
  throw InvariantError(call.operation + ": this carrier has no collectives of its own");
}

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

/// MPI_Request is a number in some MPIs and a pointer in others.
static_assert(sizeof(MPI_Request) <= sizeof(Channel::Request));
Channel::Request number_of(MPI_Request handle) {
  Channel::Request request = 0;
  std::memcpy(&request, &handle, sizeof handle);
  return request;
}
MPI_Request handle_of(Channel::Request request) {
  MPI_Request handle = MPI_REQUEST_NULL;
  std::memcpy(&handle, &request, sizeof handle);
  return handle;
}

/// Owns an MPI group for one scope.
class ScopedGroup {
 public:
  ScopedGroup() = default;
  ~ScopedGroup() {
    if (handle != MPI_GROUP_NULL) MPI_Group_free(&handle);
  }
  ScopedGroup(const ScopedGroup&) = delete;
  ScopedGroup& operator=(const ScopedGroup&) = delete;
  MPI_Group handle = MPI_GROUP_NULL;
};

class MpiChannel final : public Channel {
 public:
  /// Takes the communicator over.
  MpiChannel(MPI_Comm comm, const std::string& group) : comm_(comm) {
    check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", group);
  }
  ~MpiChannel() override { MPI_Comm_free(&comm_); }

  Request start_send(int peer, int tag, const void* data, std::int64_t bytes,
                     const CallName& call) override {
    MPI_Request handle = MPI_REQUEST_NULL;
    check_mpi(isend(data, bytes, peer, tag, comm_, &handle), call.operation, call.group, peer);
    return number_of(handle);
  }
  Request start_recv(int peer, int tag, void* data, std::int64_t bytes,
                     const CallName& call) override {
    MPI_Request handle = MPI_REQUEST_NULL;
    check_mpi(irecv(data, bytes, peer, tag, comm_, &handle), call.operation, call.group, peer);
    return number_of(handle);
  }
  std::optional<std::int64_t> test(Request& request, std::optional<int> peer,
                                   const CallName& call) override {
    MPI_Request handle = handle_of(request);
    int done = 0;
    MPI_Status status;
    check_mpi(MPI_Test(&handle, &done, &status), call.operation, call.group, peer);
    request = number_of(handle);
    if (done == 0) return std::nullopt;
    MPI_Count bytes = 0;  // of a receive; a send has none
    MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
    return static_cast<std::int64_t>(bytes);
  }
  void abandon(Request request, bool is_recv) noexcept override {
    MPI_Request handle = handle_of(request);
    if (handle == MPI_REQUEST_NULL) return;
    if (is_recv) {
      // A matched receive cannot be cancelled; its peer may be gone, so do not wait for long.
      MPI_Cancel(&handle);
      int done = 0;
      for (int i = 0; i < 1000 && done == 0; ++i) MPI_Test(&handle, &done, MPI_STATUS_IGNORE);
    }
    if (handle != MPI_REQUEST_NULL) MPI_Request_free(&handle);
  }

  bool has_library() const override { return true; }
  bool serves_threads() const override {
    int provided = MPI_THREAD_SINGLE;
    MPI_Query_thread(&provided);
    return provided >= MPI_THREAD_SERIALIZED;
  }
  Request start_library(const LibraryCall& library, int rank, const CallName& call) override;

  std::unique_ptr<Channel> create_group(std::span<const int> ranks,
                                        const std::string& label) override {
    ScopedGroup all;
    ScopedGroup members;
    check_mpi(MPI_Comm_group(comm_, &all.handle), "MPI_Comm_group", label);
    check_mpi(
        MPI_Group_incl(all.handle, static_cast<int>(ranks.size()), ranks.data(), &members.handle),
        "MPI_Group_incl", label);
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_create(comm_, members.handle, &comm), "MPI_Comm_create", label);
    if (comm == MPI_COMM_NULL) return nullptr;
    return std::make_unique<MpiChannel>(comm, label);
  }

 private:
  MPI_Comm comm_;
};

Channel::Request MpiChannel::start_library(const LibraryCall& library, int rank,
                                           const CallName& call) {
  if (library.block_bytes > std::numeric_limits<int>::max())
    throw CommError(call.operation, call.group, std::nullopt,
                    fmt::format("the library algorithm takes blocks below 2 GiB, not {} bytes",
                                library.block_bytes));
  const int bytes = static_cast<int>(library.block_bytes);
  const auto* own_block = static_cast<std::byte*>(library.recv) + rank * library.block_bytes;
  MPI_Request handle = MPI_REQUEST_NULL;
  int status = MPI_SUCCESS;
  switch (library.op) {
    case program::CommOp::AllGather:
      status = MPI_Iallgather(library.send == own_block ? MPI_IN_PLACE : library.send, bytes,
                              MPI_BYTE, library.recv, bytes, MPI_BYTE, comm_, &handle);
      break;
    case program::CommOp::AllToAll:
      status = MPI_Ialltoall(library.send, bytes, MPI_BYTE, library.recv, bytes, MPI_BYTE, comm_,
                             &handle);
      break;
    case program::CommOp::Broadcast:
      status = MPI_Ibcast(library.recv, bytes, MPI_BYTE, library.root, comm_, &handle);
      break;
    case program::CommOp::Barrier:
      status = MPI_Ibarrier(comm_, &handle);
      break;
    default:
      throw InvariantError("the library algorithm is offered only where nothing is reduced");
  }
  check_mpi(status, call.operation, call.group);
  return number_of(handle);
}

}  // namespace

std::unique_ptr<Channel> make_mpi_channel() {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup", "world");
  return std::make_unique<MpiChannel>(comm, "world");
}

}  // namespace meshplan::runtime
