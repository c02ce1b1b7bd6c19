// Checkpoints: what is saved under one plan is loaded under any other, and nothing that goes wrong
// harms what was complete.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <optional>
#include <sys/resource.h>

#include "core/hash.hpp"
#include "kernels/cpu_backend.hpp"
#include "mpi_test_session.hpp"
#include "program/lower.hpp"
#include "runtime/checkpoint.hpp"
#include "runtime/checkpoint_writer.hpp"
#include "runtime/host_communicator.hpp"
#include "runtime/parity_models.hpp"
#include "runtime/temporary_folder.hpp"
#include "runtime/trainer.hpp"

namespace meshplan::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using program::ParallelConfig;
using program::Plan;
using program::Region;
using runtime::Checkpoint;
using runtime::CheckpointWriter;
using runtime::Trainer;

Plan make_plan(const models::ModelSpec& model, const ParallelConfig& parallel,
               DType precision = DType::F32) {
  Plan plan;
  plan.model = model;
  plan.parallel = parallel;
  plan.workload.seq_len = 16;
  plan.workload.global_batch_size = 4;
  plan.workload.precision = precision;
  plan.workload.optimizer.learning_rate = 1e-2;
  return plan;
}

std::vector<ParallelConfig> configs(int ranks) {
  std::vector<ParallelConfig> all = {{},
                                     {.tp = 2},
                                     {.pp = 2},
                                     {.dp = 2},
                                     {.tp = 4, .sp = true},
                                     {.pp = 4},
                                     {.dp = 4},
                                     {.tp = 2, .pp = 2},
                                     {.tp = 2, .dp = 2, .sp = true},
                                     {.pp = 2, .dp = 2}};
  std::erase_if(all, [ranks](const ParallelConfig& c) { return c.world_size() > ranks; });
  return all;
}

runtime::StepBatch make_batch(const Plan& plan, int dp_rank, std::int64_t step) {
  const auto token = [&](std::int64_t sequence, std::int64_t t) {
    return static_cast<std::int32_t>((sequence * 31 + t * t * 7 + step * 13 + t) %
                                     plan.model.vocab_size);
  };
  runtime::StepBatch batch;
  for (int m = 0; m < plan.num_microbatches(); ++m) {
    const std::int64_t sequence = m * plan.parallel.dp + dp_rank;
    for (std::int64_t t = 0; t < plan.workload.seq_len; ++t) {
      batch.ids.push_back(token(sequence, t));
      batch.targets.push_back(token(sequence, t + 1));
    }
  }
  return batch;
}

/// A folder that all ranks of the job know; rank 0 owns it.
class SharedFolder {
 public:
  explicit SharedFolder(runtime::Communicator& world) : world_(world) {
    if (world.rank() == 0) own_.emplace();
    std::string path = own_ ? own_->path() : std::string();
    path.resize(256);
    world.broadcast({path.data(), std::ssize(path), DType::U8}, 0).wait();
    path_ = path.c_str();
  }
  ~SharedFolder() { world_.barrier().wait(); }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  runtime::Communicator& world_;
  std::optional<TemporaryFolder> own_;
  std::string path_;
};

std::unique_ptr<runtime::Communicator> first_ranks(runtime::Communicator& world, int count) {
  std::vector<int> ranks;
  for (int rank = 0; rank < count; ++rank) ranks.push_back(rank);
  return world.create_group(ranks, "plan");
}

/// A rank that trains under a plan and saves.
class Job {
 public:
  Job(const Plan& plan, runtime::Communicator& group, const std::string& folder, int keep = 0)
      : plan_(plan),
        group_(group),
        backend_(kernels::make_cpu_backend(1)),
        device_(*backend_),
        trainer_(program::lower(plan, runtime::stage_of(plan, group.rank())), std::nullopt, group,
                 device_, 5, nullptr),
        writer_(trainer_.program(), trainer_.saver_place(), group, folder, keep,
                {{"tokenizer.json", "{}"}}, nullptr) {}

