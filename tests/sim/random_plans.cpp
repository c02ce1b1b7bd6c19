#include "sim/random_plans.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "models/model_spec.hpp"
#include "program/checks/check.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

using program::ParallelConfig;
using program::Plan;
using program::RecomputeKind;
using program::ScheduleKind;

constexpr double kMostOperations = 1.2e5;
constexpr double kOperationsOfLayer = 60;  // forward and backward

struct ScheduleName {
  ScheduleKind kind;
  const char* name;
};
constexpr std::array kSchedules = {
    ScheduleName{ScheduleKind::GPipe, "gpipe"},
    ScheduleName{ScheduleKind::OneFOneB, "1f1b"},
    ScheduleName{ScheduleKind::Interleaved, "interleaved"},
    ScheduleName{ScheduleKind::OverlappedOneFOneB, "1f1b-overlapped"},
    ScheduleName{ScheduleKind::ZbH1, "zb-h1"},
    ScheduleName{ScheduleKind::ZbV, "zb-v"},
    ScheduleName{ScheduleKind::DualPipeV, "dualpipe-v"}};

class Maker {
 public:
  explicit Maker(testing::Random& random) : random_(random) {}

  RandomPlan run() {
    while (true) {
      made_ = {};
      choose_model();
      choose_mesh();
      choose_schedule();
      choose_layers();
      choose_memory();
      if (plan().workload.global_batch_size / plan().parallel.dp > 64 * plan().micro_batch_size ||
          operations() > kMostOperations || !check(plan()).empty())
        continue;
      choose_cluster();
      name_techniques();
      return made_;
    }
  }

