// On a device with queues, every buffer that one lane hands to another is handed over in order, for
// every plan of the parity matrix: proven on a device that records what is queued.
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <map>
#include <set>

#include "execute/executor.hpp"
#include "execute/issue_order.hpp"
#include "program/checks/check.hpp"
#include "program/cost/cost.hpp"
#include "program/lower/lower.hpp"
#include "program/memory/address.hpp"
#include "program/plans.hpp"
#include "runtime/execute/recording_device.hpp"
#include "support/posting_waits.hpp"
#include "train/trainer.hpp"

namespace meshplan::test {
namespace {

using program::CommunicationDriver;
using program::ParallelConfig;
using program::Plan;
using program::Program;
using program::test::gpt2_style;
using program::test::llama_style;
using runtime::IssueRules;

constexpr IssueRules kDeviceDriven{.queues = true, .communications = CommunicationDriver::Device};
constexpr IssueRules kHostDriven{.queues = true, .communications = CommunicationDriver::Host};
constexpr IssueRules kDeviceCaptured{
    .queues = true, .communications = CommunicationDriver::Device, .capture = true};
constexpr IssueRules kHostCaptured{
    .queues = true, .communications = CommunicationDriver::Host, .capture = true};

/// A rank of the plan on a recording device.
struct Rank {
  Rank(Program lowered, int rank, const IssueRules& rules)
      : program(std::move(lowered)),
        device(rules),
        world(make_recording_world(rank, program.plan.parallel.world_size(), &device)),
        host_world(make_recording_world(rank, program.plan.parallel.world_size(), nullptr)),
        programs{&program},
        groups(*world, *host_world, programs),
        arena(device.backend(), programs, &device),
        executor(program, device, arena, groups, nullptr) {
    const auto tokens =
        static_cast<std::size_t>(program.plan.num_microbatches() * program.sizes.tokens);
    batch.ids.resize(tokens);
    batch.targets.resize(tokens);
    device.synchronize();
  }

  void step() {
    ++steps;
    executor.run(batch, {.optimizer_step = steps, .learning_rate = 1e-3 * steps});
  }

