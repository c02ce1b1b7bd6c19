// Exchanges of experts over two fabrics, measured beside predicted: ranks on processors whose
// messages take as long as links between groups of ranks would need, flat and by node. A router is
// trained without limits first, so that it sends about as much to each expert.
//   tests/tcp_ranks.sh 8 build/release/bench/runtime/two_fabrics_bench [MB/s in a node] [between]
// An exchange lasts from when the last of its ranks starts it to when the last one has ended it.
// Then steps of several micro-batches by node, one after the other and in pairs, and without
// limits.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <random>
#include <thread>
#include <unistd.h>

#include "comm/forwarding_communicator.hpp"
#include "comm/host_communicator.hpp"
#include "kernels/cpu_backend.hpp"
#include "program/lower/lower.hpp"
#include "runtime/execute/device.hpp"
#include "runtime/job/tcp_session.hpp"
#include "runtime/train/train.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/engine.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNodeRanks = 4;
constexpr int kWarmUp = 40;
constexpr int kTraced = 3;

/// Two levels of links; each rank has its own of both.
struct Fabrics {
  double within_bytes_per_s = 0;
  double between_bytes_per_s = 0;
  bool limited = false;
};

/// Is over when its messages have arrived and the links had time for them.
class LimitedOperation final : public PendingOperation {
 public:
  LimitedOperation(Handle inner, Clock::time_point end) : inner_(std::move(inner)), end_(end) {}
  bool test() override { return inner_.test() && Clock::now() >= end_; }
  void wait(std::optional<Seconds> limit) override {
    inner_.wait(limit);
    std::this_thread::sleep_until(end_);
  }

 private:
  Handle inner_;
  Clock::time_point end_;
};

/// Exchanges of rows take the time of the busier fabric; everything else is as fast as it is.
class TwoFabrics final : public ForwardingCommunicator {
 public:
  TwoFabrics(std::unique_ptr<Communicator> inner, const Fabrics& fabrics)
      : ForwardingCommunicator(std::move(inner)), fabrics_(fabrics) {}

  std::unique_ptr<Communicator> create_group(std::span<const int> ranks,
                                             std::string_view name) override {
    auto group = inner().create_group(ranks, name);
    if (group == nullptr) return nullptr;
    return std::make_unique<TwoFabrics>(std::move(group), fabrics_);
  }
  Handle all_to_all_v(ConstBuffer send, std::span<const std::int64_t> send_counts,
                      MutableBuffer recv, std::span<const std::int64_t> recv_counts) override {
    const auto start = Clock::now();
    Handle handle = inner().all_to_all_v(send, send_counts, recv, recv_counts);
    if (!fabrics_.limited) return handle;
    const double seconds =
        std::max(seconds_of(send_counts, send.dtype), seconds_of(recv_counts, recv.dtype));
    const auto end =
        start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    return Handle(PendingOperationPtr(new LimitedOperation(std::move(handle), end)));
  }

 private:
  /// Whatever leaves a rank passes its link in the node; what leaves the node, the other one, too.
  double seconds_of(std::span<const std::int64_t> counts, DType dtype) const {
    const int own = world_ranks()[static_cast<std::size_t>(rank())];
    double leaving = 0, between = 0;
    for (std::size_t peer = 0; peer < counts.size(); ++peer) {
      const auto bytes = static_cast<double>(counts[peer] * size_of(dtype));
      if (world_ranks()[peer] != own) leaving += bytes;
      if (world_ranks()[peer] / kNodeRanks != own / kNodeRanks) between += bytes;
    }
    return std::max(leaving / fabrics_.within_bytes_per_s, between / fabrics_.between_bytes_per_s);
  }

  const Fabrics& fabrics_;
};

program::Plan plan_of(int node_ranks) {
  program::Plan plan;
  plan.model = models::load_preset("tiny-moe");
  plan.model.moe->num_experts = 16;
  plan.model.moe->top_k = 4;
  plan.model.moe->expert_ffn_size = 64;
  plan.model.moe->router.aux_loss_coefficient = 0.2;
  plan.model.num_layers = 2;
  plan.parallel = {.dp = 8, .ep = 8};
  plan.workload.seq_len = 256;
  plan.workload.global_batch_size = 8;
  plan.workload.optimizer.learning_rate = 3e-4;
  plan.expert_node_ranks = node_ranks;
  return plan;
}

sim::Cluster cluster_of(const Fabrics& fabrics) {
  sim::Cluster cluster = sim::load_cluster_preset("cpu-host");
  cluster.num_nodes = 2;
  cluster.devices_per_node = kNodeRanks;
  cluster.cores_per_host = 2 * kNodeRanks;
  cluster.host_memory_gb_per_s = 0;
  sim::FabricLevel within = cluster.fabric.front();
  within.ranks_per_group = kNodeRanks;
  within.link_gb_per_s = fabrics.within_bytes_per_s / kGigabyte;
  sim::FabricLevel between = within;
  between.name = "between nodes";
  between.ranks_per_group = 0;
  between.link_gb_per_s = fabrics.between_bytes_per_s / kGigabyte;
  cluster.fabric = {within, between};
  return cluster;
}