 private:
  Plan& plan() { return made_.plan; }
  int power(int most) { return 1 << random_.below(static_cast<std::size_t>(most) + 1); }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return *(values.begin() + random_.below(values.size()));
  }

  double operations() {
    return kOperationsOfLayer * (plan().model.num_layers + 2) * plan().num_microbatches() *
           (plan().context_parallel == program::ContextMethod::Ring ? plan().parallel.cp : 1);
  }

  void choose_model() {
    plan().model = models::load_preset(
        pick({"llama3-8b", "llama3-70b", "gpt2-xl", "gpt3-175b", "mixtral-8x7b", "qwen3-30b-a3b",
              "deepseek-v3", "qwen2.5-7b", "gemma2-2b", "gpt-oss-20b"}));
    plan().model.mtp_layers = 0;
    plan().model.num_layers = 4 + static_cast<int>(random_.below(29));
    if (plan().model.moe)
      std::erase_if(plan().model.moe->dense_layers,
                    [&](int layer) { return layer >= plan().model.num_layers; });
    program::Workload& workload = plan().workload;
    workload.precision = DType::BF16;
    workload.seq_len = 512 * power(4);
    if (random_.one_in(8)) workload.optimizer.kind = program::OptimizerKind::Sgd;
    if (random_.one_in(10) && plan().model.num_heads > 0) {
      workload.documents.packed = true;
      workload.documents.end_of_document = 0;
    }
  }

  void choose_mesh() {
    ParallelConfig& p = plan().parallel;
    p.tp = power(3);
    p.sp = p.tp > 1 && !random_.one_in(3);
    p.cp = random_.one_in(4) ? power(2) : 1;
    p.pp = power(4);
    p.dp = power(3);
    if (plan().model.moe) {
      p.ep = power(3);
      p.etp = random_.one_in(4) ? p.tp : 1;
      // By a number that is drawn already, so that a seed's other plans stay what they are.
      if (p.ep >= 4 && plan().model.num_layers % 2 == 1) plan().expert_node_ranks = p.ep / 2;
      plan().expert_dispatch_fp8 = p.ep > 1 && plan().model.num_layers % 3 == 0;
    }
    plan().context_parallel = pick({program::ContextMethod::AllGather, program::ContextMethod::Ring,
                                    program::ContextMethod::Ulysses});
    if (random_.one_in(3)) plan().zero_stage = 1 + static_cast<int>(random_.below(3));
    if (plan().zero_stage > 0 && random_.one_in(4)) plan().zero_shard_group = 2;
    // Likewise.
    if (p.cp == 1 && !plan().workload.documents.packed && plan().model.num_layers % 3 == 1 &&
        plan().model.positions == models::Positions::Rope)
      plan().model.mtp_layers = plan().model.moe ? 1 : 1 + plan().model.num_layers % 2;
    plan().micro_batch_size = power(2);
    plan().workload.global_batch_size =
        std::int64_t{p.dp} * plan().micro_batch_size * (1 + static_cast<int>(random_.below(40)));
  }

  void choose_schedule() {
    ParallelConfig& p = plan().parallel;
    if (p.pp == 1) return;
    plan().schedule = kSchedules[random_.below(kSchedules.size())].kind;
    if (plan().schedule == ScheduleKind::Interleaved) p.vpp = pick({2, 3, 4});
    if (plan().schedule == ScheduleKind::OverlappedOneFOneB) p.vpp = pick({1, 2, 3});
    if (plan().schedule == ScheduleKind::ZbV || plan().schedule == ScheduleKind::DualPipeV)
      p.vpp = 2;
  }

  void choose_layers() {
    const int parts = plan().parallel.pp * plan().parallel.vpp;
    if (parts == 1 || !random_.one_in(3)) {
      plan().count_ends_as_layers = random_.one_in(4);
      return;
    }
    std::vector<int>& layers = plan().layers_per_stage;
    layers.assign(static_cast<std::size_t>(parts), 1);
    for (int left = plan().model.num_layers - parts; left > 0; --left) ++random_.pick(layers);
  }

  void choose_memory() {
    plan().recompute.kind = pick(
        {RecomputeKind::None, RecomputeKind::None, RecomputeKind::Selective, RecomputeKind::Full});
    if (plan().recompute.kind != RecomputeKind::None && random_.one_in(3))
      plan().recompute.num_layers = 1 + static_cast<int>(random_.below(3));
    plan().offload_optimizer = random_.one_in(10);
    if (random_.one_in(10)) plan().frozen = {"embedding"};
    if (random_.one_in(4)) plan().bucket_bytes = std::int64_t{1} << (20 + random_.below(8));
  }

  void choose_cluster() {
    const int ranks = plan().parallel.world_size();
    if (ranks >= 16 && ranks % 16 == 0 && random_.one_in(8)) {
      std::vector<Cluster> halves;
      for (const char* name : {"dgx-h100", "dgx-a100"})
        halves.push_back(with_ranks(load_cluster_preset(name), ranks / 2));
      made_.cluster = joined(halves);
      return;
    }
    made_.cluster =
        with_ranks(load_cluster_preset(pick({"dgx-h100", "dgx-a100", "dgx-b200", "h100-generic",
                                             "8x-rtx4090-pcie", "gb200-nvl72", "jean-zay-a100"})),
                   ranks);
  }

  void name_techniques() {
    const ParallelConfig& p = plan().parallel;
    const auto name = [&](bool used, std::string text) {
      if (used) made_.techniques.push_back(std::move(text));
    };
    for (const ScheduleName& schedule : kSchedules)
      name(p.pp > 1 && plan().schedule == schedule.kind, schedule.name);
    name(p.pp == 1, "no pipeline");
    name(p.tp > 1, p.sp ? "tp with sp" : "tp");
    name(p.cp > 1,
         fmt::format("cp {}", plan().context_parallel == program::ContextMethod::Ring ? "ring"
                              : plan().context_parallel == program::ContextMethod::Ulysses
                                  ? "ulysses"
                                  : "all-gather"));
    name(plan().expert_node_ranks > 0, "by node");
    name(plan().expert_dispatch_fp8, "fp8 dispatch");
    name(plan().model.moe.has_value(), p.ep > 1 ? "ep" : "experts");
    name(p.etp > 1, "etp");
    name(p.dp > 1, "dp");
    name(plan().zero_stage > 0, fmt::format("zero {}", plan().zero_stage));
    name(plan().zero_shard_group > 0, "zero in groups");
    name(!plan().layers_per_stage.empty(), "uneven");
    name(plan().recompute.kind == RecomputeKind::Selective, "recompute selective");
    name(plan().recompute.kind == RecomputeKind::Full, "recompute full");
    name(plan().recompute.num_layers.has_value(), "recompute of some layers");
    name(plan().offload_optimizer, "offload");
    name(!plan().frozen.empty(), "frozen");
    name(plan().workload.documents.packed, "packed");
    name(!made_.cluster.other_nodes.empty(), "mixed nodes");
  }

  testing::Random& random_;
  RandomPlan made_;
};

}  // namespace

RandomPlan random_plan(testing::Random& random) {
  return Maker(random).run();
}

}  // namespace meshplan::sim