  Program program;
  RecordingDevice device;
  std::unique_ptr<runtime::Communicator> world;
  std::unique_ptr<runtime::Communicator> host_world;
  std::vector<const Program*> programs;
  runtime::Groups groups;
  runtime::Arena arena;
  runtime::Executor executor;
  runtime::StepBatch batch;
  int steps = 0;
};

Plan make_plan(const models::ModelSpec& model, const ParallelConfig& parallel) {
  Plan plan = program::test::make_plan(model, parallel, /*num_microbatches=*/4);
  plan.bucket_bytes = 64 << 10;
  return plan;
}

std::vector<Plan> all_plans(const models::ModelSpec& model) {
  std::vector<Plan> plans;
  for (const int tp : {1, 2, 4})
    for (const bool sp : {false, true})
      for (const int pp : {1, 2, 4})
        for (const int dp : {1, 2})
          for (const auto schedule :
               {program::ScheduleKind::OneFOneB, program::ScheduleKind::GPipe}) {
            if ((sp && tp == 1) || (pp == 1 && schedule == program::ScheduleKind::GPipe)) continue;
            Plan plan = make_plan(model, {.tp = tp, .pp = pp, .dp = dp, .sp = sp});
            plan.schedule = schedule;
            const auto turn = plans.size();  // recompute and precision take turns
            plan.recompute.kind = static_cast<program::RecomputeKind>(turn % 3);
            plan.workload.precision = turn % 2 == 0 ? DType::BF16 : DType::F32;
            plans.push_back(plan);
          }
  return plans;
}

/// As make_plan, for chunks, split backwards and folded pipelines. What a rank executes does not
/// depend on dp beyond its collectives, so that each stage's first rank stands for all.
std::vector<Plan> scheduled_plans() {
  std::vector<Plan> plans = program::test::scheduled_plans();
  for (Plan& plan : plans) plan.bucket_bytes = 64 << 10;
  return plans;
}

/// Mixtures of experts over ep and etp, with and without a pipeline.
std::vector<Plan> expert_plans() {
  models::ModelSpec model = llama_style();
  model.name = "mixtral-style";
  model.ffn_size = 0;
  model.moe = models::MoeSpec{.num_experts = 8, .top_k = 2, .expert_ffn_size = 32};
  std::vector<Plan> plans;
  for (const ParallelConfig& parallel :
       {ParallelConfig{}, ParallelConfig{.dp = 4, .ep = 2},
        ParallelConfig{.pp = 2, .dp = 2, .ep = 2},
        ParallelConfig{.tp = 2, .pp = 2, .dp = 2, .ep = 4, .sp = true},
        ParallelConfig{.tp = 2, .pp = 2, .dp = 2, .ep = 2, .etp = 2, .sp = true}}) {
    Plan plan = make_plan(model, parallel);
    plan.recompute.kind = static_cast<program::RecomputeKind>(plans.size() % 3);
    plans.push_back(plan);
    if (parallel.ep < 4) continue;
    plan.expert_node_ranks = 2;
    plans.push_back(plan);
  }
  return plans;
}

/// Compressed gradients, also of ZeRO's owners.
std::vector<Plan> compressed_plans() {
  std::vector<Plan> plans;
  for (const auto kind : {program::CompressionKind::Int8, program::CompressionKind::TopK})
    for (const ParallelConfig& parallel :
         {ParallelConfig{.dp = 4}, ParallelConfig{.tp = 2, .pp = 2, .dp = 2, .sp = true}})
      for (const int zero_stage : {0, 1, 2, 3}) {
        Plan plan = make_plan(gpt2_style(), parallel);
        plan.compression = {.kind = kind, .ratio = 0.1};
        plan.zero_stage = zero_stage;
        plans.push_back(plan);
      }
  plans.push_back(plans.front());
  plans.back().workload.precision = DType::F16;
  return plans;
}

std::vector<Plan> offloaded_plans() {
  std::vector<Plan> plans;
  for (const int zero_stage : {0, 1, 2, 3})
    for (const DType precision : {DType::F32, DType::BF16}) {
      Plan plan = make_plan(llama_style(), {.tp = 2, .pp = 2, .dp = 2, .sp = true});
      plan.workload.precision = precision;
      plan.zero_stage = zero_stage;
      plan.offload_optimizer = true;
      plan.bucket_bytes = 16 << 10;  // many pieces
      plans.push_back(plan);
      plan.offload_activations = 2;
      plans.push_back(plan);
      plan.offload_parameters = zero_stage == 3;
      if (plan.offload_parameters) plans.push_back(plan);
    }
  return plans;
}

/// One rank for each stage: ranks of a stage run the same program.
void check_order(const Plan& plan, const IssueRules& rules, int steps) {
  for (int stage = 0; stage < plan.parallel.pp; ++stage) {
    const int rank = stage * plan.parallel.world_size() / plan.parallel.pp;
    REQUIRE(runtime::stage_of(plan, rank) == stage);
    Rank job(program::lower(plan, stage), rank, rules);
    for (int i = 0; i < steps; ++i) job.step();
    INFO(plan.model.name << " " << program::to_string(plan.parallel) << " stage " << stage);
    CHECK(job.device.errors() == std::vector<std::string>{});
  }
}

}  // namespace

TEST_CASE("Lanes hand buffers over in order, whoever drives communications", "[runtime][device]") {
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()})
    for (const Plan& plan : all_plans(model)) {
      check_order(plan, kDeviceDriven, 1);
      check_order(plan, kHostDriven, 1);
    }
}

TEST_CASE("Captured regions keep the order and hold no work of the host", "[runtime][device]") {
  constexpr int kSteps = 3;  // warm-up, capture, replay
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()})
    for (const Plan& plan : all_plans(model)) {
      check_order(plan, kDeviceCaptured, kSteps);
      check_order(plan, kHostCaptured, kSteps);
    }
}