/// Seconds a step that exchanges of rows take, by group: from when the last rank starts one to when
/// the last one has ended it.
std::map<std::string, double> exchange_seconds(const program::Trace& trace, int steps) {
  struct Times {
    double start = 0, end = 0;
    std::string group;
  };
  std::map<std::pair<int, std::uint64_t>, Times> exchanges;
  for (const program::Span& span : trace.spans) {
    // Counts, choices and probabilities are small, and their ends are seen when somebody asks.
    if (!program::exchanges_with_experts(span.lane) ||
        span.name.find("all_to_all") == span.name.npos)
      continue;
    Times& times = exchanges[{span.step, span.id}];
    times.start = std::max(times.start, span.start_s);
    times.end = std::max(times.end, span.end_s);
    times.group = span.group;
  }
  std::map<std::string, double> seconds;
  for (const auto& [key, times] : exchanges) {
    seconds[times.group] += (times.end - times.start) / steps;
    seconds["all"] += (times.end - times.start) / steps;
  }
  return seconds;
}

void compare(Communicator& all, std::unique_ptr<Communicator> world, Fabrics& fabrics,
             int node_ranks, const std::string& text) {
  program::Plan plan = plan_of(node_ranks);
  TwoFabrics limited(std::move(world), fabrics);
  const auto backend = kernels::make_cpu_backend(1);
  HostDevice device(*backend);
  TrainOptions options{.num_steps = kWarmUp, .data_path = text, .traced_steps = kTraced};
  options.verify_start = false;
  fabrics.limited = false;
  double imbalance = 1;
  const TrainResult result =
      train(plan, options, limited, device, nullptr, [&](const StepReport& step) {
        if (step.step + 1 >= kWarmUp) fabrics.limited = true;
        if (step.experts) imbalance = program::mean_ep_imbalance(*step.experts);
      });
  all.barrier().wait();
  if (all.rank() != 0) return;
  plan.expected_expert_imbalance = imbalance;
  const sim::SimulationResult predicted =
      sim::simulate(program::lower_all(plan), cluster_of(fabrics));
  const auto seconds = exchange_seconds(predicted.trace, 1);
  for (const auto& [group, measured] : exchange_seconds(result.trace, kTraced))
    fmt::print(
        "{:8} {:10} measured {:8.1f} ms   predicted {:8.1f} ms   {:+5.1f} %   imbalance {:.2f}\n",
        node_ranks > 0 ? "by node" : "flat", group, 1e3 * measured, 1e3 * seconds.at(group),
        100 * (seconds.at(group) / measured - 1), imbalance);
}

/// The median step with limited links.
double step_seconds(std::unique_ptr<Communicator> world, Fabrics& fabrics,
                    const program::Plan& plan, const std::string& text) {
  constexpr int kTimed = 7;
  TwoFabrics limited(std::move(world), fabrics);
  const auto backend = kernels::make_cpu_backend(1);
  HostDevice device(*backend);
  TrainOptions options{.num_steps = kWarmUp + kTimed, .data_path = text};
  options.verify_start = false;
  fabrics.limited = false;
  std::vector<double> seconds;
  train(plan, options, limited, device, nullptr, [&](const StepReport& step) {
    if (step.step > kWarmUp) seconds.push_back(step.seconds);
    fabrics.limited = step.step >= kWarmUp;
  });
  std::ranges::nth_element(seconds, seconds.begin() + kTimed / 2);
  return seconds[kTimed / 2];
}

void compare_pairs(Communicator& all, std::span<const int> ranks, Fabrics& fabrics,
                   const std::string& text) {
  program::Plan plan = plan_of(kNodeRanks);
  plan.workload.global_batch_size *= 4;
  plan.progress_thread = true;
  const Fabrics wanted = fabrics;
  const double one_by_one =
      step_seconds(all.create_group(ranks, "one by one"), fabrics, plan, text);
  fabrics.within_bytes_per_s = fabrics.between_bytes_per_s = 1e15;
  const double computing = step_seconds(all.create_group(ranks, "alone"), fabrics, plan, text);
  fabrics = wanted;
  plan.schedule = program::ScheduleKind::OverlappedOneFOneB;
  const double in_pairs = step_seconds(all.create_group(ranks, "in pairs"), fabrics, plan, text);
  all.barrier().wait();
  if (all.rank() != 0) return;
  fmt::print("step of 4 micro-batches by node: {:.1f} ms, {:.1f} in pairs, {:.1f} without limits\n",
             1e3 * one_by_one, 1e3 * in_pairs, 1e3 * computing);
}

}  // namespace
}  // namespace meshplan::runtime

int main(int argc, char** argv) {
  using namespace meshplan;
  const auto place = runtime::read_rendezvous([](const char* name) { return std::getenv(name); });
  if (!place) {
    fmt::print(stderr, "start it with tests/tcp_ranks.sh 8\n");
    return 1;
  }
  const runtime::TcpSession session(*place, Seconds{60});
  const auto all = runtime::make_host_world(session, {});
  const double within = argc > 1 ? std::atof(argv[1]) : 20,
               between = argc > 2 ? std::atof(argv[2]) : 2.5;
  runtime::Fabrics fabrics{.within_bytes_per_s = within * 1e6,
                           .between_bytes_per_s = between * 1e6};
  const std::string text = fmt::format("/tmp/two_fabrics_{}_{}.txt", getpid(), all->rank());
  {
    std::ofstream file(text);
    std::mt19937 random(3);
    for (int i = 0; i < 400000; ++i) file.put(static_cast<char>(random() % 256));
  }
  std::vector<int> ranks(static_cast<std::size_t>(all->size()));
  for (int i = 0; i < all->size(); ++i) ranks[static_cast<std::size_t>(i)] = i;
  for (const int node_ranks : {0, runtime::kNodeRanks})
    runtime::compare(*all, all->create_group(ranks, "job"), fabrics, node_ranks, text);
  runtime::compare_pairs(*all, ranks, fabrics, text);
  std::remove(text.c_str());
  return 0;
}
