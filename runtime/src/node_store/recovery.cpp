#include "runtime/node_store/recovery.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "core/index.hpp"
#include "node_store/all_ranks.hpp"
#include "node_store/shared_shares.hpp"
#include "node_store/store_folder.hpp"
#include "node_store/stored_sets.hpp"
#include "runtime/os/durable_file.hpp"
#include "weights/state_share.hpp"

namespace meshplan::runtime {
namespace {

/// Lines that any rank has, on rank 0 in the order of ranks.
class Notes {
 public:
  Notes(Communicator& world, const NodeRing& ring,
        const std::function<void(const std::string&)>& say)
      : world_(world), node_(ring.name(ring.node_of(world.rank()))), say_(say) {}

  /// Collective.
  void add(const std::vector<std::string>& own) {
    std::string text;
    for (const std::string& line : own) text += fmt::format("node {}: {}\n", node_, line);
    for (const std::string& lines : gathered_texts(world_, text)) {
      std::size_t begin = 0;
      for (auto end = lines.find('\n'); end != std::string::npos; end = lines.find('\n', begin)) {
        say(lines.substr(begin, end - begin));
        begin = end + 1;
      }
    }
  }
  /// What all ranks know.
  void say(const std::string& line) const {
    if (world_.rank() == 0 && say_) say_("memory: " + line);
  }

 private:
  Communicator& world_;
  std::string node_;
  const std::function<void(const std::string&)>& say_;
};

/// Removes sets of other runs from the list, and says which.
void leave_out_other_runs(std::vector<StoredSet>& sets, const std::optional<RunState>& on_disk,
                          const Notes& notes) {
  if (!on_disk) return;
  const auto is_other = [&](const StoredSet& set) { return set.run != on_disk->id; };
  std::set<std::string> others;
  for (const StoredSet& set : sets)
    if (is_other(set) && others.insert(set.run).second)
      notes.say(fmt::format(
          "the state of step {} is of another run than the checkpoint of step {}: it is removed",
          set.step, on_disk->step));
  std::erase_if(sets, is_other);
}

/// Chooses among sets, newest first. @returns the sources of `chosen`
std::vector<ShareSource> choose(Communicator& world, const NodeRing& ring, const std::string& store,
                                std::vector<StoredSet>& sets, std::int64_t on_disk, Notes& notes,
                                StoredSet& chosen) {
  for (StoredSet& set : sets) {
    if (set.step <= on_disk) break;
    std::vector<std::string> faults;
    std::vector<ShareSource> sources;
    if (set.missing().empty()) sources = verified_sources(world, ring, store, set, faults);
    notes.add(faults);
    if (!sources.empty()) {
      chosen = set;
      return sources;
    }
    notes.say(
        fmt::format("the state of step {} is not whole: no node has an intact share of "
                    "rank{} {}",
                    set.step, set.missing().size() == 1 ? "" : "s", fmt::join(set.missing(), " ")));
  }
  return {};
}

/// The index of the set, put together from those of the shares.
CheckpointIndex gathered_index(Communicator& world, const std::string& store, const StoredSet& set,
                               const std::vector<ShareSource>& sources) {
  CheckpointIndex index;
  std::vector<CheckpointManifest> manifests;
  for (std::size_t share = 0; share < sources.size(); ++share) {
    const int server = sources[share].server;
    const bool serves = world.rank() == server;
    const std::string path = stored_index(store, set.step, static_cast<int>(share));
    std::string text = serves ? read_text(path) : "";
    std::int64_t size = std::ssize(text);
    world.broadcast({&size, 1, DType::I64}, server).wait();
    text.resize(static_cast<std::size_t>(size));
    world.broadcast({text.data(), size, DType::U8}, server).wait();
    CheckpointIndex part = parse_index(text, path);
    manifests.push_back(std::move(part.manifest));
    if (share == 0) index = std::move(part);
  }
  index.manifest = merged(std::move(manifests));
  return index;
}

std::shared_ptr<RecoveredState> open(Communicator& world, const NodeRing& ring,
                                     const std::string& store, const StoredSet& set,
                                     const std::vector<ShareSource>& sources) {
  std::vector<ServedShare> shares;
  std::set<int> nodes;
  for (std::size_t share = 0; share < sources.size(); ++share) {
    nodes.insert(sources[share].node);
    shares.push_back({.server = sources[share].server,
                      .path = stored_share(store, set.step, static_cast<int>(share)),
                      .is_here = sources[share].node == ring.node_of(world.rank())});
  }
  const std::string label = fmt::format("step {} in the memory of {} node{}", set.step,
                                        nodes.size(), nodes.size() == 1 ? "" : "s");
  return std::make_shared<SharedShares>(world, gathered_index(world, store, set, sources),
                                        std::move(shares), label);
}

}  // namespace

std::shared_ptr<RecoveredState> recover_state(Communicator& world, const NodeStoreOptions& options,
                                              const std::string& checkpoints,
                                              const std::optional<RunState>& on_disk,
                                              const std::function<void(const std::string&)>& say) {
  if (checkpoints.empty()) return nullptr;
  const NodeRing ring(options.nodes);
  const std::string store =
      store_path(options.root, checkpoints, ring.name(ring.node_of(world.rank())));
  const bool leads = ring.leads(world.rank());
  Notes notes(world, ring, say);
  std::vector<std::string> faults;
  std::vector<StoredSet> sets =
      gathered_sets(world, ring, leads ? stored_shares(store, faults) : std::vector<StoredShare>{});
  StoredSet chosen;
  std::vector<ShareSource> sources;
  if (options.is_resumed) {
    notes.add(faults);
    leave_out_other_runs(sets, on_disk, notes);
    sources = choose(world, ring, store, sets, on_disk ? on_disk->step : 0, notes, chosen);
  } else if (!sets.empty()) {
    notes.say(fmt::format("the state of step {} is not continued by this run: it is removed",
                          sets.front().step));
  }
  std::shared_ptr<RecoveredState> state;
  if (!sources.empty()) state = open(world, ring, store, chosen, sources);
  if (leads && state != nullptr) remove_other_steps(store, chosen.step);
  if (leads && state == nullptr) remove_store(store);
  world.barrier().wait();  // nobody saves there before that
  return state;
}

void remove_stores(Communicator& world, const NodeStoreOptions& options,
                   const std::string& checkpoints) {
  const NodeRing ring(options.nodes);
  world.barrier().wait();  // nobody writes there any more
  if (ring.leads(world.rank()))
    remove_store(store_path(options.root, checkpoints, ring.name(ring.node_of(world.rank()))));
}

void remove_stores_here(const std::vector<std::string>& nodes, const std::string& checkpoints) {
  for (const std::string& node : nodes)
    remove_store(store_path(NodeStoreOptions{}.root, checkpoints, node));
}

}  // namespace meshplan::runtime
