// Checkpoints: what is saved under one plan is loaded under any other, and training goes on from
// it.
#include <catch2/catch.hpp>

#include "runtime/weights/checkpoint_job.hpp"

namespace meshplan::test {
namespace {

using Catch::Matchers::Contains;

}  // namespace

TEST_CASE("a resumed run equals an uninterrupted one bit for bit under the same plan",
          "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()})
    for (const DType precision : {DType::F32, DType::BF16})
      for (const ParallelConfig& parallel : meshes_of(world->size()))
        check_resumed_equals(*world, checkpoint_plan(model, parallel, precision));
}

namespace {

struct ChainLink {
  ParallelConfig parallel;
  int zero_stage = 0;
  int zero_shard_group = 0;
};

/// Each plan loads what the plan before it saved, so every one is source and target: all save the
/// same values and go on to the same loss.
void check_chain(runtime::Communicator& world, const models::ModelSpec& model,
                 const std::vector<ChainLink>& chain, DType precision = DType::F32,
                 const std::vector<std::string>& frozen = {}) {
  std::map<std::string, std::vector<float>> expected;
  double next_loss = 0;
  std::string previous;
  std::vector<std::unique_ptr<SharedFolder>> folders;
  for (const ChainLink& link : chain) {
    folders.push_back(std::make_unique<SharedFolder>(world));
    const auto group = first_ranks(world, link.parallel.world_size());
    CAPTURE(model.name, program::to_string(link.parallel), link.zero_stage, link.zero_shard_group,
            name_of(precision));
    if (group != nullptr) {
      Plan plan = checkpoint_plan(model, link.parallel, precision);
      plan.zero_stage = link.zero_stage;
      plan.zero_shard_group = link.zero_shard_group;
      plan.bucket_bytes = 64 << 10;
      plan.expert_imbalance = 8;
      plan.frozen = frozen;
      CheckpointJob job(plan, *group, folders.back()->path());
      if (previous.empty())
        for (int step = 1; step <= 2; ++step) job.step(step);
      else
        job.load(previous);
      job.save(2);
      job.wait();
      const double loss = job.step(3);
      if (previous.empty()) next_loss = loss;
      // In bf16 another order of sums rounds otherwise.
      CHECK(loss == Approx(next_loss).epsilon(precision == DType::F32 ? 1e-6 : 1e-3));
    }
    world.broadcast({&next_loss, 1, DType::F64}, 0).wait();
    world.barrier().wait();
    previous = folders.back()->path() + "/step-2";
    if (expected.empty()) expected = contents(previous);
    CHECK(contents(previous) == expected);
  }
}

}  // namespace

TEST_CASE("what one plan saves, every other loads", "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  std::vector<ChainLink> chain;
  for (const ParallelConfig& parallel : meshes_of(world->size())) chain.push_back({parallel});
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()})
    check_chain(*world, model, chain);
}

TEST_CASE("what ZeRO divides is saved once and loaded under any other plan", "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to divide
  const std::vector<ChainLink> chain = {
      {{.dp = 4}, 1},          {{}, 0},           {{.dp = 4}, 3},
      {{.tp = 2, .pp = 2}, 0}, {{.dp = 4}, 1, 2}, {{.tp = 2, .dp = 2, .sp = true}, 2},
      {{.dp = 2}, 0},          {{.dp = 4}, 3, 2}, {{.pp = 2, .dp = 2}, 2},
      {{.tp = 2, .dp = 2}, 1}};
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()})
    for (const DType precision : {DType::F32, DType::BF16})
      check_chain(*world, model, chain, precision);
}

TEST_CASE("what prediction modules share is saved once and loaded under any other plan",
          "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to divide
  models::ModelSpec model = llama_style();
  model.mtp_layers = 2;
  check_chain(*world, model,
              {{{.pp = 2, .dp = 2}, 1},
               {{}},
               {{.dp = 4}, 3},
               {{.tp = 2, .pp = 2, .sp = true}},
               {{.pp = 4}},
               {{.pp = 2, .dp = 2}, 2}});
}

