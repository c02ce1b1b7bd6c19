// Collectives that only move data. n = ranks of the group, r = this rank.
#include <numeric>
#include <vector>

#include "comm/collective_algorithms.hpp"
#include "comm/schedule_builder.hpp"
#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

using program::CommAlgorithm;

/// Pieces between two ranks that travel at once.
constexpr std::size_t kPiecesInFlight = 4;

/// Sends and receives whole extents as pieces, alternately.
void exchange(ScheduleBuilder& builder, MessageWindow& window, int to_peer, Extent from,
              int from_peer, Extent to, std::int64_t piece) {
  const std::int64_t pieces = std::max(num_pieces(from.count, piece), num_pieces(to.count, piece));
  for (std::int64_t p = 0; p < pieces; ++p) {
    window.add(builder.recv(from_peer, piece_of(to, piece, p)));
    window.add(builder.send(to_peer, piece_of(from, piece, p)));
  }
}

Extent block(Space space, int index, std::int64_t count) {
  return {space, index * count, count};
}

CollectiveSchedule ring_all_gather(Member me, std::int64_t count, std::int64_t piece) {
  ScheduleBuilder builder;
  builder.copy(block(Space::Output, me.rank, count), block(Space::Input, 0, count));
  MessageWindow window(builder, 2 * kPiecesInFlight);
  for (int step = 0; step + 1 < me.size; ++step) {
    exchange(builder, window, modulo(me.rank + 1, me.size),
             block(Space::Output, modulo(me.rank - step, me.size), count),
             modulo(me.rank - 1, me.size),
             block(Space::Output, modulo(me.rank - step - 1, me.size), count), piece);
    window.drain();  // the next step sends what this one received
  }
  return builder.take();
}

CollectiveSchedule direct_all_gather(Member me, std::int64_t count, std::int64_t piece) {
  ScheduleBuilder builder;
  builder.copy(block(Space::Output, me.rank, count), block(Space::Input, 0, count));
  MessageWindow window(builder, 2 * kPiecesInFlight * static_cast<std::size_t>(me.size));
  for (int k = 1; k < me.size; ++k) {
    const int from_peer = modulo(me.rank - k, me.size);
    exchange(builder, window, modulo(me.rank + k, me.size), block(Space::Output, me.rank, count),
             from_peer, block(Space::Output, from_peer, count), piece);
  }
  window.drain();
  return builder.take();
}

/// Where the blocks of an all-to-all begin, and how long they are.
struct Blocks {
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> offsets;

  explicit Blocks(std::span<const std::int64_t> given)
      : counts(given.begin(), given.end()), offsets(given.size(), 0) {
    std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::int64_t{0});
  }
  Extent at(Space space, int index) const {
    const auto i = static_cast<std::size_t>(index);
    return {space, offsets[i], counts[i]};
  }
};

/// Step k sends to r+k and receives from r-k; Direct starts all steps at once.
CollectiveSchedule shifted_all_to_all(Member me, const Blocks& send, const Blocks& recv,
                                      std::int64_t piece, std::size_t messages_in_flight) {
  ScheduleBuilder builder;
  MessageWindow window(builder, messages_in_flight);
  for (int k = 1; k < me.size; ++k) {
    const int to_peer = modulo(me.rank + k, me.size);
    const int from_peer = modulo(me.rank - k, me.size);
    exchange(builder, window, to_peer, send.at(Space::Input, to_peer), from_peer,
             recv.at(Space::Output, from_peer), piece);
  }
  builder.copy(recv.at(Space::Output, me.rank), send.at(Space::Input, me.rank));
  window.drain();
  return builder.take();
}

/// Step k exchanges with rank (k - r) mod n, whose step-k partner is r: both swap one block, so one
/// block of scratch is enough for any n.
CollectiveSchedule swapping_all_to_all(Member me, std::int64_t count, std::int64_t piece) {
  ScheduleBuilder builder;
  const Extent received = builder.scratch(std::min(count, piece));
  for (int k = 0; k < me.size; ++k) {
    const int partner = modulo(k - me.rank, me.size);
    if (partner == me.rank) continue;
    for (std::int64_t p = 0; p < num_pieces(count, piece); ++p) {
      const Extent mine = piece_of(block(Space::Output, partner, count), piece, p);
      const Extent incoming{Space::Scratch, received.offset, mine.count};
      std::vector<ScheduleBuilder::Request> requests{builder.recv(partner, incoming),
                                                     builder.send(partner, mine)};
      builder.await_all(requests);
      builder.copy(mine, incoming);
    }
  }
  return builder.take();
}

