// n = ranks of the group, r = this rank.
#include <array>
#include <bit>
#include <vector>

#include "comm/collective_algorithms.hpp"
#include "comm/schedule_builder.hpp"
#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::runtime {
namespace {

using program::CommAlgorithm;

/// `count` elements cut into `size` blocks as even as can be.
Extent block_of(Extent whole, int size, int block) {
  const auto begin = whole.count * block / size;
  const auto end = whole.count * (block + 1) / size;
  return {whole.space, whole.offset + begin, end - begin};
}

Extent in_space(Extent extent, Space space) {
  return {space, extent.offset, extent.count};
}

Extent shortened(Extent extent, std::int64_t count) {
  return {extent.space, extent.offset, count};
}

/// Sources in rank order: this rank's own extent and the others' from scratch.
std::vector<Extent> in_rank_order(Member me, Extent own, const std::vector<Extent>& others) {
  std::vector<Extent> sources;
  sources.reserve(static_cast<std::size_t>(me.size));
  for (int rank = 0; rank < me.size; ++rank)
    sources.push_back(rank == me.rank ? own : shortened(others[at(rank)], own.count));
  return sources;
}

std::vector<Extent> scratch_per_peer(ScheduleBuilder& builder, Member me, std::int64_t count) {
  std::vector<Extent> extents(static_cast<std::size_t>(me.size));
  for (int rank = 0; rank < me.size; ++rank)
    if (rank != me.rank) extents[at(rank)] = builder.scratch(count);
  return extents;
}

CollectiveSchedule one_shot(Member me, std::int64_t count) {
  ScheduleBuilder builder;
  const Extent input{Space::Input, 0, count};
  const auto received = scratch_per_peer(builder, me, count);
  std::vector<ScheduleBuilder::Request> requests;
  for (int k = 1; k < me.size; ++k) {
    const int peer = modulo(me.rank - k, me.size);
    requests.push_back(builder.recv(peer, received[at(peer)]));
  }
  for (int k = 1; k < me.size; ++k)
    requests.push_back(builder.send(modulo(me.rank + k, me.size), input));
  builder.await_all(requests);  // sends too: the output may be the input
  builder.reduce(in_space(input, Space::Output), in_rank_order(me, input, received), true);
  return builder.take();
}

/// Recursive doubling. With n not a power of two, the first 2(n - 2^k) ranks pair up before and
/// after (Thakur, Rabenseifner, Gropp 2005, section 4.5). Lower ranks are added first on both sides
/// of an exchange, so both get the same bits.
CollectiveSchedule doubling(Member me, std::int64_t count) {
  ScheduleBuilder builder;
  const Extent sum{Space::Output, 0, count};
  const Extent received = builder.scratch(count);
  builder.copy(sum, {Space::Input, 0, count});
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(me.size)));
  const int extra = me.size - power;
  const bool paired = me.rank < 2 * extra;
  if (paired && me.rank % 2 == 0) {
    builder.await(builder.send(me.rank + 1, sum));
    builder.await(builder.recv(me.rank + 1, sum));
    return builder.take();
  }
  if (paired) {
    builder.await(builder.recv(me.rank - 1, received));
    builder.reduce(sum, {received, sum}, false);
  }
  const int virtual_rank = paired ? me.rank / 2 : me.rank - extra;
  for (int mask = 1; mask < power; mask *= 2) {
    const int virtual_peer = virtual_rank ^ mask;
    const int peer = virtual_peer < extra ? 2 * virtual_peer + 1 : virtual_peer + extra;
    std::vector<ScheduleBuilder::Request> requests{builder.recv(peer, received),
                                                   builder.send(peer, sum)};
    builder.await_all(requests);
    const bool last = 2 * mask == power;
    if (peer < me.rank)
      builder.reduce(sum, {received, sum}, last);
    else
      builder.reduce(sum, {sum, received}, last);
  }
  if (paired) builder.await(builder.send(me.rank - 1, sum));
  return builder.take();
}

