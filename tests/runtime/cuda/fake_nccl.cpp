#include <algorithm>
#include <cstdlib>

#include "runtime/cuda/fakes.hpp"

namespace meshplan::test {

FakeNccl& fake_nccl() {
  static FakeNccl nccl;
  return nccl;
}

void reset_fakes() {
  fake_cuda() = {};
  fake_nccl() = {};
}

}  // namespace meshplan::test

using meshplan::test::fake_cuda;
using meshplan::test::fake_nccl;

namespace {

ncclComm_t new_comm() {
  auto* comm = reinterpret_cast<ncclComm_t>(std::malloc(1));
  fake_nccl().alive.push_back(comm);
  return comm;
}

/// Whoever ends a communicator twice, or one that never was, has a bug: it is not in `alive`.
ncclResult_t end_comm(ncclComm_t comm, std::vector<ncclComm_t>& ended) {
  if (std::erase(fake_nccl().alive, comm) != 1) std::abort();
  ended.push_back(comm);  // its address stays taken: a test compares it
  return ncclSuccess;
}

ncclResult_t collective(ncclComm_t comm) {
  ++fake_nccl().collectives;
  if (fake_cuda().capturing) fake_cuda().captured.emplace(nullptr, comm);
  return ncclSuccess;
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error"
                                   : "an NCCL error";
}
const char* ncclGetLastError(ncclComm_t /*comm*/) {
  return fake_nccl().last_error.c_str();
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int /*ranks*/, ncclUniqueId /*id*/,
                                    int /*rank*/, ncclConfig_t* config) {
  if (config->blocking != 0) std::abort();  // a blocking call could hold the host for ever
  *comm = new_comm();
  if (!fake_nccl().init_ends) fake_nccl().states[*comm] = ncclInProgress;
  return ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t /*parent*/, int color, int /*key*/, ncclComm_t* child,
                           ncclConfig_t* /*config*/) {
  if (fake_nccl().split_result != ncclSuccess) return fake_nccl().split_result;
  if (color != NCCL_SPLIT_NOCOLOR) *child = new_comm();
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const auto is_this = [&](const auto& one) { return one.second == comm; };
  if (std::ranges::find(fake_nccl().finalizing, comm) != fake_nccl().finalizing.end() &&
      std::ranges::any_of(fake_cuda().captured, is_this)) {
    *state = ncclInProgress;
    return ncclSuccess;
  }
  const auto found = fake_nccl().states.find(comm);
  *state = found == fake_nccl().states.end() ? ncclSuccess : found->second;
  return ncclSuccess;
}
/// Ends once no graph holds work of the communicator (NCCL 2.28.9, init.cc).
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  fake_nccl().finalizing.push_back(comm);
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return end_comm(comm, fake_nccl().destroyed);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return end_comm(comm, fake_nccl().aborted);
}
ncclResult_t ncclGroupStart() {
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* /*send*/, void* /*recv*/, std::size_t /*count*/,
                           ncclDataType_t /*type*/, ncclRedOp_t /*op*/, ncclComm_t comm,
                           cudaStream_t /*stream*/) {
  return collective(comm);
}
ncclResult_t ncclReduceScatter(const void* /*send*/, void* /*recv*/, std::size_t /*count*/,
                               ncclDataType_t /*type*/, ncclRedOp_t /*op*/, ncclComm_t comm,
                               cudaStream_t /*stream*/) {
  return collective(comm);
}
ncclResult_t ncclAllGather(const void* /*send*/, void* /*recv*/, std::size_t /*count*/,
                           ncclDataType_t /*type*/, ncclComm_t comm, cudaStream_t /*stream*/) {
  return collective(comm);
}
ncclResult_t ncclBroadcast(const void* /*send*/, void* /*recv*/, std::size_t /*count*/,
                           ncclDataType_t /*type*/, int /*root*/, ncclComm_t comm,
                           cudaStream_t /*stream*/) {
  return collective(comm);
}
ncclResult_t ncclSend(const void* /*buffer*/, std::size_t /*count*/, ncclDataType_t /*type*/,
                      int /*peer*/, ncclComm_t comm, cudaStream_t /*stream*/) {
  return collective(comm);
}
ncclResult_t ncclRecv(void* /*buffer*/, std::size_t /*count*/, ncclDataType_t /*type*/,
                      int /*peer*/, ncclComm_t comm, cudaStream_t /*stream*/) {
  return collective(comm);
}
