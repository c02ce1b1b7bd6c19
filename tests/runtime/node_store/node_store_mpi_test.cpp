// States in the memory of nodes: what is recovered equals a checkpoint of the same step bit for
// bit, under any plan, whichever node is lost.
#include <csignal>
#include <fstream>
#include <sys/resource.h>

#include "node_store/node_ring.hpp"
#include "runtime/node_store/node_store_job.hpp"

namespace meshplan::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using runtime::Communicator;

struct Layout {
  ParallelConfig parallel;
  int zero_stage = 0;
};

Plan plan_of(const Layout& layout, DType precision = DType::F32) {
  Plan plan = checkpoint_plan(llama_style(), layout.parallel, precision);
  plan.zero_stage = layout.zero_stage;
  plan.bucket_bytes = 64 << 10;
  return plan;
}

/// Trains `steps` steps, keeps the state after each, and saves the last one to the disk, too.
void train_and_keep(Communicator& group, const Plan& plan, const NodeStoreOptions& options,
                    const std::string& folder, int steps = 3) {
  MemoryJob job(plan, group, options, folder);
  for (int step = 1; step <= steps; ++step) {
    job.step(step);
    job.save(step);
    job.wait();
  }
  job.save_to_disk(steps, folder);
}

/// What a job under `plan` recovers, and what it loads from the disk, is the same.
void check_recovered(Communicator& group, const Plan& plan, const NodeStoreOptions& options,
                     const std::string& folder, int step) {
  CAPTURE(program::to_string(plan.parallel), plan.zero_stage);
  const Recovered recovered = recover(group, options, folder);
  INFO(recovered.said);
  REQUIRE(recovered.state != nullptr);
  const runtime::CheckpointIndex& index = recovered.state->index();
  CHECK(index.run.step == step);
  CHECK(index.run.id == "0123456789abcdef");
  CHECK(index.run.losses == std::vector<double>{1.5, 0.1});
  runtime::check_fits(index, "memory", plan, runtime::ResumeKind::Continue);
  const SharedFolder other(group);
  MemoryJob from_memory(plan, group, options, other.path());
  from_memory.load(*recovered.state);
  MemoryJob from_disk(plan, group, options, other.path());
  Checkpoint checkpoint(runtime::checkpoint_path(folder, step));
  from_disk.load(checkpoint);
  CHECK(from_memory.content() == from_disk.content());
  group.barrier().wait();
}

void lose_node(Communicator& group, const NodeStoreOptions& options, const std::string& folder,
               int node) {
  if (group.rank() == 0) REQUIRE(runtime::remove_store(store_of(options, folder, node)));
  group.barrier().wait();
}

void flip_byte(const std::string& path, std::int64_t from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  REQUIRE(file.good());
  file.seekg(-from_end, std::ios::end);
  const auto byte = static_cast<char>(file.get() ^ 0x10);
  file.seekp(-from_end, std::ios::end);
  file.put(byte);
}

/// No file grows in this scope: what a full file system is to those who write there.
class NoNewBytes {
 public:
  NoNewBytes() : before_(std::signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit_) == 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = limit_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);
  }
  ~NoNewBytes() {
    ::setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, before_);
  }
  NoNewBytes(const NoNewBytes&) = delete;
  NoNewBytes& operator=(const NoNewBytes&) = delete;

 private:
  void (*before_)(int);
  rlimit limit_{};
};

/// Four ranks on a node each have trained three steps under dp 2, tp 2; `damage` is done to what
/// they kept by rank 0; then it is recovered.
struct Damaged {
  explicit Damaged(Communicator& world) : group(world), folder(world), root(world) {
    options = made_up_stores(root.path(), world.size());
    plan = plan_of({{.tp = 2, .dp = 2}, 1});
    train_and_keep(world, plan, options, folder.path());
  }
  /// @param copy  on the node of the partner
  std::string share(int step, int rank, bool copy = false) const {
    return runtime::stored_share(
        store_of(options, folder.path(), (rank + (copy ? 1 : 0)) % group.size()), step, rank);
  }
  std::string index(int step, int rank, bool copy = false) const {
    return fs::path(share(step, rank, copy)).replace_extension(".json").string();
  }
  void damage(const std::function<void()>& work) const {
    if (group.rank() == 0) work();
    group.barrier().wait();
  }