/// Block j of everybody's input goes to rank j, which adds them in rank order and sends the sum to
/// all: reduce-scatter and all-gather of one step each.
CollectiveSchedule direct(Member me, std::int64_t count, std::int64_t piece) {
  ScheduleBuilder builder;
  const std::int64_t segment = piece * me.size;
  const auto received = scratch_per_peer(builder, me, std::min(piece, count / me.size + 1));
  std::vector<ScheduleBuilder::Request> requests;
  for (std::int64_t s = 0; s < num_pieces(count, segment); ++s) {
    const Extent input = piece_of({Space::Input, 0, count}, segment, s);
    const Extent output = in_space(input, Space::Output);
    const Extent own = block_of(input, me.size, me.rank);
    for (int k = 1; k < me.size; ++k) {
      const int peer = modulo(me.rank - k, me.size);
      requests.push_back(builder.recv(peer, shortened(received[at(peer)], own.count)));
    }
    for (int k = 1; k < me.size; ++k) {
      const int peer = modulo(me.rank + k, me.size);
      requests.push_back(builder.send(peer, block_of(input, me.size, peer)));
    }
    builder.await_all(requests);  // sends too: the gathered blocks may overwrite the input
    const Extent sum = in_space(own, Space::Output);
    builder.reduce(sum, in_rank_order(me, own, received), true);
    for (int k = 1; k < me.size; ++k) {
      const int peer = modulo(me.rank - k, me.size);
      requests.push_back(builder.recv(peer, block_of(output, me.size, peer)));
    }
    for (int k = 1; k < me.size; ++k)
      requests.push_back(builder.send(modulo(me.rank + k, me.size), sum));
    builder.await_all(requests);
  }
  return builder.take();
}

/// Segments that are in the ring at once: one is added while another travels.
constexpr int kRingLanes = 2;

/// Ring reduce-scatter and all-gather (Patarasuk, Yuan 2009) of each segment of n pieces. Block b
/// starts at rank b+1 and ends, complete, at rank b.
class RingAllReduce {
 public:
  RingAllReduce(Member me, std::int64_t count, std::int64_t piece)
      : me_(me), count_(count), segment_(piece * me.size) {
    for (Extent& extent : received_)
      extent = builder_.scratch(std::min(piece, count / me.size + 1));
  }

  CollectiveSchedule build() {
    for (std::int64_t s = 0; s < num_pieces(count_, segment_); s += kRingLanes) {
      for (int step = 0; step + 1 < me_.size; ++step) add_step(s, step);
      for (int step = 0; step + 1 < me_.size; ++step) gather_step(s, step);
    }
    return builder_.take();
  }

 private:
  Extent block(Space space, std::int64_t s, int lane, int index) const {
    const Extent segment = piece_of({space, 0, count_}, segment_, s + lane);
    return block_of(segment, me_.size, modulo(index, me_.size));
  }
  int next() const { return modulo(me_.rank + 1, me_.size); }
  int previous() const { return modulo(me_.rank - 1, me_.size); }

  void add_step(std::int64_t s, int step) {
    std::array<ScheduleBuilder::Request, kRingLanes> recvs{};
    std::array<ScheduleBuilder::Request, kRingLanes> sends{};
    for (int lane = 0; lane < kRingLanes; ++lane) {
      const auto i = static_cast<std::size_t>(lane);
      const Extent incoming = block(Space::Input, s, lane, me_.rank - step - 2);
      recvs[i] = builder_.recv(previous(), shortened(received_[i], incoming.count));
      const Space from = step == 0 ? Space::Input : Space::Output;
      sends[i] = builder_.send(next(), block(from, s, lane, me_.rank - step - 1));
    }
    for (int lane = 0; lane < kRingLanes; ++lane) {
      const auto i = static_cast<std::size_t>(lane);
      const Extent own = block(Space::Input, s, lane, me_.rank - step - 2);
      builder_.await(recvs[i]);
      builder_.reduce(in_space(own, Space::Output), {shortened(received_[i], own.count), own},
                      step + 2 == me_.size);
    }
    for (const auto send : sends) builder_.await(send);
  }

  void gather_step(std::int64_t s, int step) {
    std::array<ScheduleBuilder::Request, std::size_t{2} * kRingLanes> requests{};
    for (int lane = 0; lane < kRingLanes; ++lane) {
      const auto i = 2 * static_cast<std::size_t>(lane);
      requests[i] = builder_.recv(previous(), block(Space::Output, s, lane, me_.rank - step - 1));
      requests[i + 1] = builder_.send(next(), block(Space::Output, s, lane, me_.rank - step));
    }
    for (const auto request : requests) builder_.await(request);
  }

  Member me_;
  std::int64_t count_;
  std::int64_t segment_;
  ScheduleBuilder builder_;
  std::array<Extent, kRingLanes> received_;
};

