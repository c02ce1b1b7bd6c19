// Stand-ins for libcudart and libnccl: what runtime/cuda calls, without a GPU. They are linked in
// place of the libraries, so that errors come when a test asks for them.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <map>
#include <string>
#include <vector>

namespace meshplan::test {

struct FakeCuda {
  cudaError_t device_count_status = cudaSuccess;
  int num_devices = 2;
  int driver_version = 13000;         // 0 = no driver
  bool queues_end = true;             // false: what is queued never finishes
  cudaError_t failure = cudaSuccess;  // of what is queued
  bool peers_have_atomics = true;
  int num_streams = 0;  // that are alive
  bool capturing = false;
  /// Communicators whose work a graph holds, or what is being captured (null).
  std::multimap<void*, ncclComm_t> captured;
};

struct FakeNccl {
  std::vector<ncclComm_t> alive;
  std::vector<ncclComm_t> aborted;
  std::vector<ncclComm_t> destroyed;
  std::map<ncclComm_t, ncclResult_t> states;  // absent = ncclSuccess
  bool init_ends = true;                      // false: a rank never joins
  ncclResult_t split_result = ncclSuccess;
  std::string last_error;
  int collectives = 0;
  std::vector<ncclComm_t> finalizing;  // that wait for graphs with their work to go
};

FakeCuda& fake_cuda();
FakeNccl& fake_nccl();
/// As new; each test starts with it.
void reset_fakes();

}  // namespace meshplan::test
