// The walk over the unsharded graph, which prices runs of any stack, and the lowering, which our
// runtime executes, multiply the same matrices and pass the same bytes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "models/model_spec.hpp"
#include "program/cost/cost.hpp"
#include "program/lower/lower.hpp"
#include "stacks/stage_work.hpp"

namespace meshplan::sim {
namespace {

using program::CollectiveOp;

constexpr double kStatistics = 3 * 4 * 1024;  // three fp32 values for each of 1024 tokens

struct Work {
  std::vector<double> products;  // m n k of each
  std::vector<double> bytes;     // that a rank passes into each tensor-parallel collective
  double statistics = 0;         // of the cross entropy, in one collective or in three

  void pass(double message) {
    if (message <= kStatistics)
      statistics += message;
    else
      bytes.push_back(message);
  }
  void sort() {
    std::ranges::sort(products);
    std::ranges::sort(bytes);
  }
};

program::Plan plan_of(const std::string& model, const program::ParallelConfig& parallel,
                      bool recompute) {
  program::Plan plan;
  plan.model = models::load_preset(model);
  plan.model.num_layers = 2;
  plan.workload.seq_len = 1024;
  plan.workload.precision = DType::BF16;
  plan.workload.global_batch_size = 1;
  plan.parallel = parallel;
  if (recompute) plan.recompute.kind = program::RecomputeKind::Full;
  return plan;
}

/// "linear.forward bf16 m=1024 n=768 k=256": the product of its sizes; 0 if it is no linear.
double product_of(const std::string& signature) {
  if (signature.rfind("linear.", 0) != 0) return 0;
  double product = 1;
  std::istringstream words(signature);
  for (std::string word; words >> word;)
    if (const auto equals = word.find('='); equals != std::string::npos)
      if (std::isdigit(static_cast<unsigned char>(word[equals + 1])) != 0)
        product *= std::stod(word.substr(equals + 1));
  return product;
}

Work lowered(const program::Plan& plan) {
  const program::Program program = program::lower(plan, 0);
  Work work;
  for (const auto& instance : program.instances) {
    if (instance.microbatch != 0) continue;
    const program::Operation& operation = program::operation_of(program, instance);
    if (std::holds_alternative<program::ComputeOp>(operation.work)) {
      const double product = product_of(program::signature(program, instance));
      if (product > 0) work.products.push_back(product);
    }
    if (const auto* collective = std::get_if<CollectiveOp>(&operation.work))
      if (collective->group == program::Group::Tp)
        work.pass(static_cast<double>(program::message_bytes(program, instance)));
  }
  work.sort();
  return work;
}

void add(Work& work, const std::vector<WorkItem>& items, double times) {
  for (const WorkItem& item : items)
    for (int i = 0; i < times; ++i) {
      if (item.kind == WorkKind::Product) work.products.push_back(item.m * item.n * item.k);
      if (item.kind == WorkKind::Collective && item.group == program::Group::Tp)
        work.pass(item.bytes);
    }
}

Work walked(const program::Plan& plan) {
  TrainingRun run;
  run.model = plan.model;
  run.parallel = plan.parallel;
  run.seq_len = plan.workload.seq_len;
  run.global_batch_size = plan.workload.global_batch_size;
  if (plan.recompute.kind == program::RecomputeKind::Full) run.recompute = RunRecompute::Full;
  const StageWork stage = stage_work(run, models::build_graph(run.model),
                                     load_execution_profile("meshplan"), StageCut::Even);
  Work work;
  const auto add_layer = [&](const LayerWork& layer, double times) {
    for (const auto* items : {&layer.forward, &layer.recompute, &layer.backward})
      add(work, *items, times);
  };
  for (const LayerCount& layers : stage.stages.front().front().layers)
    add_layer(stage.works[static_cast<std::size_t>(layers.work)], layers.count);
  add_layer(stage.embedding, 1);
  add_layer(stage.head, 1);
  work.sort();
  return work;
}

}  // namespace

TEST_CASE("The walk and the lowering multiply the same matrices", "[sim][work]") {
  for (const std::string model : {"llama3-8b", "gpt2-xl", "gpt3-175b"})
    for (const program::ParallelConfig& parallel :
         {program::ParallelConfig{}, program::ParallelConfig{.tp = 2},
          program::ParallelConfig{.tp = 4, .sp = true}})
      for (const bool recompute : {false, true}) {
        if (model == "gpt2-xl" && parallel.tp > 1) continue;  // 25 heads
        const program::Plan plan = plan_of(model, parallel, recompute);
        INFO(model << " " << to_string(parallel) << (recompute ? ", recomputed" : ""));
        CHECK(walked(plan).products == lowered(plan).products);
      }
}

TEST_CASE("The walk and the lowering pass the same bytes to tensor-parallel ranks", "[sim][work]") {
  for (const std::string model : {"llama3-8b", "gpt3-175b"})
    for (const program::ParallelConfig& parallel :
         {program::ParallelConfig{.tp = 2}, program::ParallelConfig{.tp = 4, .sp = true}})
      for (const bool recompute : {false, true}) {
        const program::Plan plan = plan_of(model, parallel, recompute);
        INFO(model << " " << to_string(parallel) << (recompute ? ", recomputed" : ""));
        CHECK(walked(plan).bytes == lowered(plan).bytes);
        CHECK(walked(plan).statistics == lowered(plan).statistics);
      }
}

}  // namespace meshplan::sim
