// What is made slow on one rank of a real run is found in its trace, with its rank.
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <thread>

#include "comm/forwarding_communicator.hpp"
#include "comm/host_communicator.hpp"
#include "cpu_backend.hpp"
#include "mpi_test_session.hpp"
#include "runtime/parity/parity_support.hpp"
#include "runtime/temporary_folder.hpp"
#include "runtime/train/train.hpp"
#include "sim/engine/delay_causes.hpp"

namespace meshplan::test {
namespace {

using runtime::Communicator;
using runtime::ConstBuffer;
using runtime::Handle;
using runtime::MutableBuffer;
using std::chrono::duration;

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(duration<double>(seconds));
}

/// Attention takes longer by so much.
class LateBackend final : public kernels::CpuBackend {
 public:
  explicit LateBackend(double seconds)
      : CpuBackend(1, kernels::best_cpu_isa()), seconds_(seconds) {}
  void run(const kernels::Operation& operation) override {
    CpuBackend::run(operation);
    if (seconds_ > 0 && std::get_if<kernels::AttentionForward>(&operation) != nullptr)
      sleep_seconds(seconds_);
  }

 private:
  double seconds_;
};

/// Moves no more than so many bytes a second, and its groups neither.
class CappedCommunicator final : public runtime::ForwardingCommunicator {
 public:
  CappedCommunicator(std::unique_ptr<Communicator> inner, double bytes_per_s)
      : ForwardingCommunicator(std::move(inner)), bytes_per_s_(bytes_per_s) {}

  std::unique_ptr<Communicator> create_group(std::span<const int> ranks,
                                             std::string_view name) override {
    auto group = inner().create_group(ranks, name);
    if (group == nullptr) return nullptr;
    return std::make_unique<CappedCommunicator>(std::move(group), bytes_per_s_);
  }
  Handle all_reduce(ConstBuffer send, MutableBuffer recv, runtime::ReduceOp op) override {
    return after(send.bytes(), [&] { return inner().all_reduce(send, recv, op); });
  }
  Handle reduce_scatter(ConstBuffer send, MutableBuffer recv, runtime::ReduceOp op) override {
    return after(send.bytes(), [&] { return inner().reduce_scatter(send, recv, op); });
  }
  Handle all_gather(ConstBuffer send, MutableBuffer recv) override {
    return after(recv.bytes(), [&] { return inner().all_gather(send, recv); });
  }
  Handle send(ConstBuffer buffer, int peer, int tag) override {
    return after(buffer.bytes(), [&] { return inner().send(buffer, peer, tag); });
  }

 private:
  template <class Start>
  Handle after(std::int64_t bytes, Start start) {
    if (bytes_per_s_ > 0 && size() > 1) sleep_seconds(static_cast<double>(bytes) / bytes_per_s_);
    return start();
  }

  double bytes_per_s_;
};

struct Injected {
  int rank = 0;
  double attention_s = 0;  // longer, each time
  double bytes_per_s = 0;  // 0: as they are
};

program::Plan attributed_plan() {
  program::Plan plan;
  plan.model = llama_style();
  plan.parallel = {.tp = 2, .dp = 2};
  plan.workload.seq_len = 16;
  plan.workload.global_batch_size = 8;
  return plan;
}

/// The trace of a run, on rank 0.
program::Trace traced(const Injected& injected, const std::string& text) {
  auto inner = runtime::make_host_world(mpi_session(), {});
  const bool here = inner->rank() == injected.rank;
  CappedCommunicator world(std::move(inner), here ? injected.bytes_per_s : 0);
  LateBackend backend(here ? injected.attention_s : 0);
  runtime::HostDevice device(backend);
  runtime::TrainOptions options{.num_steps = 2, .data_path = text, .traced_steps = 2};
  options.verify_start = false;
  return runtime::train(attributed_plan(), options, world, device, nullptr,
                        [](const runtime::StepReport&) {})
      .trace;
}

/// The largest cause that is not the schedule's.
sim::DelayCause found_in(const program::Trace& trace) {
  for (const sim::DelayCause& cause : sim::delay_causes(trace))
    if (cause.kind != sim::DelayKind::Schedule) return cause;
  return {.kind = sim::DelayKind::Schedule};
}

}  // namespace

TEST_CASE("a late operation is attributed to itself and its rank", "[attribution]") {
  const TemporaryFolder folder;
  const std::string text = folder.path() + "/text.txt";
  std::ofstream(text) << std::string(100000, 'x');
  for (int rank = 0; rank < 4; ++rank) {
    const program::Trace trace = traced({.rank = rank, .attention_s = 0.03}, text);
    if (trace.spans.empty()) continue;  // not on rank 0
    const sim::DelayCause cause = found_in(trace);
    INFO("late on rank " << rank << ", found " << cause.operation << " on rank " << cause.rank);
    CHECK(cause.kind == sim::DelayKind::Operation);
    CHECK(cause.rank == rank);
    CHECK(cause.operation == "attention");
  }
}

TEST_CASE("a slow link is attributed to transfers of its rank", "[attribution]") {
  const TemporaryFolder folder;
  const std::string text = folder.path() + "/text.txt";
  std::ofstream(text) << std::string(100000, 'x');
  for (int rank = 0; rank < 4; ++rank) {
    const program::Trace trace = traced({.rank = rank, .bytes_per_s = 1e6}, text);
    if (trace.spans.empty()) continue;  // not on rank 0
    const sim::DelayCause cause = found_in(trace);
    INFO("slow on rank " << rank << ", found " << cause.operation << " on rank " << cause.rank);
    CHECK(cause.kind == sim::DelayKind::Transfer);
    CHECK(cause.rank == rank);
  }
}

}  // namespace meshplan::test