TEST_CASE("Every schedule hands buffers over in order", "[runtime][device]") {
  for (const Plan& plan : scheduled_plans()) {
    CAPTURE(program::test::describe(plan));
    check_order(plan, kDeviceDriven, 1);
    check_order(plan, kHostDriven, 1);
  }
}

TEST_CASE("Captured regions of every schedule keep the order", "[runtime][device]") {
  constexpr int kSteps = 3;    // warm-up, capture, replay
  bool device_drives = false;  // in turns: the test above has each plan both ways
  for (const Plan& plan : scheduled_plans()) {
    CAPTURE(program::test::describe(plan));
    device_drives = !device_drives;
    check_order(plan, device_drives ? kDeviceCaptured : kHostCaptured, kSteps);
  }
}

TEST_CASE("Attention is told whether the plan must repeat", "[runtime][device]") {
  for (const bool deterministic : {true, false})
    for (const auto method : {program::ContextMethod::AllGather, program::ContextMethod::Ring,
                              program::ContextMethod::Ulysses})
      for (const int cp : {1, 2}) {
        Plan plan = make_plan(llama_style(), {.cp = cp});
        plan.context_parallel = method;
        plan.deterministic = deterministic;
        Rank job(program::lower(plan, 0), 0, kDeviceDriven);
        job.step();
        const auto calls = job.device.calls_of<kernels::AttentionBackward>();
        REQUIRE_FALSE(calls.empty());
        for (const kernels::AttentionBackward& call : calls)
          CHECK(call.choice.deterministic == deterministic);
      }
}

// Products of the forward pass have no E5M2 operand and write no fp32.
TEST_CASE("FP8 products of the forward pass add up fast, those of gradients do not",
          "[runtime][device][fp8]") {
  for (const auto recompute : {program::RecomputeKind::None, program::RecomputeKind::Full}) {
    Plan plan = make_plan(llama_style(), {});
    plan.model.ffn_size = 128;
    plan.workload.seq_len = 64;
    program::set_precision(plan.workload, program::Precision::Fp8);
    plan.recompute.kind = recompute;
    Rank job(program::lower(plan, 0), 0, kDeviceDriven);
    job.step();
    int forward = 0, backward = 0;
    for (const auto& product : job.device.calls_of<kernels::ScaledProduct>()) {
      const bool of_gradients = product.a_format == kernels::Float8Format::E5M2;
      ++(of_gradients ? backward : forward);
      CHECK(product.fast_accumulation == !of_gradients);
    }
    // 4 linears of 4 layers and 4 micro-batches; again, but for each layer's last
    CHECK(forward == 4 * 4 * (recompute == program::RecomputeKind::Full ? 7 : 4));
    CHECK(backward == 4 * 4 * 8);
  }
}

// NCCL does not end a communicator while a graph holds its work: the device reports it.
TEST_CASE("Graphs go before the communicators whose work they hold", "[runtime][device]") {
  const Plan plan = make_plan(llama_style(), {.tp = 2, .pp = 2, .dp = 2});
  RecordingDevice device(kDeviceCaptured);
  const auto host = make_recording_world(0, 8, nullptr);
  {
    runtime::Trainer trainer(program::lower(plan, 0),
                             program::lower(plan, 0, program::Pass::ForwardOnly), *host, device, 1,
                             nullptr);
    const auto tokens =
        static_cast<std::size_t>(plan.num_microbatches() * trainer.program().sizes.tokens);
    runtime::StepBatch batch;
    batch.ids.resize(tokens);
    batch.targets.resize(tokens);
    for (int step = 1; step <= 2; ++step) {
      trainer.train_step(batch, {.optimizer_step = step, .learning_rate = 1e-3});
      trainer.evaluate(batch);
    }
    CHECK(device.graphs_alive() == 2);
  }
  CHECK(device.graphs_alive() == 0);
  CHECK(device.errors() == std::vector<std::string>{});
}