  Communicator& group;
  SharedFolder folder;
  SharedFolder root;
  NodeStoreOptions options;
  Plan plan;
};

}  // namespace

TEST_CASE("copies are kept by the rank of the same place on the next node", "[node_store]") {
  const runtime::NodeRing ring({"a", "b", "a", "b", "c"});
  CHECK(ring.num_nodes() == 3);
  CHECK(ring.ranks_on(0) == std::vector<int>{0, 2});
  CHECK(ring.partner(0) == 1);
  CHECK(ring.partner(2) == 3);
  CHECK(ring.partner(1) == 4);
  CHECK(ring.partner(3) == 4);
  CHECK(ring.partner(4) == 0);
  CHECK(ring.sources(4) == std::vector<int>{1, 3});
  CHECK(ring.sources(2).empty());
  CHECK(ring.most_sources() == 2);
  CHECK(ring.leads(1));
  CHECK_FALSE(ring.leads(3));
  CHECK_FALSE(runtime::NodeRing({"a", "a"}).partner(0));
}

TEST_CASE("a state in memory is recovered under any plan, bit for bit as from the disk",
          "[node_store]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to divide
  const std::vector<Layout> from = {{{.tp = 2, .dp = 2, .sp = true}, 1}, {{.pp = 2, .dp = 2}, 3}};
  const std::vector<Layout> to = {{{.tp = 2, .dp = 2, .sp = true}, 1},
                                  {{}, 0},
                                  {{.pp = 4}, 0},
                                  {{.tp = 4, .sp = true}, 0},
                                  {{.dp = 2}, 3}};
  for (const Layout& saved : from)
    for (const Layout& then : to) {
      const SharedFolder folder(*world);
      const SharedFolder root(*world);
      const NodeStoreOptions options = made_up_stores(root.path(), 4);
      const Plan plan = plan_of(saved);
      train_and_keep(*world, plan, options, folder.path());
      const Plan next = plan_of(then);
      const int ranks = next.parallel.world_size();
      // Those that are left see the stores of their own nodes and of none else: two ranks of four
      // on nodes 1 and 3 have all shares, of which the lost nodes' are copies.
      const std::vector<int> left = ranks == 4   ? std::vector{0, 1, 2, 3}
                                    : ranks == 2 ? std::vector{1, 3}
                                                 : std::vector{0};
      NodeStoreOptions seen = options;
      seen.nodes.clear();
      for (const int rank : left)
        seen.nodes.push_back(options.nodes[static_cast<std::size_t>(rank)]);
      const auto group = world->create_group(left, "left");
      if (group != nullptr && ranks > 1)
        check_recovered(*group, next, seen, folder.path(), 3);
      else if (group != nullptr)  // a node of four has two shares of four
        CHECK(recover(*group, seen, folder.path()).state == nullptr);
      world->barrier().wait();
    }
}

TEST_CASE("several ranks share a node, whose memory two nodes back up", "[node_store]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to divide
  const SharedFolder folder(*world);
  const SharedFolder root(*world);
  const NodeStoreOptions options = made_up_stores(root.path(), 4, 2);
  const Plan plan = plan_of({{.pp = 2, .dp = 2}, 1}, DType::BF16);
  train_and_keep(*world, plan, options, folder.path());
  lose_node(*world, options, folder.path(), 1);
  check_recovered(*world, plan, options, folder.path(), 3);
}