TEST_CASE("experts are saved once and loaded wherever a plan puts them", "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to divide
  const std::vector<ChainLink> chain = {{{.dp = 4, .ep = 4}},
                                        {{}},
                                        {{.dp = 4, .ep = 2}, 1},
                                        {{.tp = 2, .dp = 2, .sp = true}, 2},
                                        {{.tp = 2, .dp = 2, .ep = 2, .etp = 2, .sp = true}},
                                        {{.pp = 2, .dp = 2, .ep = 2}},
                                        {{.dp = 4, .ep = 2}, 3},
                                        {{.tp = 2, .dp = 2, .ep = 4, .sp = true}}};
  for (const models::ModelSpec& model : {mixtral_style(), deepseek_style()})
    check_chain(*world, model, chain);
}

TEST_CASE("frozen weights are saved without moments and loaded under any other plan",
          "[checkpoint][frozen]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to divide
  // With two stages the first trains nothing.
  const std::vector<std::string> frozen = {"embedding", "layers.0-1"};
  const std::vector<ChainLink> chain = {{{.dp = 4}, 1},
                                        {{}},
                                        {{.tp = 2, .pp = 2}},
                                        {{.pp = 2, .dp = 2}, 2},
                                        {{.dp = 4}, 3},
                                        {{.dp = 4}, 3, 2},
                                        {{.pp = 4}, 0},
                                        {{.pp = 2, .dp = 2}, 3},
                                        {{.tp = 2, .dp = 2, .sp = true}},
                                        {{.tp = 2, .dp = 2, .sp = true}, 3}};
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()})
    for (const DType precision : {DType::F32, DType::BF16})
      check_chain(*world, model, chain, precision, frozen);
  for (const DType precision : {DType::F32, DType::BF16})
    check_chain(*world, mixtral_style(),
                {{{.dp = 4, .ep = 4}},
                 {{.dp = 4, .ep = 2}, 3},
                 {{}},
                 {{.dp = 4, .ep = 2}, 1},
                 {{.dp = 4, .ep = 2}, 3}},
                precision, {"*.experts", "embedding"});
}

TEST_CASE("a resumed run keeps what is frozen and equals an uninterrupted one bit for bit",
          "[checkpoint][frozen]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  std::vector<std::pair<ParallelConfig, int>> divisions;
  for (const ParallelConfig& parallel : meshes_of(world->size())) {
    divisions.emplace_back(parallel, 0);
    if (parallel.dp > 1) divisions.emplace_back(parallel, 3);
  }
  for (const DType precision : {DType::F32, DType::BF16})
    for (const auto& [parallel, zero] : divisions) {
      const SharedFolder folder(*world);
      const auto group = first_ranks(*world, parallel.world_size());
      if (group == nullptr) continue;
      CAPTURE(program::to_string(parallel), zero, name_of(precision));
      Plan plan = checkpoint_plan(gpt2_style(), parallel, precision);
      plan.zero_stage = zero;
      plan.frozen = {"embedding", "layers.0-1"};
      std::vector<std::uint64_t> end;
      {
        CheckpointJob job(plan, *group, folder.path());
        job.save(0);
        job.step(1);
        job.save(1);
        job.step(2);
        job.wait();
        end = job.state();
      }
      const std::string saved = runtime::resolve_checkpoint(folder.path());
      CheckpointJob resumed(plan, *group, folder.path());
      resumed.load(saved);
      resumed.step(2);
      CHECK(resumed.state() == end);
      if (group->rank() != 0) continue;
      const auto before = contents(folder.path() + "/step-0"), after = contents(saved);
      for (const auto& [name, values] : after) {
        const bool frozen = name.find("embedding.") != name.npos ||
                            name.find(".layers.0.") != name.npos ||
                            name.find(".layers.1.") != name.npos;
        INFO(name);
        CHECK((!frozen || name.starts_with("weights.")));
        if (name.starts_with("weights.")) CHECK((values == before.at(name)) == frozen);
      }
      runtime::check_fits(Checkpoint(saved).index(), saved, plan, runtime::ResumeKind::Continue);
      plan.frozen = {"embedding"};
      CHECK_THROWS_WITH(runtime::check_fits(Checkpoint(saved).index(), saved, plan,
                                            runtime::ResumeKind::Continue),
                        Contains("it was frozen there (frozen [embedding, layers.0-1])") &&
                            Contains("--init-from"));
      runtime::check_fits(Checkpoint(saved).index(), saved, plan, runtime::ResumeKind::WeightsOnly);
    }
}

}  // namespace meshplan::test