  double step(int number) {
    return trainer_
        .train_step(make_batch(plan_, trainer_.groups().coordinates().dp, number),
                    {.optimizer_step = number, .learning_rate = 1e-2})
        .loss;
  }
  void save(int number) {
    writer_.save({.step = number, .next_sequence = 4 * number, .seed = 5, .losses = {1.5, 0.1}},
                 *backend_, trainer_.arena());
  }
  void wait() {
    writer_.wait();
    group_.barrier().wait();  // rank 0 has completed it
  }
  void load(const std::string& checkpoint) {
    Checkpoint source(checkpoint);
    trainer_.load(source, runtime::LoadedState::All);
  }
  /// Of everything that training goes on from.
  std::vector<std::uint64_t> state() const {
    std::vector<std::uint64_t> hashes;
    for (const Region region : {Region::Weights, Region::MasterWeights, Region::Moment1,
                                Region::Moment2, Region::CompressionErrors, Region::SumErrors}) {
      const auto bytes =
          trainer_.program().memory.regions[static_cast<std::size_t>(region)].bytes();
      hashes.push_back(content_hash(
          std::span(trainer_.arena().region(region), static_cast<std::size_t>(bytes))));
    }
    return hashes;
  }

 private:
  Plan plan_;
  runtime::Communicator& group_;
  std::unique_ptr<kernels::Backend> backend_;
  runtime::HostDevice device_;
  Trainer trainer_;
  CheckpointWriter writer_;
};

/// All values of a checkpoint, unsharded.
std::map<std::string, std::vector<float>> contents(const std::string& folder) {
  Checkpoint checkpoint(folder);
  std::map<std::string, std::vector<float>> all;
  for (const auto& tensor : checkpoint.index().manifest.tensors) {
    const auto box = runtime::whole_box(tensor.shape);
    auto& values = all[tensor.state + "." + tensor.parameter];
    values.resize(static_cast<std::size_t>(box.elements()));
    checkpoint.read(
        tensor.state, tensor.parameter,
        {.data = values.data(), .box = box, .strides = runtime::dense_strides(tensor.shape)});
  }
  return all;
}

void flip_byte(const std::string& path, std::int64_t from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  const auto byte = static_cast<char>(file.get() ^ 0x10);
  file.seekp(-from_end, std::ios::end);
  file.put(byte);
}

}  // namespace

TEST_CASE("a resumed run equals an uninterrupted one bit for bit under the same plan",
          "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()})
    for (const DType precision : {DType::F32, DType::BF16})
      for (const ParallelConfig& parallel : configs(world->size())) {
        const SharedFolder folder(*world);
        const auto group = first_ranks(*world, parallel.world_size());
        if (group == nullptr) continue;
        CAPTURE(model.name, program::to_string(parallel), name_of(precision));
        const Plan plan = make_plan(model, parallel, precision);
        std::vector<double> losses;
        std::vector<std::uint64_t> end;
        {
          Job job(plan, *group, folder.path());
          for (int step = 1; step <= 2; ++step) job.step(step);
          job.save(2);  // in the background: the next step must not change what is saved
          for (int step = 3; step <= 4; ++step) losses.push_back(job.step(step));
          job.wait();
          end = job.state();
        }
        Job resumed(plan, *group, folder.path());
        resumed.load(runtime::resolve_checkpoint(folder.path()));
        CHECK(resumed.state() != end);
        for (int step = 3; step <= 4; ++step)
          CHECK(resumed.step(step) == losses[static_cast<std::size_t>(step) - 3]);
        CHECK(resumed.state() == end);
      }
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
      Plan plan = make_plan(model, link.parallel, precision);
      plan.zero_stage = link.zero_stage;
      plan.zero_shard_group = link.zero_shard_group;
      plan.bucket_bytes = 64 << 10;
      plan.expert_imbalance = 8;
      plan.frozen = frozen;
      Job job(plan, *group, folders.back()->path());
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
  for (const ParallelConfig& parallel : configs(world->size())) chain.push_back({parallel});
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
                                        {{.dp = 4}, 3, 2},
                                        {{.pp = 4}, 0},
                                        {{.tp = 2, .dp = 2, .sp = true}}};
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()})
    for (const DType precision : {DType::F32, DType::BF16})
      check_chain(*world, model, chain, precision, frozen);
  check_chain(*world, mixtral_style(), {{{.dp = 4, .ep = 4}}, {{}}, {{.dp = 4, .ep = 2}, 1}},
              DType::BF16, {"*.experts", "embedding"});
}

