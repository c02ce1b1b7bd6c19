#include "node_store/stored_sets.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <tuple>

#include "core/error.hpp"
#include "core/index.hpp"
#include "core/json_fields.hpp"
#include "node_store/all_ranks.hpp"
#include "runtime/os/durable_file.hpp"
#include "runtime/weights/checkpoint.hpp"
#include "weights/safetensors.hpp"

namespace meshplan::runtime {

// Found by argument-dependent lookup, hence not in the unnamed namespace.
template <class V>
void fields(V& v, StoredShare& s) {
  v.required("run", s.run, "its id");
  v.required("step", s.step, "of the state", at_least(0));
  v.required("rank", s.rank, "that wrote it", at_least(0));
  v.required("ranks", s.ranks, "of that job", at_least(1));
}

namespace {

struct ShareList {
  std::vector<StoredShare> shares;
};
template <class V>
void fields(V& v, ShareList& l) {
  v.required("shares", l.shares, "of a store");
}

/// Reads a share whole. @throws ConfigError, IoError naming what is damaged
void verify_share(const std::string& store, std::int64_t step, int rank) {
  const std::string index_path = stored_index(store, step, rank);
  const CheckpointIndex index = parse_index(read_text(index_path), index_path);
  const SafetensorsFile file(stored_share(store, step, rank));
  const auto check = [&](const std::string& what, std::span<const std::byte> bytes,
                         const std::string& written) {
    if (const std::string actual = data_hash(bytes); actual != written)
      throw ConfigError(fmt::format("{}: {} hashes to {}, but was written with {}: it is damaged",
                                    file.path(), what, actual, written));
  };
  check("its header", file.header(), index.manifest.files.at(0).hash.value_or(""));
  for (const CheckpointTensor& tensor : index.manifest.tensors)
    for (const CheckpointPiece& piece : tensor.pieces) {
      const SafeTensor& data = file.at(piece.tensor);
      if (data.dtype_name != "F32" || data.shape != piece.size)
        throw ConfigError(fmt::format("{}: {} is not of the shape that its index says", file.path(),
                                      piece.tensor));
      check(piece.tensor, data.data, piece.hash);
    }
}

/// The ranks of a node share the reading of its store.
int server_of(const NodeRing& ring, int node, int share) {
  const std::vector<int>& ranks = ring.ranks_on(node);
  return ranks[at(share) % ranks.size()];
}

}  // namespace

std::vector<int> StoredSet::missing() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < nodes_of_share.size(); ++rank)
    if (nodes_of_share[rank].empty()) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

std::vector<StoredSet> gathered_sets(Communicator& world, const NodeRing& ring,
                                     const std::vector<StoredShare>& own) {
  const std::string text = own.empty() ? "" : write_json(ShareList{own}).dump();
  const std::vector<std::string> texts = gathered_texts(world, text);
  std::map<std::tuple<std::int64_t, std::string, int>, StoredSet> sets;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (texts[at(rank)].empty()) continue;
    for (const StoredShare& share :
         read_json<ShareList>(texts[at(rank)], "a list of shares").shares) {
      if (share.rank >= share.ranks) continue;
      StoredSet& set = sets[{-share.step, share.run, share.ranks}];
      set.run = share.run;
      set.step = share.step;
      set.nodes_of_share.resize(static_cast<std::size_t>(share.ranks));
      set.nodes_of_share[at(share.rank)].push_back(ring.node_of(rank));
    }
  }
  std::vector<StoredSet> newest_first;
  for (auto& [key, set] : sets) newest_first.push_back(std::move(set));
  return newest_first;
}

std::vector<ShareSource> verified_sources(Communicator& world, const NodeRing& ring,
                                          const std::string& store, StoredSet& set,
                                          std::vector<std::string>& faults) {
  const auto shares = static_cast<int>(set.nodes_of_share.size());
  std::vector<std::int32_t> is_intact(at(shares), 0);
  while (set.missing().empty()) {
    std::vector<std::int32_t> damaged(at(shares), 0);
    for (int share = 0; share < shares; ++share) {
      const int node = set.nodes_of_share[at(share)].front();
      if (is_intact[at(share)] != 0 || server_of(ring, node, share) != world.rank()) continue;
      try {
        verify_share(store, set.step, share);
      } catch (const ConfigError& error) {
        faults.emplace_back(error.what());
        damaged[at(share)] = 1;
      } catch (const IoError& error) {
        faults.emplace_back(error.what());
        damaged[at(share)] = 1;
      }
    }
    const MutableBuffer all{damaged.data(), std::ssize(damaged), DType::I32};
    world.all_reduce(all, all, ReduceOp::Max).wait();
    if (std::ranges::count(damaged, 1) == 0) break;
    for (int share = 0; share < shares; ++share) {
      is_intact[at(share)] = damaged[at(share)] == 0;
      std::vector<int>& nodes = set.nodes_of_share[at(share)];
      if (damaged[at(share)] != 0) nodes.erase(nodes.begin());
    }
  }
  std::vector<ShareSource> sources;
  if (!set.missing().empty()) return sources;
  for (int share = 0; share < shares; ++share) {
    const int node = set.nodes_of_share[at(share)].front();
    sources.push_back({.node = node, .server = server_of(ring, node, share)});
  }
  return sources;
}

}  // namespace meshplan::runtime