CollectiveSchedule ring_reduce_scatter(Member me, std::int64_t count, std::int64_t piece) {
  ScheduleBuilder builder;
  // Two partial sums per lane: one arrives while the one before it is sent on.
  std::array<std::array<Extent, 2>, kRingLanes> partial;
  for (auto& lane : partial)
    for (Extent& extent : lane) extent = builder.scratch(std::min(piece, count));
  const auto input = [&](int block, std::int64_t p) {
    return piece_of({Space::Input, modulo(block, me.size) * count, count}, piece, p);
  };
  std::array<ScheduleBuilder::Request, kRingLanes> recvs{};
  std::array<ScheduleBuilder::Request, kRingLanes> sends{};
  for (std::int64_t p = 0; p < num_pieces(count, piece); p += kRingLanes)
    for (int step = 0; step + 1 < me.size; ++step) {
      const auto now = static_cast<std::size_t>(step % 2);
      for (int lane = 0; lane < kRingLanes; ++lane) {
        const auto i = static_cast<std::size_t>(lane);
        const Extent first = input(me.rank - 1, p + lane);
        recvs[i] =
            builder.recv(modulo(me.rank - 1, me.size), shortened(partial[i][now], first.count));
        sends[i] = builder.send(modulo(me.rank + 1, me.size),
                                step == 0 ? first : shortened(partial[i][1 - now], first.count));
      }
      for (int lane = 0; lane < kRingLanes; ++lane) {
        const auto i = static_cast<std::size_t>(lane);
        const Extent own = input(me.rank - step - 2, p + lane);
        const Extent sum = shortened(partial[i][now], own.count);
        const bool last = step + 2 == me.size;
        builder.await(recvs[i]);
        builder.reduce(last ? piece_of({Space::Output, 0, count}, piece, p + lane) : sum,
                       {sum, own}, last);
      }
      for (const auto send : sends) builder.await(send);
    }
  return builder.take();
}

CollectiveSchedule direct_reduce_scatter(Member me, std::int64_t count, std::int64_t piece) {
  ScheduleBuilder builder;
  constexpr std::size_t kSets = 2;  // the next piece arrives while this one is added
  std::array<std::vector<Extent>, kSets> received;
  for (auto& set : received) set = scratch_per_peer(builder, me, std::min(piece, count));
  std::array<std::vector<ScheduleBuilder::Request>, kSets> requests;
  const auto start = [&](std::int64_t p) {
    const auto set = static_cast<std::size_t>(p) % kSets;
    for (int k = 1; k < me.size; ++k) {
      const int peer = modulo(me.rank - k, me.size);
      const Extent to = received[set][at(peer)];
      const Extent part = piece_of({Space::Input, 0, count}, piece, p);
      requests[set].push_back(builder.recv(peer, shortened(to, part.count)));
    }
    for (int k = 1; k < me.size; ++k) {
      const int peer = modulo(me.rank + k, me.size);
      requests[set].push_back(
          builder.send(peer, piece_of({Space::Input, peer * count, count}, piece, p)));
    }
  };
  const std::int64_t pieces = num_pieces(count, piece);
  if (pieces > 0) start(0);
  for (std::int64_t p = 0; p < pieces; ++p) {
    if (p + 1 < pieces) start(p + 1);
    const auto set = static_cast<std::size_t>(p) % kSets;
    builder.await_all(requests[set]);
    const Extent own = piece_of({Space::Input, me.rank * count, count}, piece, p);
    builder.reduce(piece_of({Space::Output, 0, count}, piece, p),
                   in_rank_order(me, own, received[set]), true);
  }
  return builder.take();
}

CollectiveSchedule copy_only(std::int64_t count) {
  ScheduleBuilder builder;
  builder.copy({Space::Output, 0, count}, {Space::Input, 0, count});
  return builder.take();
}

}  // namespace

CollectiveSchedule all_reduce_schedule(CommAlgorithm algorithm, Member me, std::int64_t count,
                                       std::int64_t piece) {
  if (me.size == 1) return copy_only(count);
  switch (algorithm) {
    case CommAlgorithm::OneShot:
      return one_shot(me, count);
    case CommAlgorithm::Doubling:
      return doubling(me, count);
    case CommAlgorithm::Direct:
      return direct(me, count, piece);
    case CommAlgorithm::Ring:
      return RingAllReduce(me, count, piece).build();
    default:
      throw InvariantError("all_reduce does not offer this algorithm");
  }
}

CollectiveSchedule reduce_scatter_schedule(CommAlgorithm algorithm, Member me, std::int64_t count,
                                           std::int64_t piece) {
  if (me.size == 1) return copy_only(count);
  switch (algorithm) {
    case CommAlgorithm::Direct:
      return direct_reduce_scatter(me, count, piece);
    case CommAlgorithm::Ring:
      return ring_reduce_scatter(me, count, piece);
    default:
      throw InvariantError("reduce_scatter does not offer this algorithm");
  }
}

}  // namespace meshplan::runtime