TEST_CASE("a resumed run keeps what is frozen and equals an uninterrupted one bit for bit",
          "[checkpoint][frozen]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  for (const DType precision : {DType::F32, DType::BF16})
    for (const ParallelConfig& parallel : configs(world->size())) {
      const SharedFolder folder(*world);
      const auto group = first_ranks(*world, parallel.world_size());
      if (group == nullptr) continue;
      CAPTURE(program::to_string(parallel), name_of(precision));
      Plan plan = make_plan(gpt2_style(), parallel, precision);
      plan.frozen = {"embedding", "layers.0-1"};
      std::vector<std::uint64_t> end;
      {
        Job job(plan, *group, folder.path());
        job.save(0);
        job.step(1);
        job.save(1);
        job.step(2);
        job.wait();
        end = job.state();
      }
      const std::string saved = runtime::resolve_checkpoint(folder.path());
      Job resumed(plan, *group, folder.path());
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

namespace {

using program::CompressionKind;

struct CompressedCase {
  ParallelConfig parallel;
  CompressionKind kind = CompressionKind::Int8;
  int zero_stage = 0;
  DType precision = DType::F32;
  int zero_shard_group = 0;
};

const std::vector<CompressedCase> kCompressed = {
    {{.dp = 4}, CompressionKind::Int8},
    {{.dp = 2}, CompressionKind::TopK},  // its ranks get two replicas' each, and keep no sums'
    {{.dp = 4}, CompressionKind::Int8, 1},
    {{.tp = 2, .dp = 2, .sp = true}, CompressionKind::Int8},
    {{.pp = 2, .dp = 2}, CompressionKind::TopK},
    {{.dp = 4}, CompressionKind::Int8, 0, DType::F16},
    {{.dp = 4}, CompressionKind::Int8, 3},
    {{.dp = 4}, CompressionKind::Int8, 2, DType::F32, 2},
    {{.tp = 2, .dp = 2}, CompressionKind::TopK, 2},
};

/// Experts have as many replicas as ranks that hold the same ones.
const std::vector<CompressedCase> kCompressedExperts = {
    {{.dp = 4, .ep = 2}, CompressionKind::Int8},
    {{.dp = 2}, CompressionKind::TopK},
    {{.dp = 4, .ep = 2}, CompressionKind::Int8, 1},
    {{.tp = 2, .dp = 2, .ep = 2, .sp = true}, CompressionKind::Int8},
    {{.dp = 4}, CompressionKind::Int8},
    {{.dp = 4, .ep = 2}, CompressionKind::Int8, 2},
};

Plan compressed_plan(const models::ModelSpec& model, const CompressedCase& one) {
  Plan plan = make_plan(model, one.parallel, one.precision);
  plan.compression = {.kind = one.kind, .ratio = 0.1};
  plan.zero_stage = one.zero_stage;
  plan.zero_shard_group = one.zero_shard_group;
  plan.bucket_bytes = 64 << 10;
  plan.expert_imbalance = 8;
  return plan;
}

/// What compression has lost, over all replicas and sums: by parameter.
std::map<std::string, std::vector<double>> lost(const std::string& folder) {
  std::map<std::string, std::vector<double>> sums;
  for (const auto& [name, values] : contents(folder)) {
    std::string parameter;
    if (name.starts_with("sum_error.")) parameter = name.substr(10);
    if (name.starts_with("compression_error."))
      parameter = name.substr(name.find('.', 18) + 1);  // behind the replica's number
    if (parameter.empty()) continue;
    auto& sum = sums[parameter];
    sum.resize(values.size(), 0.0);
    for (std::size_t i = 0; i < values.size(); ++i) sum[i] += double{values[i]};
  }
  return sums;
}

void check_resumed(runtime::Communicator& world, const models::ModelSpec& model,
                   const CompressedCase& one) {
  const SharedFolder folder(world);
  const auto group = first_ranks(world, one.parallel.world_size());
  if (group == nullptr) return;
  CAPTURE(model.name, program::to_string(one.parallel), one.zero_stage);
  const Plan plan = compressed_plan(model, one);
  std::vector<std::uint64_t> end;
  {
    Job job(plan, *group, folder.path());
    for (int step = 1; step <= 2; ++step) job.step(step);
    job.save(2);
    job.step(3);
    job.wait();
    end = job.state();
  }
  Job resumed(plan, *group, folder.path());
  resumed.load(runtime::resolve_checkpoint(folder.path()));
  resumed.step(3);
  CHECK(resumed.state() == end);
}

/// Each plan loads what the plan before it saved.
void check_same_loss_of_gradients(runtime::Communicator& world, const models::ModelSpec& model,
                                  const std::vector<CompressedCase>& chain) {
  std::map<std::string, std::vector<double>> expected;
  std::string previous;
  std::vector<std::unique_ptr<SharedFolder>> folders;
  for (const CompressedCase& one : chain) {
    folders.push_back(std::make_unique<SharedFolder>(world));
    const auto group = first_ranks(world, one.parallel.world_size());
    CAPTURE(model.name, program::to_string(one.parallel), one.zero_stage);
    if (group != nullptr) {
      Job job(compressed_plan(model, one), *group, folders.back()->path());
      if (previous.empty())
        for (int step = 1; step <= 2; ++step) job.step(step);
      else
        job.load(previous);
      job.save(2);
      job.wait();
    }
    world.barrier().wait();
    previous = folders.back()->path() + "/step-2";
    const auto found = lost(previous);
    if (expected.empty()) expected = found;
    REQUIRE(found.size() == expected.size());
    double difference = 0, size = 0;
    for (const auto& [name, values] : expected)
      for (std::size_t i = 0; i < values.size(); ++i) {
        difference += std::pow(found.at(name)[i] - values[i], 2);
        size += values[i] * values[i];
      }
    CHECK(size > 0);
    CHECK(difference <= 1e-12 * size);  // fp32 rounding of at most four additions
  }
}

}  // namespace

TEST_CASE("what compression lost is saved: a resumed run equals an uninterrupted one",
          "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to compress
  for (const CompressedCase& one : kCompressed) check_resumed(*world, gpt2_style(), one);
  for (const CompressedCase& one : kCompressedExperts) check_resumed(*world, deepseek_style(), one);
}

TEST_CASE("what compression lost has the same sum under every plan that loads it", "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;
  check_same_loss_of_gradients(*world, llama_style(), kCompressed);
  models::ModelSpec one_key_head = llama_style();
  one_key_head.num_kv_heads = 1;  // tp ranks that hold the same lose the same
  check_same_loss_of_gradients(*world, one_key_head, kCompressed);
  check_same_loss_of_gradients(*world, mixtral_style(), kCompressedExperts);
}

TEST_CASE("damage is found, and the newest intact checkpoint is named", "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  const SharedFolder folder(*world);
  const Plan plan = make_plan(llama_style(), {.tp = world->size() > 1 ? 2 : 1});
  if (const auto group = first_ranks(*world, plan.parallel.world_size())) {
    Job job(plan, *group, folder.path());
    for (int step = 1; step <= 4; ++step) {
      job.step(step);
      job.save(step);
    }
    job.wait();
  }
  world->barrier().wait();
  if (world->rank() != 0) return;
  const std::string first = folder.path() + "/step-1";
  CHECK(runtime::checkpoint_steps(folder.path()) == std::vector<std::int64_t>{1, 2, 3, 4});
  CHECK(runtime::resolve_checkpoint(folder.path()) == folder.path() + "/step-4");
  Checkpoint intact(first);
  intact.verify();
  CHECK(intact.index().run.step == 1);
  CHECK(intact.index().run.losses == std::vector<double>{1.5, 0.1});
  CHECK(intact.plan() == program::parse_plan(program::to_json(plan), "plan"));
  CHECK(intact.companions() == std::map<std::string, std::string>{{"tokenizer.json", "{}"}});
  runtime::check_fits(intact.index(), first, plan, runtime::ResumeKind::Continue);

  const std::string share = "/rank-00000.safetensors";
  flip_byte(folder.path() + "/step-4" + share, 5);  // in the data
  CHECK_THROWS_WITH(Checkpoint(folder.path() + "/step-4").verify(),
                    Contains("step-4/rank-00000.safetensors: moment2.") && Contains("is damaged"));
  CHECK_THROWS_WITH(contents(folder.path() + "/step-4"), Contains("is damaged"));
  fs::resize_file(folder.path() + "/step-3" + share,
                  fs::file_size(folder.path() + "/step-3" + share) - 1);
  CHECK_THROWS_WITH(Checkpoint(folder.path() + "/step-3"), Contains("it is truncated or damaged"));
  CHECK_THAT(runtime::newest_intact_beside(folder.path() + "/step-4"),
             Contains("the newest intact one is " + folder.path() + "/step-2"));
  flip_byte(folder.path() + "/step-2/index.json", 40);
  CHECK_THROWS_AS(Checkpoint(folder.path() + "/step-2"), ConfigError);
  fs::remove(first + share);
  CHECK_THROWS_WITH(Checkpoint(first), Contains("is missing, but the index names it"));
  CHECK_THAT(runtime::newest_intact_beside(folder.path() + "/step-4"), Contains("no other"));
  CHECK_THROWS_WITH(runtime::resolve_checkpoint(folder.path() + "/none"), Contains("no such"));
}

TEST_CASE("retention keeps the newest, and leftovers of a killed save are removed",
          "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  const SharedFolder folder(*world);
  if (world->rank() == 0) {
    fs::create_directories(folder.path() + "/step-9.tmp");
    std::ofstream(folder.path() + "/step-9.tmp/rank-00000.json") << "{}";
    std::ofstream(folder.path() + "/step-notes.txt") << "mine";
  }
  world->barrier().wait();
  const Plan plan = make_plan(llama_style(), {});
  if (const auto group = first_ranks(*world, 1)) {
    Job job(plan, *group, folder.path(), /*keep=*/2);
    CHECK_FALSE(fs::exists(folder.path() + "/step-9.tmp"));
    for (const int step : {1, 2, 3, 10, 9, 9}) job.save(step);  // 9 twice: replaced
    job.wait();
    CHECK(runtime::checkpoint_steps(folder.path()) == std::vector<std::int64_t>{9, 10});
    Checkpoint(folder.path() + "/step-9").verify();
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder.path()))
      names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    CHECK(names ==
          std::vector<std::string>{".meshplan-lock", "step-10", "step-9", "step-notes.txt"});
    CHECK_THROWS_WITH(Job(plan, *group, folder.path()), Contains("another job writes checkpoints"));
  }
}

