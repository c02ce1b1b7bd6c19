// What becomes of a job whose communication fails, hangs or loses a rank: all communicators are
// aborted, because their kernels would wait on the GPU for ever, and the error names the cause.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>

#include "nccl_communicator.hpp"
#include "runtime/cuda/fakes.hpp"
#include "runtime/cuda/host_world.hpp"

namespace meshplan::test {
namespace {

using Catch::Matchers::Contains;
using runtime::CommError;
using runtime::Communicator;
using runtime::cuda::NcclJob;
using runtime::cuda::NcclOptions;

constexpr Seconds kSoon{0.05};

/// Rank 0 of two with a world and a group of both.
struct Ranks {
  explicit Ranks(const NcclOptions& options = {.setup_timeout = kSoon, .hang_timeout = kSoon}) {
    reset_fakes();
    job = std::make_shared<NcclJob>(options);
  }
  void join() {
    world = runtime::cuda::make_nccl_world(*host, job);
    tp = world->create_group(std::array{0, 1}, "tp");
  }
  std::unique_ptr<Communicator> host = std::make_unique<HostWorld>(2, std::vector<int>{});
  std::shared_ptr<NcclJob> job;
  std::unique_ptr<Communicator> world;
  std::unique_ptr<Communicator> tp;
  std::array<float, 4> data{};
  runtime::MutableBuffer buffer{data.data(), 4, DType::F32};
};

/// A group's communicators are made in order: the world's, then its children's.
ncclComm_t comm_of_tp() {
  return fake_nccl().alive.at(1);
}

}  // namespace

TEST_CASE("Communicators that are no longer needed are flushed and freed", "[runtime][nccl]") {
  {
    Ranks ranks;
    ranks.join();
    ranks.tp->all_reduce(ranks.buffer, ranks.buffer, runtime::ReduceOp::Sum).wait();
    CHECK(fake_nccl().collectives == 1);
  }
  CHECK(fake_nccl().alive.empty());
  CHECK(fake_nccl().destroyed.size() == 2);
  CHECK(fake_nccl().aborted.empty());
}

TEST_CASE("An error of one communicator aborts all of the rank's", "[runtime][nccl]") {
  Ranks ranks;
  ranks.join();
  fake_cuda().queues_end = false;
  fake_nccl().states[comm_of_tp()] = ncclRemoteError;
  fake_nccl().last_error = "socket of rank 1 closed";
  auto pending = ranks.world->all_reduce(ranks.buffer, ranks.buffer, runtime::ReduceOp::Sum);
  CHECK_THROWS_WITH(pending.wait(), Contains("tp") && Contains("remote process exited") &&
                                        Contains("socket of rank 1 closed"));
  CHECK(fake_nccl().alive.empty());
  CHECK(fake_nccl().aborted.size() == 2);
  CHECK_THROWS_WITH(ranks.tp->barrier(), Contains("the group is broken"));
  ranks.tp.reset();  // what was aborted is not freed again
  ranks.world.reset();
  CHECK(fake_nccl().aborted.size() == 2);
}

TEST_CASE("A peer that is gone unnoticed is a hang, which ends the job in time",
          "[runtime][nccl]") {
  CHECK(NcclOptions{}.hang_timeout.value <= 30.0);
  Ranks ranks;
  ranks.join();
  fake_cuda().queues_end = false;
  auto pending = ranks.tp->all_gather({ranks.data.data(), 2, DType::F32}, ranks.buffer);
  CHECK_THROWS_WITH(pending.wait(), Contains("all_gather of tp") && Contains("0.05 s") &&
                                        Contains("hangs or is gone"));
  CHECK(fake_nccl().alive.empty());
  CHECK(fake_nccl().aborted.size() == 2);
  CHECK(ranks.job->aborted());
}

TEST_CASE("A caller's own limit is a timeout and breaks nothing", "[runtime][nccl]") {
  Ranks ranks({.setup_timeout = kSoon, .hang_timeout = Seconds{30.0}});
  ranks.join();
  fake_cuda().queues_end = false;
  auto pending = ranks.tp->barrier();
  CHECK_THROWS_AS(pending.wait(Seconds{0.01}), runtime::CommTimeout);
  CHECK(fake_nccl().aborted.empty());
  fake_cuda().queues_end = true;
  pending.wait();
}

TEST_CASE("Ranks that do not come to the start of NCCL are named", "[runtime][nccl]") {
  CHECK(NcclOptions{}.setup_timeout.value <= 30.0);
  Ranks ranks;
  ranks.host = std::make_unique<HostWorld>(4, std::vector<int>{1, 3});
  CHECK_THROWS_WITH(ranks.join(), Contains("ranks 1, 3 did not come within 0.05 s"));
  ranks.host = std::make_unique<HostWorld>(4, std::vector<int>{2});
  CHECK_THROWS_WITH(ranks.join(), Contains("rank 2 did not come within 0.05 s"));
  CHECK(fake_nccl().alive.empty());  // NCCL was not called
}

TEST_CASE("Ranks that NCCL does not connect end the start", "[runtime][nccl]") {
  Ranks ranks;
  fake_cuda() = {};
  fake_nccl().init_ends = false;
  fake_nccl().last_error = "no socket interface found";
  CHECK_THROWS_WITH(ranks.join(), Contains("not all ranks of the group joined within 0.05 s") &&
                                      Contains("NCCL cannot connect") &&
                                      Contains("no socket interface found"));
  CHECK(fake_nccl().alive.empty());  // also the one that was still being made
}

TEST_CASE("A group that cannot be made aborts what there was", "[runtime][nccl]") {
  Ranks ranks;
  ranks.join();
  fake_nccl().split_result = ncclSystemError;
  CHECK_THROWS_AS(ranks.world->create_group(std::array{0}, "dp"), CommError);
  CHECK(fake_nccl().alive.empty());
}

TEST_CASE("While an exception unwinds, communicators are aborted rather than flushed",
          "[runtime][nccl]") {
  try {
    Ranks ranks;
    ranks.join();
    throw std::runtime_error("elsewhere");
  } catch (const std::runtime_error&) {
  }
  CHECK(fake_nccl().alive.empty());
  CHECK(fake_nccl().destroyed.empty());
  CHECK(fake_nccl().aborted.size() == 2);
}

TEST_CASE("A failure on the GPU surfaces where the host waits", "[runtime][nccl]") {
  Ranks ranks;
  ranks.join();
  auto pending = ranks.tp->barrier();
  fake_cuda().failure = cudaErrorLaunchFailure;
  CHECK_THROWS_WITH(pending.wait(), Contains("cudaErrorLaunchFailure"));
  fake_cuda().failure = cudaSuccess;
}

}  // namespace meshplan::test
