#include "node_store/all_ranks.hpp"

#include <cstdint>
#include <numeric>

#include "core/index.hpp"

namespace meshplan::runtime {

std::vector<std::string> gathered_texts(Communicator& world, const std::string& own) {
  const std::int64_t size = std::ssize(own);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(world.size()));
  world.all_gather({&size, 1, DType::I64}, {sizes.data(), world.size(), DType::I64}).wait();
  std::vector<std::string> texts(sizes.size());
  for (int rank = 0; rank < world.size(); ++rank) {
    if (sizes[at(rank)] == 0) continue;
    std::string& text = texts[at(rank)];
    if (rank == world.rank()) text = own;
    text.resize(static_cast<std::size_t>(sizes[at(rank)]));
    world.broadcast({text.data(), std::ssize(text), DType::U8}, rank).wait();
  }
  return texts;
}

std::unique_ptr<Communicator> group_of_all(Communicator& world, std::string_view name) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return world.create_group(ranks, name);
}

}  // namespace meshplan::runtime