TEST_CASE("Where parts are frozen, every schedule hands buffers over in order",
          "[runtime][device][frozen]") {
  const std::vector<std::string> parts[] = {{"embedding", "layers.0-2"},
                                            {"layers.2-5", "layers.6.self_attn"},
                                            {"*", "!*norm*.weight", "!layers.6-7.*.bias"}};
  std::size_t turn = 0;
  for (Plan plan : scheduled_plans()) {
    plan.frozen = parts[turn++ % std::size(parts)];
    if (!check(plan).empty()) continue;  // a model without biases
    CAPTURE(program::test::describe(plan), plan.frozen.back());
    check_order(plan, turn % 2 == 0 ? kDeviceDriven : kHostDriven, 2);
  }
}

TEST_CASE("Compressed gradients are handed over in order", "[runtime][device]") {
  for (const Plan& plan : compressed_plans()) {
    check_order(plan, kDeviceDriven, 1);
    check_order(plan, kHostDriven, 1);
    check_order(plan, kDeviceCaptured, 3);
  }
}

TEST_CASE("Products in FP8 are handed over in order", "[runtime][device][fp8]") {
  const std::vector<Plan> plans = program::test::float8_plans();
  for (std::size_t i = 0; i < plans.size(); i += 5) {  // some of each mesh, schedule and recompute
    CAPTURE(program::test::describe(plans[i]));
    check_order(plans[i], kDeviceDriven, 1);
    check_order(plans[i], i % 2 == 0 ? kDeviceCaptured : kHostCaptured, 3);
  }
  for (const int zero_stage : {1, 2, 3}) {
    Plan plan = make_plan(llama_style(), {.tp = 2, .dp = 4});
    program::set_precision(plan.workload, program::Precision::Fp8);
    plan.zero_stage = zero_stage;
    check_order(plan, kDeviceDriven, 1);
  }
}

// A fetch into a slot waits for the copy out of it, an update for its fetch, a copy out for its
// update: the device reports any pair of lanes that touch the same bytes without a wait.
TEST_CASE("Offloaded optimizer state is fetched, updated and stored in order",
          "[runtime][device]") {
  for (Plan& plan : offloaded_plans()) {
    check_order(plan, kDeviceDriven, 2);
    check_order(plan, kHostDriven, 2);
    check_order(plan, kDeviceCaptured, 3);
  }
  Plan plan = make_plan(llama_style(), {.dp = 2});
  plan.offload_optimizer = true;
  Program broken = program::lower(plan, 0);
  for (auto& instance : broken.instances)  // nobody waits for a copy
    if (const auto* step =
            std::get_if<program::StepOp>(&program::operation_of(broken, instance).work);
        step != nullptr && step->work == program::StepWork::OptimizerUpdate)
      instance.num_waits = 0;
  Rank job(std::move(broken), 0, kDeviceDriven);
  job.step();
  CHECK(!job.device.errors().empty());
}

TEST_CASE("Experts hand buffers over in order, and what the router decides is in no graph",
          "[runtime][device]") {
  for (const Plan& plan : expert_plans()) {
    check_order(plan, kDeviceDriven, 1);
    check_order(plan, kHostDriven, 1);
    check_order(plan, kDeviceCaptured, 3);
    check_order(plan, kHostCaptured, 3);
  }
}

namespace {

/// Every schedule over two stages of two ep ranks, with buffers for an even router alone.
std::vector<Plan> tight_expert_plans() {
  std::vector<Plan> plans = expert_plans();
  std::erase_if(plans, [](const Plan& plan) { return plan.parallel.ep == 1; });
  const models::ModelSpec model = plans.front().model;
  using program::ScheduleKind;
  for (const auto schedule :
       {ScheduleKind::GPipe, ScheduleKind::ZbH1, ScheduleKind::Interleaved,
        ScheduleKind::OverlappedOneFOneB, ScheduleKind::ZbV, ScheduleKind::DualPipeV}) {
    const bool chunks = schedule != ScheduleKind::GPipe && schedule != ScheduleKind::ZbH1;
    plans.push_back(make_plan(model, {.pp = 2, .vpp = chunks ? 2 : 1, .dp = 2, .ep = 2}));
    plans.back().schedule = schedule;
    plans.back().model.num_layers = 4;
    plans.back().recompute.kind = static_cast<program::RecomputeKind>(plans.size() % 3);
  }
  for (Plan& plan : plans) plan.expert_imbalance = 1;
  return plans;
}

}  // namespace