TEST_CASE("without another node states are kept, and survive the ranks", "[node_store]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  const SharedFolder folder(*world);
  const SharedFolder root(*world);
  const NodeStoreOptions options = made_up_stores(root.path(), world->size(), world->size());
  const Plan plan = plan_of({{.dp = world->size() >= 2 ? 2 : 1}});
  const auto group = first_ranks(*world, plan.parallel.world_size());
  if (group != nullptr) {
    NodeStoreOptions few = options;
    few.nodes.resize(static_cast<std::size_t>(group->size()));
    train_and_keep(*group, plan, few, folder.path());
    check_recovered(*group, plan, few, folder.path(), 3);
  }
  world->barrier().wait();
}

TEST_CASE("the loss of a node's memory leaves its partner's copies", "[node_store]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to divide
  for (const int lost : {0, 2}) {
    const Damaged kept(*world);
    lose_node(*world, kept.options, kept.folder.path(), lost);
    check_recovered(*world, kept.plan, kept.options, kept.folder.path(), 3);
  }
}

TEST_CASE("the loss of two nodes in a row falls back to the disk", "[node_store]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to divide
  const Damaged kept(*world);
  lose_node(*world, kept.options, kept.folder.path(), 1);
  lose_node(*world, kept.options, kept.folder.path(), 2);
  const Recovered recovered = recover(*world, kept.options, kept.folder.path(), run_state(2));
  CHECK(recovered.state == nullptr);
  if (world->rank() == 0)
    CHECK_THAT(recovered.said, Contains("the state of step 3 is not whole: no node has an intact "
                                        "share of rank 1"));
}

TEST_CASE("a damaged share falls back to its other copy, then to an older set", "[node_store]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to divide
  {
    const Damaged kept(*world);
    kept.damage([&] {
      flip_byte(kept.share(3, 1), 8);
      fs::resize_file(kept.share(3, 2, true), 100);
      flip_byte(kept.share(3, 3, true), 20);
    });
    check_recovered(*world, kept.plan, kept.options, kept.folder.path(), 3);
  }
  const Damaged kept(*world);
  kept.damage([&] {
    flip_byte(kept.share(3, 1), 8);
    flip_byte(kept.share(3, 1, true), 8);
  });
  const Recovered recovered = recover(*world, kept.options, kept.folder.path());
  REQUIRE(recovered.state != nullptr);
  CHECK(recovered.state->index().run.step == 2);
  recovered.state->finish();
  if (world->rank() == 0) {
    CHECK_THAT(recovered.said, Contains("node node-1: ") && Contains("it is damaged"));
    CHECK_THAT(recovered.said, Contains("no node has an intact share of rank 1"));
  }
}

TEST_CASE("a death while a set is written leaves the one before", "[node_store]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to divide
  const Damaged kept(*world);
  // Of the newest set one share was being written on both nodes: no index is there yet.
  kept.damage([&] {
    fs::rename(kept.share(3, 0), kept.share(3, 0) + ".part");
    fs::remove(kept.index(3, 0));
    fs::remove(kept.index(3, 0, true));
  });
  const Recovered recovered = recover(*world, kept.options, kept.folder.path());
  REQUIRE(recovered.state != nullptr);
  CHECK(recovered.state->index().run.step == 2);
  recovered.state->finish();
  // The sets that were not chosen are gone.
  if (world->rank() == 0) {
    CHECK_FALSE(fs::exists(kept.share(3, 1)));
    CHECK(fs::exists(kept.share(2, 1)));
  }
}

TEST_CASE("two complete sets are there whenever one is written", "[node_store]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to divide
  const SharedFolder folder(*world);
  const SharedFolder root(*world);
  const NodeStoreOptions options = made_up_stores(root.path(), 4);
  MemoryJob job(plan_of({{.dp = 4}, 1}), *world, options, folder.path());
  for (int step = 1; step <= 6; ++step) {
    job.step(step);
    job.save(step);
    world->barrier().wait();
    const std::string store = store_of(options, folder.path(), world->rank());
    std::vector<std::string> faults;
    std::vector<std::int64_t> own, copies;
    for (const runtime::StoredShare& share : runtime::stored_shares(store, faults))
      (share.rank == world->rank() ? own : copies).push_back(share.step);
    CHECK(faults.empty());
    CHECK(std::ranges::count(own, step) + std::ssize(own) >= std::min(2, step - 1));
    for (const int before : {step - 1, step - 2})
      if (before > 0) {
        CHECK(std::ranges::count(own, before) == 1);
        CHECK(std::ranges::count(copies, before) == 1);
      }
    CHECK(own.size() <= 3);
    job.wait();
  }
  const std::string store = store_of(options, folder.path(), world->rank());
  CHECK((fs::status(store).permissions() & fs::perms::mask) == fs::perms::owner_all);
  job.saver().remove();
  CHECK_FALSE(fs::exists(store));
}

