// Folders of checkpoints: nothing that goes wrong harms what was complete.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>

#include "core/hash.hpp"
#include "core/json_fields.hpp"
#include "program/plan_file/plan_file.hpp"
#include "runtime/os/durable_file.hpp"
#include "runtime/weights/checkpoint_job.hpp"

namespace meshplan::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

void flip_byte(const std::string& path, std::int64_t from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  const auto byte = static_cast<char>(file.get() ^ 0x10);
  file.seekp(-from_end, std::ios::end);
  file.put(byte);
}

}  // namespace

TEST_CASE("damage is found, and the newest intact checkpoint is named", "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  const SharedFolder folder(*world);
  const Plan plan = checkpoint_plan(llama_style(), {.tp = world->size() > 1 ? 2 : 1});
  if (const auto group = first_ranks(*world, plan.parallel.world_size())) {
    CheckpointJob job(plan, *group, folder.path());
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

TEST_CASE("no byte of a checkpoint can change unseen", "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  const SharedFolder folder(*world);
  const Plan plan = checkpoint_plan(llama_style(), {});
  if (const auto group = first_ranks(*world, 1)) {
    CheckpointJob job(plan, *group, folder.path());
    job.step(1);
    job.save(1);
    job.wait();
  }
  world->barrier().wait();
  if (world->rank() != 0) return;
  const std::string step = folder.path() + "/step-1";
  Checkpoint(step).verify();
  // Names, shapes and the spaces behind them, which no reader has a use for; then data.
  constexpr std::int64_t kStep = 41, kStepInData = 20'011, kHeader = 20'000;
  const std::string share = step + "/rank-00000.safetensors";
  const auto bytes = static_cast<std::int64_t>(fs::file_size(share));
  const std::string companion = step + "/hugging_face/tokenizer.json";
  int flipped = 0;
  const auto flip = [&](const std::string& path, std::int64_t from_end) {
    flip_byte(path, from_end);
    INFO(path << ", " << from_end << " bytes from its end");
    CHECK_THROWS_AS(Checkpoint(step).verify(), ConfigError);
    flip_byte(path, from_end);
    ++flipped;
  };
  for (std::int64_t byte = 0; byte < bytes; byte += byte < kHeader ? kStep : kStepInData)
    flip(share, bytes - byte);
  flip(companion, 1);
  Checkpoint(step).verify();
  CHECK(flipped > 400);

  // Checkpoints of before have no hashes of headers, and are read.
  Json index = Json::parse(runtime::read_text(step + "/index.json"));
  for (const char* list : {"files", "companions"})
    for (Json& file : (list == std::string("files") ? index["manifest"] : index)[list])
      file.erase("hash");
  index.erase("index_hash");
  index["index_hash"] = hex(content_hash(index.dump()));
  std::ofstream(step + "/index.json") << index.dump(1) << "\n";
  Checkpoint(step).verify();
}

TEST_CASE("an index that was edited is refused, and names no file elsewhere", "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  const SharedFolder folder(*world);
  if (const auto group = first_ranks(*world, 1)) {
    CheckpointJob job(checkpoint_plan(llama_style(), {}), *group, folder.path());
    job.save(1);
    job.wait();
  }
  world->barrier().wait();
  if (world->rank() != 0) return;
  const std::string step = folder.path() + "/step-1", file = step + "/index.json";
  const Json saved = Json::parse(runtime::read_text(file));
  const auto write = [&](const Json& index) { std::ofstream(file) << index.dump(1) << "\n"; };
  Json edited = saved;
  edited["run"]["step"] = 2;
  write(edited);
  CHECK_THROWS_WITH(Checkpoint(step), Contains("index_hash") && Contains("was edited"));

  for (const char* name : {"../step-1/rank-00000.safetensors", "/etc/passwd", "..", ""}) {
    Json outside = saved;
    outside["manifest"]["files"][0]["name"] = name;
    outside.erase("index_hash");
    outside["index_hash"] = hex(content_hash(outside.dump()));
    write(outside);
    INFO(name);
    CHECK_THROWS_WITH(Checkpoint(step), Contains("is not the name of a file in it"));
  }
  write(saved);
  Checkpoint(step).verify();
}

TEST_CASE("retention keeps the newest, and leftovers of a killed save are removed",
          "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  const SharedFolder folder(*world);
  if (world->rank() == 0) {
    fs::create_directories(folder.path() + "/step-9.tmp");
    std::ofstream(folder.path() + "/step-9.tmp/rank-00000.json") << "{}";
    for (const char* mine : {"step-notes.txt", "step-notes.tmp"})
      std::ofstream(folder.path() + "/" + mine) << "mine";
    fs::create_directories(folder.path() + "/step-of-mine.tmp");
    fs::create_directories(folder.path() + "/step-8.old.tmp");
  }
  world->barrier().wait();
  const Plan plan = checkpoint_plan(llama_style(), {});
  if (const auto group = first_ranks(*world, 1)) {
    CheckpointJob job(plan, *group, folder.path(), /*keep=*/2);
    CHECK_FALSE(fs::exists(folder.path() + "/step-9.tmp"));
    CHECK_FALSE(fs::exists(folder.path() + "/step-8.old.tmp"));
    for (const int step : {1, 2, 3, 10, 9, 9}) job.save(step);  // 9 twice: replaced
    job.wait();
    CHECK(runtime::checkpoint_steps(folder.path()) == std::vector<std::int64_t>{9, 10});
    Checkpoint(folder.path() + "/step-9").verify();
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder.path()))
      names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    CHECK(names == std::vector<std::string>{".meshplan-lock", "step-10", "step-9", "step-notes.tmp",
                                            "step-notes.txt", "step-of-mine.tmp"});
    CHECK_THROWS_WITH(CheckpointJob(plan, *group, folder.path()),
                      Contains("another job writes checkpoints"));
  }
}

TEST_CASE("a full disk fails the save and harms nothing", "[checkpoint]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  const SharedFolder folder(*world);
  const auto group = first_ranks(*world, 1);
  if (group == nullptr) return;
  CheckpointJob job(checkpoint_plan(llama_style(), {}), *group, folder.path());
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

}  // namespace meshplan::test
