#include <algorithm>
#include <utility>

#include "runtime/measure_collectives.hpp"
#include "timed_group.hpp"

namespace meshplan::runtime {

using program::LinkSample;

namespace {

std::vector<std::pair<int, int>> pairs_to_measure(const JobLayout& layout, bool all_of_machine) {
  std::vector<std::pair<int, int>> pairs;
  for (int rank = 0; rank + 1 < layout.size(); ++rank) pairs.emplace_back(rank, rank + 1);
  const auto add = [&](int from, int to) {
    const std::pair<int, int> pair{from, to};
    if (from < to && std::ranges::find(pairs, pair) == pairs.end()) pairs.push_back(pair);
  };
  for (int machine = 0; machine < layout.num_machines(); ++machine) {
    const std::vector<int> ranks = layout.ranks_on(machine);
    add(0, ranks.front());
    for (const int from : ranks)
      for (const int to : ranks)
        if (all_of_machine) add(from, to);
  }
  return pairs;
}

}  // namespace

std::vector<LinkSample> measure_links(const MeasuredWorld& world, const JobLayout& layout,
                                      const MeasureOptions& options) {
  const auto pairs = pairs_to_measure(layout, world.device != nullptr);
  const auto sizes = message_sizes(options);
  const std::int64_t largest_bytes = *std::ranges::max_element(sizes);
  MeasuredMemory sent(world, largest_bytes);
  MeasuredMemory received(world, largest_bytes);
  std::vector<LinkSample> samples;
  const Stopwatch watch;
  for (const auto& [from, to] : pairs) {
    const std::vector<int> members{from, to};
    TimedGroup pair(world, members, "link");
    for (const std::int64_t bytes : sizes) {
      if (largest(world.host, watch.seconds()) > options.total_budget.value) break;
      LinkSample sample;
      if (pair.member()) {
        Communicator& moves = pair.moves();
        const int peer = 1 - moves.rank();
        const auto ping_pong = [&] {
          if (moves.rank() == 0) moves.send({sent.data(), bytes, DType::U8}, peer).wait();
          moves.recv({received.data(), bytes, DType::U8}, peer).wait();
          if (moves.rank() == 1) moves.send({sent.data(), bytes, DType::U8}, peer).wait();
        };
        const auto times = time_repeats(pair, ping_pong, options);
        const auto machine = [&](int rank) {
          return layout.machine_of_rank[static_cast<std::size_t>(rank)];
        };
        sample = {
            .from = from, .to = to, .same_host = machine(from) == machine(to), .bytes = bytes};
        set_times(sample, times, 0.5);  // one way of two
      }
      // The pair's first rank has it; every rank gets it.
      world.host.broadcast({&sample, static_cast<std::int64_t>(sizeof(sample)), DType::U8}, from)
          .wait();
      samples.push_back(sample);
    }
  }
  return samples;
}

}  // namespace meshplan::runtime
