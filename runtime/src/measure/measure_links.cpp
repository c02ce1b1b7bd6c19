#include <algorithm>
#include <memory>
#include <utility>

#include "core/index.hpp"
#include "measure/measure_collectives.hpp"
#include "measure/message_sweep.hpp"
#include "measure/timed_group.hpp"

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

MeasuredMessages<LinkSample> measure_links(const MeasuredWorld& world, const JobLayout& layout,
                                           const MeasureOptions& options) {
  const auto pairs = pairs_to_measure(layout, world.device != nullptr);
  const auto sizes = message_sizes(options);
  const std::int64_t largest_bytes = *std::ranges::max_element(sizes);
  MeasuredMemory sent(world, largest_bytes);
  MeasuredMemory received(world, largest_bytes);
  std::vector<std::unique_ptr<TimedGroup>> groups;
  std::vector<MessageSeries> series;
  for (const auto& [from, to] : pairs) {
    const std::vector<int> members{from, to};
    groups.push_back(std::make_unique<TimedGroup>(world, members, "link"));
    TimedGroup& pair = *groups.back();
    series.push_back({.group = &pair,
                      .once =
                          [&sent, &received, &pair](std::int64_t bytes) {
                            Communicator& moves = pair.moves();
                            const int peer = 1 - moves.rank();
                            if (moves.rank() == 0)
                              moves.send({sent.data(), bytes, DType::U8}, peer).wait();
                            moves.recv({received.data(), bytes, DType::U8}, peer).wait();
                            if (moves.rank() == 1)
                              moves.send({sent.data(), bytes, DType::U8}, peer).wait();
                          },
                      .scale = 0.5});  // one way of two
  }
  const MessageSweep sweep(world, series, sizes, options);
  MeasuredMessages<LinkSample> measured{.samples = {}, .quietness = sweep.quietness()};
  const auto machine = [&](int rank) { return layout.machine_of_rank[at(rank)]; };
  for (std::size_t pair = 0; pair < pairs.size(); ++pair)
    for (std::size_t size = 0; size < sizes.size(); ++size) {
      if (!sweep.timed(pair, size)) continue;
      const auto [from, to] = pairs[pair];
      LinkSample sample{
          .from = from, .to = to, .same_host = machine(from) == machine(to), .bytes = sizes[size]};
      if (world.host.rank() == from) set_times(sample, sweep.estimate(pair, size));
      share(world.host, sample, from);
      measured.samples.push_back(sample);
    }
  return measured;
}

}  // namespace meshplan::runtime
