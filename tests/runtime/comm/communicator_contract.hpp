// What every Communicator must do, run by the tests of each back end on all ranks of `world`.
// Expected values are closed forms of small integers, exact in every dtype.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/elements.hpp"

namespace meshplan::runtime::contract {

constexpr DType kReducible[] = {DType::F64,  DType::F32, DType::F16,
                                DType::BF16, DType::I64, DType::I32};

/// What rank `rank` of `size` puts at index i for this reduction, and what comes out.
inline double given(ReduceOp op, int size, int rank, std::int64_t i) {
  const auto j = static_cast<double>(i % 5);
  switch (op) {
    case ReduceOp::Sum:
      return j + rank + 1;  // exact in bf16 up to 8 ranks
    case ReduceOp::Prod:
      return (i + rank) % 3 == 0 ? 2 : 1;
    case ReduceOp::Min:
      return j + (rank + static_cast<int>(i)) % size;
    case ReduceOp::Max:
      return j - (rank + static_cast<int>(i)) % size;
    case ReduceOp::Avg:
      return j + 1 + 2 * rank - (size - 1);  // averages to j + 1
  }
  return 0;
}
inline double reduced(ReduceOp op, int size, std::int64_t i) {
  const auto j = static_cast<double>(i % 5);
  switch (op) {
    case ReduceOp::Sum:
      return size * (j + 1) + size * (size - 1) / 2.0;
    case ReduceOp::Prod: {
      double product = 1;
      for (int rank = 0; rank < size; ++rank) product *= (i + rank) % 3 == 0 ? 2 : 1;
      return product;
    }
    case ReduceOp::Min:
    case ReduceOp::Max:
      return j;
    case ReduceOp::Avg:
      return j + 1;
  }
  return 0;
}

inline bool takes(DType dtype, ReduceOp op) {
  const bool integer = dtype == DType::I32 || dtype == DType::I64;
  return !(integer && op == ReduceOp::Avg);
}

/// Every reduction x dtype, blocks of `count` elements, out of place and in place.
inline void check_reductions(Communicator& comm, std::int64_t count) {
  const int n = comm.size();
  const int r = comm.rank();
  for (const DType dtype : kReducible)
    for (const ReduceOp op :
         {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg}) {
      if (!takes(dtype, op)) continue;
      CAPTURE(name_of(dtype), static_cast<int>(op), count, comm.name());
      const auto mine = [&](std::int64_t i) { return given(op, n, r, i); };
      const auto expected = [&](std::int64_t i) { return reduced(op, n, i); };
      Elements send = filled(dtype, count, mine);
      Elements recv(dtype, count);
      comm.all_reduce(std::as_const(send).buffer(), recv.buffer(), op).wait();
      REQUIRE(first_wrong(recv, expected) == -1);
      REQUIRE(first_wrong(send, mine) == -1);
      comm.all_reduce(send.buffer(), send.buffer(), op).wait();
      REQUIRE(first_wrong(send, expected) == -1);

      Elements blocks = filled(dtype, count * n, mine);
      Elements block(dtype, count);
      const auto expected_block = [&](std::int64_t i) { return expected(r * count + i); };
      comm.reduce_scatter(blocks.buffer(), block.buffer(), op).wait();
      REQUIRE(first_wrong(block, expected_block) == -1);
      REQUIRE(first_wrong(blocks, mine) == -1);
      comm.reduce_scatter(blocks.buffer(), blocks.part(r * count, count), op).wait();
      REQUIRE(first_wrong(Elements(dtype, blocks.bytes(r * count, count)), expected_block) == -1);
    }
}

/// Distinct per rank and index, and fits 8 bits.
inline double tagged(int rank, std::int64_t i) {
  return static_cast<double>((16 * rank + i) % 127);
}

/// Every operation that only moves data, out of place and in place.
inline void check_movement(Communicator& comm, DType dtype, std::int64_t count) {
  const int n = comm.size();
  const int r = comm.rank();
  CAPTURE(name_of(dtype), count, comm.name());
  const Elements mine = filled(dtype, count, [&](std::int64_t i) { return tagged(r, i); });
  const auto gathered = [&](std::int64_t i) {
    return tagged(static_cast<int>(i / count), i % count);
  };
  Elements all(dtype, count * n);
  comm.all_gather(mine.buffer(), all.buffer()).wait();
  REQUIRE(first_wrong(all, gathered) == -1);
  Elements in_place = filled(
      dtype, count * n, [&](std::int64_t i) { return i / count == r ? tagged(r, i % count) : 0; });
  comm.all_gather(in_place.part(r * count, count), in_place.buffer()).wait();
  REQUIRE(first_wrong(in_place, gathered) == -1);

  const auto outgoing = [&](std::int64_t i) { return tagged(r, i); };
  const auto transposed = [&](std::int64_t i) {
    return tagged(static_cast<int>(i / count), r * count + i % count);
  };
  Elements send = filled(dtype, count * n, outgoing);
  Elements recv(dtype, count * n);
  comm.all_to_all(std::as_const(send).buffer(), recv.buffer()).wait();
  REQUIRE(first_wrong(recv, transposed) == -1);
  REQUIRE(first_wrong(send, outgoing) == -1);
  comm.all_to_all(send.buffer(), send.buffer()).wait();
  REQUIRE(first_wrong(send, transposed) == -1);

  for (int root = 0; root < n; ++root) {
    Elements buffer = filled(dtype, count, [&](std::int64_t i) { return tagged(r, i); });
    comm.broadcast(buffer.buffer(), root).wait();
    REQUIRE(first_wrong(buffer, [&](std::int64_t i) { return tagged(root, i); }) == -1);
  }
}

/// Rank a sends (a + 2b) mod 4 times `unit` elements to rank b; some blocks are empty.
inline void check_all_to_all_v(Communicator& comm, std::int64_t unit) {
  const int n = comm.size();
  const int r = comm.rank();
  const auto count = [&](int from, int to) { return unit * ((from + 2 * to) % 4); };
  std::vector<std::int64_t> send_counts;
  std::vector<std::int64_t> recv_counts;
  std::vector<double> outgoing;
  std::vector<double> expected;
  for (int peer = 0; peer < n; ++peer) {
    send_counts.push_back(count(r, peer));
    recv_counts.push_back(count(peer, r));
    for (std::int64_t i = 0; i < send_counts.back(); ++i)
      outgoing.push_back(static_cast<double>(100 * r + 10 * peer + i % 10));
    for (std::int64_t i = 0; i < recv_counts.back(); ++i)
      expected.push_back(static_cast<double>(100 * peer + 10 * r + i % 10));
  }
  const auto of = [](const std::vector<double>& values) {
    return [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
  };
  const Elements send = filled(DType::F32, std::ssize(outgoing), of(outgoing));
  Elements recv(DType::F32, std::ssize(expected));
  comm.all_to_all_v(send.buffer(), send_counts, recv.buffer(), recv_counts).wait();
  REQUIRE(first_wrong(recv, of(expected)) == -1);
}

/// A ring of messages, sent before the receives are posted, with two tags that cross.
inline void check_point_to_point(Communicator& comm, std::int64_t count) {
  const int n = comm.size();
  const int next = (comm.rank() + 1) % n;
  const int previous = (comm.rank() + n - 1) % n;
  CAPTURE(count, comm.name());
  for (const DType dtype : {DType::F64, DType::BF16, DType::U8}) {
    const auto value = [](int rank, int tag) {
      return [rank, tag](std::int64_t i) { return tagged(rank + tag, i); };
    };
    const Elements first = filled(dtype, count, value(comm.rank(), 0));
    const Elements second = filled(dtype, count, value(comm.rank(), 1));
    Elements got_first(dtype, count);
    Elements got_second(dtype, count);
    Handle send_first = comm.send(first.buffer(), next, 0);
    Handle send_second = comm.send(second.buffer(), next, kMaxTag);
    Handle recv_second = comm.recv(got_second.buffer(), previous, kMaxTag);
    Handle recv_first = comm.recv(got_first.buffer(), previous, 0);
    recv_second.wait();
    recv_first.wait();
    send_first.wait();
    send_second.wait();
    REQUIRE(first_wrong(got_first, value(previous, 0)) == -1);
    REQUIRE(first_wrong(got_second, value(previous, 1)) == -1);
  }
}

/// Two messages with equal tags arrive in order although both are cut into pieces.
inline void check_message_order(Communicator& comm, std::int64_t count) {
  if (comm.size() < 2 || comm.rank() > 1) return;
  std::vector<Handle> handles;
  std::vector<Elements> messages(4, Elements(DType::I32, count));
  for (int m = 0; m < 4; ++m) {
    Elements& message = messages[static_cast<std::size_t>(m)];
    if (comm.rank() == 0) {
      message = filled(DType::I32, count, [&](std::int64_t) { return m + 1; });
      handles.push_back(comm.send(message.buffer(), 1, 7));
    } else {
      handles.push_back(comm.recv(message.buffer(), 0, 7));
    }
  }
  for (Handle& handle : handles) handle.wait();
  for (int m = 0; m < 4; ++m)
    REQUIRE(first_wrong(messages[static_cast<std::size_t>(m)],
                        [&](std::int64_t) { return m + 1; }) == -1);
}

/// Everybody sends to everybody, itself included, in one call.
inline void check_grouped_transfers(Communicator& comm, std::int64_t count) {
  const int n = comm.size();
  std::vector<Elements> out;
  std::vector<Elements> in;
  for (int peer = 0; peer < n; ++peer) {
    out.push_back(filled(DType::I32, count,
                         [&](std::int64_t i) { return 1000 * comm.rank() + 100 * peer + i % 7; }));
    in.emplace_back(DType::I32, count);
  }
  std::vector<Transfer> transfers;
  for (int peer = 0; peer < n; ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    transfers.push_back({Transfer::Direction::Send, out[p].buffer(), peer, 1});
    transfers.push_back({Transfer::Direction::Recv, in[p].buffer(), peer, 1});
  }
  comm.send_recv(transfers).wait();
  for (int peer = 0; peer < n; ++peer)
    REQUIRE(first_wrong(in[static_cast<std::size_t>(peer)], [&](std::int64_t i) {
              return 1000 * peer + 100 * comm.rank() + i % 7;
            }) == -1);
}

/// Operations of several groups in flight at once, waited for in different orders on different
/// ranks.
inline void check_concurrent_groups(Communicator& world) {
  const int n = world.size();
  if (n < 4 || n % 2 != 0) return;
  const int r = world.rank();
  // Rows of two neighbours, and columns: every rank is in one of each.
  const std::vector<int> row{r - r % 2, r - r % 2 + 1};
  std::vector<int> column;
  for (int member = r % 2; member < n; member += 2) column.push_back(member);
  const auto rows = world.create_group(row, "tp");
  const auto columns = world.create_group(column, "dp");
  REQUIRE(rows != nullptr);
  REQUIRE(rows->size() == 2);
  REQUIRE(rows->rank() == r % 2);
  REQUIRE(columns->size() == n / 2);
  REQUIRE(columns->rank() == r / 2);
  REQUIRE(columns->world_ranks() == column);

  constexpr std::int64_t kCount = 3001;
  const auto rank_value = [&](std::int64_t) { return r + 1; };
  std::vector<Elements> sums(5, filled(DType::F32, kCount, rank_value));
  std::vector<Handle> handles;
  handles.push_back(rows->all_reduce(sums[0].buffer(), sums[0].buffer(), ReduceOp::Sum));
  handles.push_back(columns->all_reduce(sums[1].buffer(), sums[1].buffer(), ReduceOp::Sum));
  handles.push_back(rows->all_reduce(sums[2].buffer(), sums[2].buffer(), ReduceOp::Max));
  handles.push_back(world.all_reduce(sums[3].buffer(), sums[3].buffer(), ReduceOp::Sum));
  handles.push_back(columns->all_reduce(sums[4].buffer(), sums[4].buffer(), ReduceOp::Min));
  if (r % 3 == 0) std::ranges::reverse(handles);
  for (Handle& handle : handles) handle.wait();

  const double row_sum = 2 * (r - r % 2) + 3;
  double column_sum = 0;
  for (const int member : column) column_sum += member + 1;
  const double expected[] = {row_sum, column_sum, static_cast<double>(r - r % 2 + 2),
                             n * (n + 1) / 2.0, static_cast<double>(r % 2 + 1)};
  for (std::size_t i = 0; i < sums.size(); ++i) {
    CAPTURE(i);
    REQUIRE(first_wrong(sums[i], [&](std::int64_t) { return expected[i]; }) == -1);
  }
}

/// A group in an order of its own, and ranks outside it.
inline void check_group_order(Communicator& world) {
  const int n = world.size();
  if (n < 3) return;
  const std::vector<int> ranks{2, 0};
  const auto group = world.create_group(ranks, "pair");
  REQUIRE((group != nullptr) == (world.rank() == 0 || world.rank() == 2));
  if (group == nullptr) return;
  REQUIRE(group->rank() == (world.rank() == 2 ? 0 : 1));
  REQUIRE(group->name() == "pair of ranks 2 0");
  Elements mine = filled(DType::I32, 1, [&](std::int64_t) { return world.rank(); });
  Elements both(DType::I32, 2);
  group->all_gather(mine.buffer(), both.buffer()).wait();
  REQUIRE(both.get(0) == 2);
  REQUIRE(both.get(1) == 0);
}

/// Sums of values that round: the same bits on every rank and in every repetition.
inline void check_determinism(Communicator& comm, std::int64_t count) {
  const auto uneven = [&](std::int64_t i) {
    return 1.0 / (3.0 + 7.0 * comm.rank() + static_cast<double>(i));
  };
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const Elements mine = filled(dtype, count, uneven);
    Elements first(dtype, count);
    comm.all_reduce(mine.buffer(), first.buffer(), ReduceOp::Sum).wait();
    for (int repeat = 0; repeat < 5; ++repeat) {
      Elements again(dtype, count);
      comm.all_reduce(mine.buffer(), again.buffer(), ReduceOp::Sum).wait();
      REQUIRE(again.bytes() == first.bytes());
    }
    const Elements bytes(DType::U8, first.bytes());
    Elements all(DType::U8, bytes.count() * comm.size());
    comm.all_gather(bytes.buffer(), all.buffer()).wait();
    for (int rank = 0; rank < comm.size(); ++rank)
      REQUIRE(all.bytes(rank * bytes.count(), bytes.count()) == bytes.bytes());
  }
}

/// A receive that nobody answers gives up, stays in flight, and completes once the message comes.
inline void check_timeout(Communicator& comm) {
  if (comm.size() < 2) return;
  if (comm.rank() == 0) {
    Elements message(DType::F32, 10);
    Handle handle = comm.recv(message.buffer(), 1, 3);
    REQUIRE_FALSE(handle.test());
    try {
      handle.wait(Seconds{0.05});
      FAIL("the wait returned");
    } catch (const CommTimeout& error) {
      REQUIRE(error.operation() == "recv");
      REQUIRE(error.group() == comm.name());
      REQUIRE(error.peer() == 1);
    }
    comm.barrier().wait();
    handle.wait(Seconds{60});
    REQUIRE(handle.test());
    REQUIRE(message.get(9) == 9);
  } else {
    comm.barrier().wait();
    const Elements message = filled(DType::F32, 10, [](std::int64_t i) { return i; });
    if (comm.rank() == 1) comm.send(message.buffer(), 0, 3).wait();
  }
}

/// A receive that is given up for good breaks its group, and only that. Uses a group of its own.
inline void check_abandonment(Communicator& world) {
  std::vector<int> everybody(static_cast<std::size_t>(world.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  const auto group = world.create_group(everybody, "doomed");
  if (world.size() < 2) return;
  Elements message(DType::F32, 1);
  { const Handle handle = group->recv(message.buffer(), (world.rank() + 1) % world.size(), 5); }
  REQUIRE_THROWS_AS(group->barrier(), CommError);
  world.barrier().wait();
}

/// A receiver that expects another count than was sent learns of it.
inline void check_count_mismatch_of_messages(Communicator& world) {
  std::vector<int> everybody(static_cast<std::size_t>(world.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  const auto group = world.create_group(everybody, "uneven");
  if (world.size() < 2) return;
  Elements message(DType::F32, 8);
  if (world.rank() == 0) group->send(message.part(0, 4), 1, 0).wait();
  if (world.rank() == 1) REQUIRE_THROWS_AS(group->recv(message.buffer(), 0, 0).wait(), CommError);
  world.barrier().wait();
}

/// Misuse that this rank alone can see.
inline void check_invalid_calls(Communicator& comm) {
  Elements four(DType::F32, 4);
  Elements five(DType::F32, 5);
  Elements bytes(DType::U8, 4);
  Elements integers(DType::I32, 4);
  REQUIRE_THROWS_AS(comm.all_reduce(four.buffer(), five.buffer(), ReduceOp::Sum), InvariantError);
  REQUIRE_THROWS_AS(comm.all_reduce(bytes.buffer(), bytes.buffer(), ReduceOp::Sum), InvariantError);
  REQUIRE_THROWS_AS(comm.all_reduce(integers.buffer(), integers.buffer(), ReduceOp::Avg),
                    InvariantError);
  REQUIRE_THROWS_AS(comm.broadcast(four.buffer(), comm.size()), InvariantError);
  REQUIRE_THROWS_AS(comm.send(four.buffer(), -1, 0), InvariantError);
  REQUIRE_THROWS_AS(comm.send(four.buffer(), 0, kMaxTag + 1), InvariantError);
  const std::vector<int> twice{0, 0};
  const std::vector<int> unknown{comm.size()};
  REQUIRE_THROWS_AS(comm.create_group(twice, "bad"), ConfigError);
  REQUIRE_THROWS_AS(comm.create_group(unknown, "bad"), ConfigError);
}

/// On a communicator that verifies calls: every rank throws, and the text tells what each passed.
inline void check_mismatches(Communicator& comm) {
  if (comm.size() < 2) return;
  const bool odd_one = comm.rank() == 1;
  Elements four(DType::F32, 4);
  Elements five(DType::F32, 5);
  Elements halves(DType::BF16, 4);
  const auto text_of = [](Handle handle) -> std::string {
    try {
      handle.wait(Seconds{60});
    } catch (const CommMismatch& error) {
      return error.what();
    }
    return "no error";
  };
  const auto reduce = [&](Elements& e, ReduceOp op) {
    return comm.all_reduce(e.buffer(), e.buffer(), op);
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(text_of(reduce(odd_one ? five : four, ReduceOp::Sum)),
             Contains("rank 0: all_reduce, fp32 x 4, sum") &&
                 Contains("rank 1: all_reduce, fp32 x 5, sum"));
  CHECK_THAT(text_of(reduce(odd_one ? halves : four, ReduceOp::Sum)),
             Contains("rank 1: all_reduce, bf16 x 4, sum"));
  CHECK_THAT(text_of(reduce(four, odd_one ? ReduceOp::Max : ReduceOp::Sum)),
             Contains("fp32 x 4, max"));
  CHECK_THAT(text_of(odd_one ? comm.barrier() : reduce(four, ReduceOp::Sum)),
             Contains("rank 1: barrier"));
  CHECK_THAT(text_of(comm.broadcast(four.buffer(), odd_one ? 1 : 0)),
             Contains("rank 0: broadcast, fp32 x 4, root 0") && Contains("root 1"));
  std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.size()), 0);
  counts[0] = odd_one ? 4 : 0;  // rank 1 sends 4 to rank 0, which expects none
  std::vector<std::int64_t> none(counts.size(), 0);
  CHECK_THAT(text_of(comm.all_to_all_v(four.part(0, counts[0]), counts, five.part(0, 0), none)),
             Contains("all_to_all_v") && Contains("sends 4"));
  if (comm.rank() == 0)
    CHECK_THAT(text_of(comm.send(four.buffer(), 1, 0)), Contains("rank 1 passed bf16 x 4"));
  if (comm.rank() == 1)
    CHECK_THAT(text_of(comm.recv(halves.buffer(), 0, 0)), Contains("rank 0 passed fp32 x 4"));
  // The group is usable afterwards.
  Elements one = filled(DType::F32, 1, [](std::int64_t) { return 1; });
  comm.all_reduce(one.buffer(), one.buffer(), ReduceOp::Sum).wait();
  REQUIRE(one.get(0) == comm.size());
}

/// Many operations of one communicator in flight, more than one in the same direction.
inline void check_many_in_flight(Communicator& comm) {
  std::vector<Elements> sums;
  std::vector<Handle> handles;
  for (int k = 0; k < 40; ++k)
    sums.push_back(filled(DType::F32, 17 + 100 * k,
                          [&](std::int64_t i) { return given(ReduceOp::Sum, 1, comm.rank(), i); }));
  for (Elements& sum : sums)
    handles.push_back(comm.all_reduce(sum.buffer(), sum.buffer(), ReduceOp::Sum));
  while (!handles.back().test()) {
  }
  for (Handle& handle : handles) handle.wait();
  for (const Elements& sum : sums)
    REQUIRE(first_wrong(
                sum, [&](std::int64_t i) { return reduced(ReduceOp::Sum, comm.size(), i); }) == -1);
}

}  // namespace meshplan::runtime::contract