TEST_CASE("a full disk fails the save and harms nothing", "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  const SharedFolder folder(*world);
  const auto group = first_ranks(*world, 1);
  if (group == nullptr) return;
  Job job(make_plan(llama_style(), {}), *group, folder.path());
  job.save(1);
  job.wait();
  // No file may grow beyond 64 KiB: what write() says then is as final as a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 64 << 10, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  job.save(2);
  CHECK_THROWS_WITH(job.wait(), Contains("step 2 is not saved") && Contains("File too large") &&
                                    Contains("are untouched"));
  setrlimit(RLIMIT_FSIZE, &before);
  Checkpoint(runtime::resolve_checkpoint(folder.path())).verify();
  CHECK(runtime::checkpoint_steps(folder.path()) == std::vector<std::int64_t>{1});
  job.save(3);  // there is room again
  job.wait();
  CHECK(runtime::checkpoint_steps(folder.path()) == std::vector<std::int64_t>{1, 3});
}

TEST_CASE("a checkpoint that does not fit the plan is refused with both values", "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  const SharedFolder folder(*world);
  const auto group = first_ranks(*world, 1);
  if (group == nullptr) return;
  const Plan plan = make_plan(llama_style(), {});
  {
    Job job(plan, *group, folder.path());
    job.save(1);
    job.wait();
  }
  const std::string path = folder.path() + "/step-1";
  const Checkpoint checkpoint(path);
  const auto refused = [&](const Plan& other, runtime::ResumeKind kind) -> std::string {
    try {
      runtime::check_fits(checkpoint.index(), path, other, kind);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  using runtime::ResumeKind;
  Plan other = plan;
  other.workload.optimizer.kind = program::OptimizerKind::Sgd;
  CHECK_THAT(refused(other, ResumeKind::Continue),
             Contains("adamw") && Contains("sgd in the plan"));
  CHECK(refused(other, ResumeKind::WeightsOnly).empty());
  other = plan;
  other.workload.seq_len = 8;
  CHECK_THAT(refused(other, ResumeKind::Continue), Contains("seq_len is 16, but 8 in the plan"));
  other = plan;
  other.workload.global_batch_size = 8;
  CHECK_THAT(refused(other, ResumeKind::Continue), Contains("global_batch_size is 4, but 8"));
  // Packed documents: what a sequence holds.
  other = plan;
  other.workload.documents.packed = true;
  other.workload.documents.end_of_document = 10;
  CHECK_THAT(refused(other, ResumeKind::Continue),
             Contains("packed (--packed) is off, but on in the plan") && Contains("--init-from"));
  CHECK(refused(other, ResumeKind::WeightsOnly).empty());
  runtime::CheckpointIndex packed = checkpoint.index();
  Plan then = plan;
  then.workload.documents = {.packed = true, .end_of_document = 10, .pad_multiple = 4};
  packed.plan_json = program::to_json(then);
  const auto why = [&](const program::Documents& documents) -> std::string {
    Plan now = plan;
    now.workload.documents = documents;
    try {
      runtime::check_fits(packed, path, now, ResumeKind::Continue);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(why(then.workload.documents).empty());
  CHECK_THAT(why({.packed = true, .end_of_document = 11, .pad_multiple = 4}),
             Contains("(--end-of-document) is 10, but 11 in the plan"));
  CHECK_THAT(why({.packed = true, .end_of_document = 10, .pad_multiple = 2}),
             Contains("(--pad-documents) is 4, but 2 in the plan"));
  CHECK_THAT(why({}), Contains("(--packed) is on, but off in the plan"));
  other = plan;
  other.workload.documents.expected_lengths = {3, 5};  // only predicts
  CHECK(refused(other, ResumeKind::Continue).empty());
  other = plan;
  other.model.hidden_size = 128;
  other.model.rope_base = 5000;
  for (const ResumeKind kind : {ResumeKind::Continue, ResumeKind::WeightsOnly})
    CHECK_THAT(refused(other, kind), Contains("hidden_size is 64, but 128 in the plan") &&
                                         Contains("rope_base is 10000.0, but 5000.0"));
  other = plan;
  other.model.name = "another name";
  other.model.max_positions = 4096;
  other.parallel = {.tp = 2, .pp = 2};
  CHECK(refused(other, ResumeKind::Continue).empty());
}

}  // namespace meshplan::test