std::size_t messages_in_flight(CommAlgorithm algorithm, Member me) {
  if (algorithm == CommAlgorithm::Pairwise) return 2;
  if (algorithm == CommAlgorithm::Direct)
    return 2 * kPiecesInFlight * static_cast<std::size_t>(me.size);
  throw InvariantError("all_to_all does not offer this algorithm");
}

/// Binomial tree, over ranks counted from the root: a rank's parent has its lowest bit cleared.
CollectiveSchedule tree_broadcast(Member me, int root, std::int64_t count) {
  ScheduleBuilder builder;
  const Extent all{Space::Output, 0, count};
  const int relative = modulo(me.rank - root, me.size);
  const auto peer = [&](int other) { return modulo(other + root, me.size); };
  int mask = 1;
  for (; mask < me.size && (relative & mask) == 0; mask *= 2) {
  }
  if (relative != 0) builder.await(builder.recv(peer(relative - mask), all));
  std::vector<ScheduleBuilder::Request> sends;
  for (mask /= 2; mask > 0; mask /= 2)
    if (relative + mask < me.size) sends.push_back(builder.send(peer(relative + mask), all));
  builder.await_all(sends);
  return builder.take();
}

/// Each rank passes pieces on to the next while later ones arrive.
CollectiveSchedule chain_broadcast(Member me, int root, std::int64_t count, std::int64_t piece) {
  ScheduleBuilder builder;
  const Extent all{Space::Output, 0, count};
  const int position = modulo(me.rank - root, me.size);
  const std::int64_t pieces = num_pieces(count, piece);
  const auto ahead = static_cast<std::int64_t>(kPiecesInFlight);
  std::deque<ScheduleBuilder::Request> recvs;
  MessageWindow sends(builder, kPiecesInFlight);
  const auto receive = [&](std::int64_t p) {
    if (position > 0 && p < pieces)
      recvs.push_back(builder.recv(modulo(me.rank - 1, me.size), piece_of(all, piece, p)));
  };
  for (std::int64_t p = 0; p < ahead; ++p) receive(p);
  for (std::int64_t p = 0; p < pieces; ++p) {
    if (position > 0) {
      builder.await(recvs.front());
      recvs.pop_front();
    }
    if (position + 1 < me.size)
      sends.add(builder.send(modulo(me.rank + 1, me.size), piece_of(all, piece, p)));
    receive(p + ahead);
  }
  sends.drain();
  return builder.take();
}

}  // namespace

CollectiveSchedule all_gather_schedule(CommAlgorithm algorithm, Member me, std::int64_t count,
                                       std::int64_t piece) {
  if (algorithm == CommAlgorithm::Ring) return ring_all_gather(me, count, piece);
  if (algorithm == CommAlgorithm::Direct) return direct_all_gather(me, count, piece);
  throw InvariantError("all_gather does not offer this algorithm");
}

CollectiveSchedule all_to_all_schedule(CommAlgorithm algorithm, Member me, std::int64_t count,
                                       std::int64_t piece, bool in_place) {
  const std::int64_t block_count = count / me.size;
  if (in_place) return swapping_all_to_all(me, block_count, piece);
  const Blocks blocks(std::vector<std::int64_t>(static_cast<std::size_t>(me.size), block_count));
  return shifted_all_to_all(me, blocks, blocks, piece, messages_in_flight(algorithm, me));
}

CollectiveSchedule all_to_all_v_schedule(CommAlgorithm algorithm, Member me,
                                         std::span<const std::int64_t> send_counts,
                                         std::span<const std::int64_t> recv_counts,
                                         std::int64_t piece) {
  return shifted_all_to_all(me, Blocks(send_counts), Blocks(recv_counts), piece,
                            messages_in_flight(algorithm, me));
}

CollectiveSchedule broadcast_schedule(CommAlgorithm algorithm, Member me, int root,
                                      std::int64_t count, std::int64_t piece) {
  if (algorithm == CommAlgorithm::Tree) return tree_broadcast(me, root, count);
  if (algorithm == CommAlgorithm::Ring) return chain_broadcast(me, root, count, piece);
  throw InvariantError("broadcast does not offer this algorithm");
}

CollectiveSchedule barrier_schedule(Member me) {
  ScheduleBuilder builder;
  const Extent token = builder.scratch(1);
  const Extent received = builder.scratch(1);
  for (int distance = 1; distance < me.size; distance *= 2) {
    std::vector<ScheduleBuilder::Request> requests{
        builder.recv(modulo(me.rank - distance, me.size), received),
        builder.send(modulo(me.rank + distance, me.size), token)};
    builder.await_all(requests);
  }
  return builder.take();
}

}  // namespace meshplan::runtime