TEST_CASE("Room for rows beyond the plan is handed from use to use in order",
          "[runtime][device][room]") {
  for (const Plan& plan : tight_expert_plans())
    for (const IssueRules& rules : {kDeviceDriven, kHostDriven, kDeviceCaptured, kHostCaptured}) {
      CAPTURE(program::test::describe(plan));
      Rank job(program::lower(plan, 0), 0, rules);
      const int planned = job.device.allocations();
      job.device.send_more_rows(2);
      job.step();
      const int in_use = job.device.allocations();
      CHECK(in_use > planned);
      job.step();  // captures; the same rows again need nothing new
      job.step();  // replays
      CHECK(job.device.allocations() == in_use);
      job.device.send_more_rows(1);
      job.step();  // an even router's rows lie in the plan's buffers again
      CHECK(job.device.allocations() == planned);
      CHECK(job.device.errors() == std::vector<std::string>{});
    }
}

TEST_CASE("A lost mark of the room for rows is noticed", "[runtime][device][room]") {
  // In other schedules a layer's later work on the compute lane has waited for its exchanges.
  const Plan plan = tight_expert_plans().back();
  REQUIRE(plan.schedule == program::ScheduleKind::DualPipeV);
  Rank job(program::lower(plan, 0), 0, kDeviceDriven);
  job.device.lose_marks_from(runtime::issue_order(job.program, kDeviceDriven).num_marks);
  job.device.send_more_rows(2);
  job.step();
  CHECK_FALSE(job.device.errors().empty());
}

TEST_CASE("What a step reports of rows beyond the plan is what it allocated",
          "[runtime][device][room]") {
  Plan plan = tight_expert_plans().front();
  plan.recompute.kind = program::RecomputeKind::None;
  Rank job(program::lower(plan, 0), 0, kDeviceDriven);
  job.device.send_more_rows(2);
  const program::RowsBeyondPlan beyond = job.executor.run(job.batch, {}).rows_beyond_plan;
  CHECK(beyond.layer_visits == plan.model.num_layers * plan.num_microbatches());
  CHECK(beyond.largest_imbalance == 2);
  // At least what layers keep for one micro-batch: rows, the gate's two halves, what it gives.
  const std::int64_t row_bytes = (64 + 2 * 32 + 32) * size_of(plan.workload.precision);
  const std::int64_t kept = plan.model.num_layers * 2 * program::balanced_rows(plan) * row_bytes;
  CHECK(beyond.bytes >= static_cast<double>(kept));
  CHECK(beyond.bytes <= 3 * static_cast<double>(kept));
}

TEST_CASE("Too little memory for rows beyond the plan is said with what helps",
          "[runtime][device][room]") {
  for (const bool says_so : {true, false}) {  // or only when it is asked for it
    Rank job(program::lower(tight_expert_plans().front(), 0), 0, kDeviceDriven);
    job.device.send_more_rows(2);
    constexpr std::int64_t kLittle = 4096;
    job.device.limit_memory(says_so ? kLittle : kLittle << 20, kLittle);
    using Catch::Matchers::Contains;
    CHECK_THROWS_WITH(job.step(), Contains("stage 0, layer 0, micro-batch 0") &&
                                      Contains("sends 64 rows") && Contains("2.00 times") &&
                                      Contains("buffers for 32") && Contains("0.03 MiB wanted") &&
                                      Contains(says_so ? "0.00 MiB free" : "4096.00 MiB free") &&
                                      Contains("expert_imbalance") &&
                                      Contains("--expert-imbalance") && Contains("recomputation"));
  }
}