TEST_CASE("the newest state wins, and only of the same run", "[node_store]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to divide
  const auto store = [&](const Damaged& kept) {
    return store_of(kept.options, kept.folder.path(), world->rank());
  };
  {
    const Damaged kept(*world);  // the disk is as new
    CHECK(recover(*world, kept.options, kept.folder.path(), run_state(3)).state == nullptr);
    CHECK_FALSE(fs::exists(store(kept)));
  }
  {
    const Damaged kept(*world);
    const Recovered recovered =
        recover(*world, kept.options, kept.folder.path(), run_state(2, "another run"));
    CHECK(recovered.state == nullptr);
    CHECK_FALSE(fs::exists(store(kept)));
    if (world->rank() == 0) CHECK_THAT(recovered.said, Contains("is of another run"));
  }
  const Damaged kept(*world);  // a new run, or one that goes back to a checkpoint by its path
  NodeStoreOptions options = kept.options;
  options.is_resumed = false;
  const Recovered recovered = recover(*world, options, kept.folder.path());
  CHECK(recovered.state == nullptr);
  CHECK_FALSE(fs::exists(store(kept)));
  if (world->rank() == 0) CHECK_THAT(recovered.said, Contains("is not continued by this run"));
}

TEST_CASE("a recovered set stays until two newer ones are complete", "[node_store]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to divide
  const Damaged kept(*world);
  const Recovered recovered = recover(*world, kept.options, kept.folder.path());
  REQUIRE(recovered.state != nullptr);
  MemoryJob job(kept.plan, *world, kept.options, kept.folder.path(), 3);
  job.load(*recovered.state);
  for (int step = 4; step <= 6; ++step) {
    CHECK(fs::exists(kept.index(3, world->rank())));
    job.step(step);
    job.save(step);
    job.wait();
  }
  world->barrier().wait();
  CHECK_FALSE(fs::exists(kept.index(3, world->rank())));
}

TEST_CASE("a full file system, or a folder of another's making, is told and ends nothing",
          "[node_store]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  const SharedFolder folder(*world);
  const SharedFolder root(*world);
  NodeStoreOptions options = made_up_stores(root.path(), 1);
  const auto group = first_ranks(*world, 1);
  if (group == nullptr) return;
  const std::string store = store_of(options, folder.path(), 0);
  const Plan plan = plan_of({});
  {
    fs::create_directory(store);  // open to others
    fs::permissions(store, fs::perms::all);
    MemoryJob job(plan, *group, options, folder.path());
    CHECK(job.state() == MemorySaver::State::Failed);
    CHECK_THAT(job.saver().failure(), Contains("is not a folder of this user alone"));
    fs::permissions(store, fs::perms::owner_all);
  }
  {
    MemoryJob job(plan, *group, options, folder.path());
    job.step(1);
    {
      const NoNewBytes full;
      job.save(1);
      while (job.state() == MemorySaver::State::Busy) continue;
    }
    CHECK(job.state() == MemorySaver::State::Failed);
    CHECK_THAT(job.saver().failure(), Contains(store) && Contains("File too large"));
    job.saver().remove();
    CHECK_FALSE(fs::exists(store));
    job.step(2);
  }
  options.root = "/dev/full-of-nothing";  // no such place
  MemoryJob job(plan, *group, options, folder.path());
  CHECK(job.state() == MemorySaver::State::Failed);
  job.step(1);
  job.saver().remove();
}

}  // namespace meshplan::test