TEST_CASE("A step whose communications are queued is one graph after the batch is loaded",
          "[runtime][device]") {
  const Plan plan = make_plan(llama_style(), {.tp = 2, .pp = 2, .dp = 2});
  Rank rank(program::lower(plan, 0), 0, kDeviceCaptured);
  rank.step();
  CHECK(rank.device.graphs_captured() == 0);  // libraries warm up first
  rank.step();
  CHECK(rank.device.graphs_captured() == 1);
  CHECK(rank.device.graphs_replayed() == 0);
  rank.device.take_calls();
  rank.step();
  CHECK(rank.device.graphs_captured() == 1);
  CHECK(rank.device.graphs_replayed() == 1);
  CHECK(rank.device.take_calls().empty());  // nothing is launched one by one any more
  const auto static_instances = static_cast<int>(rank.program.instances.size()) - 1;
  CHECK(rank.device.entries_in_graphs() >= static_instances - 2);  // some touch no device memory
  rank.executor.set_tracing(true);  // times are taken at single operations
  rank.step();
  CHECK(rank.device.graphs_replayed() == 1);
  CHECK_FALSE(rank.device.take_calls().empty());
}

TEST_CASE("Experts that exchange no rows are in that graph, and the host waits for none",
          "[runtime][device]") {
  const Plan plan = expert_plans().front();
  REQUIRE(plan.parallel.ep == 1);
  Rank rank(program::lower(plan, 0), 0, kDeviceCaptured);
  for (int i = 0; i < 3; ++i) {
    const int waits = rank.device.host_waits();
    rank.step();
    CHECK(rank.device.host_waits() - waits == 2);  // at its end: for the losses and the load
  }
  CHECK(rank.device.graphs_captured() == 1);
  CHECK(rank.device.graphs_replayed() == 1);
  CHECK(rank.device.errors() == std::vector<std::string>{});
}

TEST_CASE("Experts that exchange rows make the host wait once, for their number",
          "[runtime][device]") {
  const Plan plan = make_plan(expert_plans().front().model, {.dp = 4, .ep = 2});
  Rank rank(program::lower(plan, 0), 0, kDeviceDriven);
  const int before = rank.device.host_waits();
  rank.step();
  const int visits = plan.model.num_layers * plan.num_microbatches();
  CHECK(rank.device.host_waits() - before == visits + 2);
}

TEST_CASE("Communications of the host end a region", "[runtime][device]") {
  const Plan plan = make_plan(llama_style(), {.tp = 2, .pp = 2});
  Rank rank(program::lower(plan, 1), 2, kHostCaptured);
  rank.step();
  rank.step();
  CHECK(rank.device.graphs_captured() > 8);
  CHECK(rank.device.errors() == std::vector<std::string>{});
}

TEST_CASE("Launches are the same in every step", "[runtime][device]") {
  // The learning rate and the optimizer's step differ: they must not be part of a launch.
  for (const auto optimizer : {program::OptimizerKind::AdamW, program::OptimizerKind::Sgd}) {
    Plan plan = make_plan(gpt2_style(), {.tp = 2, .dp = 2});
    plan.workload.optimizer.kind = optimizer;
    Rank rank(program::lower(plan, 0), 0, kDeviceDriven);
    rank.device.take_calls();
    rank.step();
    const auto first = rank.device.take_calls();
    rank.step();
    CHECK(first.size() > 100);
    CHECK(first == rank.device.take_calls());
  }
}

namespace {

/// Most communications of one lane in flight at once; fails where one of them writes what another
/// one touches, or where an operation starts before what it waits for is done.
int most_in_flight(const Program& program, int limit) {
  using runtime::Issue;
  const auto order = runtime::issue_order(program, {.in_flight = limit});
  std::map<program::Lane, std::vector<int>> in_flight;
  std::vector<bool> done(program.instances.size(), false);
  std::size_t most = 0;
  for (const Issue& issue : order.issues) {
    const auto& instance = program.instances[static_cast<std::size_t>(*issue.instance)];
    std::vector<int>& lane = in_flight[issue.lane];
    if (issue.kind == Issue::Kind::Await) {
      REQUIRE(!lane.empty());
      CHECK(lane.front() == issue.instance);
      lane.erase(lane.begin());
      done[static_cast<std::size_t>(*issue.instance)] = true;
      continue;
    }
    for (const int earlier : waits_of(program, instance))
      CHECK(done[static_cast<std::size_t>(earlier)]);
    if (!program::is_communication(program::operation_of(program, instance))) {
      done[static_cast<std::size_t>(*issue.instance)] = true;
      continue;
    }
    const program::Footprint own = program::footprint(program, instance);
    for (const int other : lane) {
      const program::Footprint theirs =
          program::footprint(program, program.instances[static_cast<std::size_t>(other)]);
      for (const auto& write : own.writes)
        for (const auto& touched : theirs.writes)
          CHECK((write.region != touched.region || write.slot != touched.slot ||
                 write.offset + write.bytes <= touched.offset ||
                 touched.offset + touched.bytes <= write.offset));
    }
    lane.push_back(*issue.instance);
    most = std::max(most, lane.size());
  }
  for (const auto& [lane, left] : in_flight) CHECK(left.empty());
  return static_cast<int>(most);
}

}  // namespace

TEST_CASE("The host has as many communications of a lane in flight as it may",
          "[runtime][device]") {
  for (const int zero : {0, 1, 2, 3})
    for (const ParallelConfig& parallel :
         {ParallelConfig{.dp = 2}, ParallelConfig{.tp = 2, .pp = 2, .dp = 2, .sp = true}}) {
      Plan plan = make_plan(llama_style(), parallel);
      plan.zero_stage = zero;
      plan.bucket_bytes = 4096;
      const Program program = program::lower(plan, 0);
      CHECK(most_in_flight(program, 1) == 1);
      CHECK(most_in_flight(program, 2) == 2);
    }
}

TEST_CASE("A dropped wait is noticed", "[runtime][device]") {
  // Where the host drives communications, what it has waited for already orders some of them twice:
  // then no pair of lanes may go unnoticed altogether.
  for (const IssueRules& rules : {kDeviceDriven, kHostDriven}) {
    std::set<std::string> pairs;
    std::set<std::string> noticed;
    int dropped = 0;
    int found = 0;
    for (const auto& [parallel, stage] :
         {std::pair{ParallelConfig{.tp = 2, .dp = 2, .sp = true}, 0},
          std::pair{ParallelConfig{.pp = 2}, 0}, std::pair{ParallelConfig{.pp = 2}, 1},
          std::pair{ParallelConfig{.pp = 2, .vpp = 2}, 0}}) {
      Plan plan = make_plan(llama_style(), parallel);
      plan.model.num_layers = 2 * parallel.vpp;
      if (parallel.vpp > 1) plan.schedule = program::ScheduleKind::DualPipeV;
      plan.workload.global_batch_size = 2 * parallel.dp;
      const Program program = program::lower(plan, stage);
      for (std::size_t i = 0; i < program.instances.size(); ++i)
        for (int w = 0; w < program.instances[i].num_waits; ++w) {
          Program broken = program;
          const int earlier = waits_of(program, program.instances[i])[static_cast<std::size_t>(w)];
          if (testing::decides_posting(program, program.instances[i], earlier)) continue;
          testing::drop_wait(broken, broken.instances[i], w);
          const auto lane = [&](std::size_t at) {
            return static_cast<int>(program::operation_of(program, program.instances[at]).lane);
          };
          const std::string pair = fmt::format("lane {} waits for lane {}", lane(i),
                                               lane(static_cast<std::size_t>(earlier)));
          pairs.insert(pair);
          Rank rank(std::move(broken), stage * plan.parallel.world_size() / plan.parallel.pp,
                    rules);
          rank.step();
          ++dropped;
          if (rank.device.errors().empty()) continue;
          ++found;
          noticed.insert(pair);
        }
    }
    INFO(found << " of " << dropped << " dropped waits were noticed");
    CHECK(pairs == noticed);
    if (rules.communications == CommunicationDriver::Device) CHECK(found == dropped);
  }
}

}  // namespace meshplan::test
