// Plays the schedules of all ranks of a group in this process.
#include "comm/collective_algorithms.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace meshplan::runtime {
namespace {

using program::CommAlgorithm;
using program::CommOp;

/// When a message's data is read: as early, or as late, as MPI may.
enum class Reading { WhenSent, WhenAwaited };

struct Message {
  int from = 0, to = 0;
  Extent source;
  std::vector<double> data;
  bool sent = false, received = false;
  Extent target;
};

/// One process of the game. With `in_place_at`, the input is part of the output's memory.
struct Player {
  CollectiveSchedule schedule;
  std::vector<double> input, output, scratch;
  std::optional<std::int64_t> input_in_output;
  std::size_t next = 0;
  std::map<int, std::pair<bool, std::size_t>> requests;  // request -> (is send, message number)

  double* at(Extent extent) {
    std::vector<double>* memory = &scratch;
    std::int64_t offset = extent.offset;
    if (extent.space == Space::Output) memory = &output;
    if (extent.space == Space::Input) {
      memory = input_in_output ? &output : &input;
      offset += input_in_output.value_or(0);
    }
    REQUIRE(offset >= 0);
    REQUIRE(offset + extent.count <= static_cast<std::int64_t>(memory->size()));
    return memory->data() + offset;
  }
};

class Game {
 public:
  Game(std::vector<Player> players, Reading reading)
      : players_(std::move(players)), reading_(reading) {
    for (Player& player : players_)
      player.scratch.assign(static_cast<std::size_t>(player.schedule.scratch_count), -1e9);
  }

  /// Largest number of messages that waited for one another is not modelled; only results are.
  std::vector<Player> play() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t rank = 0; rank < players_.size(); ++rank)
        while (step(static_cast<int>(rank))) moved = true;
    }
    for (const Player& player : players_) {
      REQUIRE(player.next == player.schedule.actions.size());  // else: deadlock
      REQUIRE(player.requests.empty());                        // else: a request was never awaited
    }
    return players_;
  }

 private:
  bool step(int rank) {
    Player& player = players_[static_cast<std::size_t>(rank)];
    if (player.next == player.schedule.actions.size()) return false;
    const Action& action = player.schedule.actions[player.next];
    if (const auto* wait = std::get_if<Await>(&action)) {
      if (!finish(player, wait->request)) return false;
    } else if (const auto* send = std::get_if<StartSend>(&action)) {
      Message& message = take(rank, send->peer, &Message::sent);
      message.source = send->from;
      message.sent = true;
      if (reading_ == Reading::WhenSent) read(message);
      REQUIRE(player.requests.emplace(send->request, std::pair(true, index_of(message))).second);
    } else if (const auto* recv = std::get_if<StartRecv>(&action)) {
      Message& message = take(recv->peer, rank, &Message::received);
      message.target = recv->to;
      message.received = true;
      REQUIRE(player.requests.emplace(recv->request, std::pair(false, index_of(message))).second);
    } else if (const auto* sum = std::get_if<Reduce>(&action)) {
      add(player, *sum);
    } else if (const auto* copy = std::get_if<Copy>(&action)) {
      const double* from = player.at(copy->from);
      std::copy(from, from + copy->from.count, player.at(copy->to));
    }
    ++player.next;
    return true;
  }

  /// The first message on this way that has not been posted on this side: MPI's order.
  Message& take(int from, int to, bool Message::*posted) {
    for (Message& message : messages_)
      if (message.from == from && message.to == to && !(message.*posted)) return message;
    messages_.push_back({from, to, {}, {}, false, false, {}});
    return messages_.back();
  }
  std::size_t index_of(const Message& message) const {
    for (std::size_t i = 0; i < messages_.size(); ++i)
      if (&messages_[i] == &message) return i;
    return messages_.size();
  }

  void read(Message& message) {
    const double* from = players_[static_cast<std::size_t>(message.from)].at(message.source);
    message.data.assign(from, from + message.source.count);
  }

  /// A send is complete once its receive is posted (rendezvous): nothing may rely on buffering.
  bool finish(Player& player, int request) {
    const auto found = player.requests.find(request);
    REQUIRE(found != player.requests.end());
    Message& message = messages_[found->second.second];
    if (!message.sent || !message.received) return false;
    if (message.data.empty()) read(message);
    REQUIRE(message.source.count == message.target.count);
    if (!found->second.first)
      std::copy(message.data.begin(), message.data.end(), player.at(message.target));
    player.requests.erase(found);
    return true;
  }

  static void add(Player& player, const Reduce& action) {
    std::vector<double> sum(static_cast<std::size_t>(action.to.count), 0.0);
    for (std::size_t s = 0; s < action.sources.size(); ++s) {
      REQUIRE(action.sources[s].count == action.to.count);
      const double* from = player.at(action.sources[s]);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = s == 0 ? from[i] : sum[i] + from[i];
    }
    std::copy(sum.begin(), sum.end(), player.at(action.to));
  }

  std::vector<Player> players_;
  std::deque<Message> messages_;  // grows without moving its elements
  Reading reading_;
};

/// Distinct for every (rank, index); sums of 16 of them are exact.
double value(int rank, std::int64_t i) {
  return 1000.0 * (rank + 1) + static_cast<double>(i % 997);
}

std::vector<double> values(int rank, std::int64_t count) {
  std::vector<double> all(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) all[static_cast<std::size_t>(i)] = value(rank, i);
  return all;
}

double sum_of(int size, std::int64_t i) {
  return 1000.0 * size * (size + 1) / 2 + size * static_cast<double>(i % 997);
}

constexpr std::int64_t kPiece = 5;
const std::vector<int> kSizes{1, 2, 3, 4, 5, 8};
const std::vector<std::int64_t> kCounts{0, 1, 4, 5, 6, 23, 100};

std::vector<CommAlgorithm> offered(CommOp op) {
  std::vector<CommAlgorithm> algorithms;
  for (const auto algorithm :
       {CommAlgorithm::OneShot, CommAlgorithm::Direct, CommAlgorithm::Doubling, CommAlgorithm::Tree,
        CommAlgorithm::Ring, CommAlgorithm::Pairwise})
    if (is_offered(op, algorithm)) algorithms.push_back(algorithm);
  return algorithms;
}

template <class Check>
void for_all_cases(CommOp op, const Check& check) {
  for (const CommAlgorithm algorithm : offered(op))
    for (const int size : kSizes)
      for (const std::int64_t count : kCounts)
        for (const Reading reading : {Reading::WhenSent, Reading::WhenAwaited})
          for (const bool in_place : {false, true}) {
            CAPTURE(name_of(algorithm), size, count, in_place, reading == Reading::WhenSent);
            check(algorithm, size, count, in_place, reading);
          }
}

TEST_CASE("Every all-reduce algorithm gives every rank the sum", "[runtime][collectives]") {
  for_all_cases(CommOp::AllReduce, [](auto algorithm, int size, auto count, bool in_place,
                                      Reading reading) {
    std::vector<Player> players(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
      Player& player = players[static_cast<std::size_t>(r)];
      player.schedule = all_reduce_schedule(algorithm, {r, size}, count, kPiece);
      player.input = values(r, count);
      player.output = in_place ? values(r, count) : std::vector<double>(player.input.size(), -1);
      if (in_place) player.input_in_output = 0;
    }
    std::vector<double> expected;
    for (std::int64_t i = 0; i < count; ++i) expected.push_back(sum_of(size, i));
    for (const Player& player : Game(players, reading).play()) REQUIRE(player.output == expected);
  });
}

TEST_CASE("All ranks get the same bits from an all-reduce of values that round",
          "[runtime][collectives]") {
  for (const CommAlgorithm algorithm : offered(CommOp::AllReduce))
    for (const int size : {2, 3, 5, 6, 8}) {
      CAPTURE(name_of(algorithm), size);
      std::vector<Player> players(static_cast<std::size_t>(size));
      for (int r = 0; r < size; ++r) {
        Player& player = players[static_cast<std::size_t>(r)];
        player.schedule = all_reduce_schedule(algorithm, {r, size}, 37, kPiece);
        for (int i = 0; i < 37; ++i) player.input.push_back(1.0 / (3.0 + 7.0 * r + i));
        player.output.assign(37, -1);
      }
      const auto played = Game(players, Reading::WhenAwaited).play();
      for (const Player& player : played) REQUIRE(player.output == played[0].output);
    }
}

TEST_CASE("Every reduce-scatter algorithm gives rank r the sum of block r",
          "[runtime][collectives]") {
  for_all_cases(CommOp::ReduceScatter, [](auto algorithm, int size, auto count, bool in_place,
                                          Reading reading) {
    std::vector<Player> players(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
      Player& player = players[static_cast<std::size_t>(r)];
      player.schedule = reduce_scatter_schedule(algorithm, {r, size}, count, kPiece);
      player.input = values(r, count * size);
      player.output.assign(static_cast<std::size_t>(count), -1);
    }
    if (in_place) return;  // an output inside the input is played below
    const auto played = Game(players, reading).play();
    for (int r = 0; r < size; ++r)
      for (std::int64_t i = 0; i < count; ++i)
        REQUIRE(played[static_cast<std::size_t>(r)].output[static_cast<std::size_t>(i)] ==
                sum_of(size, r * count + i));
  });
}

TEST_CASE("A reduce-scatter reads no block of its own rank after it wrote that block",
          "[runtime][collectives]") {
  // So the output may be block r of the input.
  for_all_cases(CommOp::ReduceScatter, [](auto algorithm, int size, auto count, bool, Reading) {
    for (int r = 0; r < size; ++r) {
      std::vector<std::pair<std::int64_t, std::int64_t>> written;
      const auto unread = [&](Extent from) {
        if (from.space != Space::Input) return true;
        return std::ranges::none_of(written, [&](auto range) {
          const std::int64_t begin = from.offset - r * count;
          return begin < range.second && begin + from.count > range.first;
        });
      };
      const CollectiveSchedule schedule =
          reduce_scatter_schedule(algorithm, {r, size}, count, kPiece);
      for (const Action& action : schedule.actions) {
        if (const auto* send = std::get_if<StartSend>(&action)) REQUIRE(unread(send->from));
        if (const auto* sum = std::get_if<Reduce>(&action)) {
          for (const Extent& source : sum->sources) REQUIRE(unread(source));
          if (sum->to.space == Space::Output)
            written.emplace_back(sum->to.offset, sum->to.offset + sum->to.count);
        }
      }
    }
  });
}

TEST_CASE("Every all-gather algorithm gives every rank all blocks", "[runtime][collectives]") {
  for_all_cases(
      CommOp::AllGather, [](auto algorithm, int size, auto count, bool in_place, Reading reading) {
        std::vector<Player> players(static_cast<std::size_t>(size));
        std::vector<double> expected;
        for (int r = 0; r < size; ++r) {
          Player& player = players[static_cast<std::size_t>(r)];
          player.schedule = all_gather_schedule(algorithm, {r, size}, count, kPiece);
          player.input = values(r, count);
          player.output.assign(static_cast<std::size_t>(count * size), -1);
          if (in_place) {
            player.input_in_output = r * count;
            std::copy(player.input.begin(), player.input.end(), player.output.begin() + r * count);
          }
          expected.insert(expected.end(), player.input.begin(), player.input.end());
        }
        for (const Player& player : Game(players, reading).play())
          REQUIRE(player.output == expected);
      });
}

TEST_CASE("Every all-to-all algorithm transposes blocks", "[runtime][collectives]") {
  for_all_cases(
      CommOp::AllToAll, [](auto algorithm, int size, auto block, bool in_place, Reading reading) {
        const std::int64_t count = block * size;
        std::vector<Player> players(static_cast<std::size_t>(size));
        for (int r = 0; r < size; ++r) {
          Player& player = players[static_cast<std::size_t>(r)];
          player.schedule = all_to_all_schedule(algorithm, {r, size}, count, kPiece, in_place);
          player.input = values(r, count);
          player.output = in_place ? player.input : std::vector<double>(player.input.size(), -1);
          if (in_place) player.input_in_output = 0;
        }
        const auto played = Game(players, reading).play();
        for (int r = 0; r < size; ++r)
          for (int from = 0; from < size; ++from)
            for (std::int64_t i = 0; i < block; ++i)
              REQUIRE(played[static_cast<std::size_t>(r)]
                          .output[static_cast<std::size_t>(from * block + i)] ==
                      value(from, r * block + i));
      });
}

TEST_CASE("All-to-all-v delivers uneven and empty blocks in rank order", "[runtime][collectives]") {
  // Rank a sends (2a + 3b) mod 7 elements to rank b.
  const auto count = [](int from, int to) { return std::int64_t{(2 * from + 3 * to) % 7}; };
  for (const CommAlgorithm algorithm : offered(CommOp::AllToAllV))
    for (const int size : kSizes) {
      CAPTURE(name_of(algorithm), size);
      std::vector<Player> players(static_cast<std::size_t>(size));
      std::vector<std::vector<double>> expected(static_cast<std::size_t>(size));
      for (int r = 0; r < size; ++r) {
        Player& player = players[static_cast<std::size_t>(r)];
        std::vector<std::int64_t> sends, recvs;
        for (int p = 0; p < size; ++p) {
          sends.push_back(count(r, p));
          recvs.push_back(count(p, r));
          for (std::int64_t i = 0; i < sends.back(); ++i)
            player.input.push_back(10000.0 * r + 100.0 * p + static_cast<double>(i));
          for (std::int64_t i = 0; i < recvs.back(); ++i)
            expected[static_cast<std::size_t>(r)].push_back(10000.0 * p + 100.0 * r +
                                                            static_cast<double>(i));
        }
        player.schedule = all_to_all_v_schedule(algorithm, {r, size}, sends, recvs, 2);
        player.output.assign(expected[static_cast<std::size_t>(r)].size(), -1);
      }
      const auto played = Game(players, Reading::WhenAwaited).play();
      for (std::size_t r = 0; r < played.size(); ++r) REQUIRE(played[r].output == expected[r]);
    }
}

TEST_CASE("Every broadcast algorithm copies the root's values, from any root",
          "[runtime][collectives]") {
  for_all_cases(CommOp::Broadcast, [](auto algorithm, int size, auto count, bool, Reading reading) {
    for (int root = 0; root < size; ++root) {
      std::vector<Player> players(static_cast<std::size_t>(size));
      for (int r = 0; r < size; ++r) {
        Player& player = players[static_cast<std::size_t>(r)];
        player.schedule = broadcast_schedule(algorithm, {r, size}, root, count, kPiece);
        player.output = r == root ? values(root, count)
                                  : std::vector<double>(static_cast<std::size_t>(count), -1);
      }
      for (const Player& player : Game(players, reading).play())
        REQUIRE(player.output == values(root, count));
    }
  });
}

TEST_CASE("A barrier has ceil(log2 n) rounds and lets nobody out before all are in",
          "[runtime][collectives]") {
  for (const int size : {1, 2, 3, 5, 8, 9}) {
    int rounds = 0;
    while ((1 << rounds) < size) ++rounds;
    for (int r = 0; r < size; ++r)
      REQUIRE(barrier_schedule({r, size}).actions.size() == static_cast<std::size_t>(4 * rounds));
    // Whoever is known to have arrived: doubles each round (Hensgen, Finkel, Manber 1988).
    std::vector<std::vector<bool>> known(static_cast<std::size_t>(size),
                                         std::vector<bool>(static_cast<std::size_t>(size)));
    for (std::size_t r = 0; r < known.size(); ++r) known[r][r] = true;
    for (int round = 0; round < rounds; ++round) {
      const auto before = known;
      for (int r = 0; r < size; ++r) {
        const CollectiveSchedule schedule = barrier_schedule({r, size});
        const auto& recv =
            std::get<StartRecv>(schedule.actions[static_cast<std::size_t>(4 * round)]);
        for (std::size_t i = 0; i < known.size(); ++i)
          if (before[static_cast<std::size_t>(recv.peer)][i])
            known[static_cast<std::size_t>(r)][i] = true;
      }
    }
    for (const auto& row : known)
      REQUIRE(std::ranges::all_of(row, [](bool arrived) { return arrived; }));
  }
}

/// Elements that one rank sends.
std::int64_t sent_by(const CollectiveSchedule& schedule) {
  std::int64_t count = 0;
  for (const Action& action : schedule.actions)
    if (const auto* send = std::get_if<StartSend>(&action)) count += send->from.count;
  return count;
}

TEST_CASE("Ring and direct send the fewest elements there can be", "[runtime][collectives]") {
  // Patarasuk, Yuan 2009, section 2: 2(n-1)/n of the buffer for an all-reduce.
  for (const CommAlgorithm algorithm : {CommAlgorithm::Ring, CommAlgorithm::Direct})
    for (int r = 0; r < 4; ++r) {
      REQUIRE(sent_by(all_reduce_schedule(algorithm, {r, 4}, 4000, 7)) == 2 * 3 * 1000);
      REQUIRE(sent_by(reduce_scatter_schedule(algorithm, {r, 4}, 1000, 7)) == 3 * 1000);
      REQUIRE(sent_by(all_gather_schedule(algorithm, {r, 4}, 1000, 7)) == 3 * 1000);
    }
}

TEST_CASE("More than 2^31 elements are cut into pieces that cover them", "[runtime][collectives]") {
  constexpr std::int64_t kCount = (std::int64_t{1} << 32) + 12345;
  constexpr std::int64_t kLargePiece = std::int64_t{1} << 28;
  for (const CommAlgorithm algorithm : {CommAlgorithm::Ring, CommAlgorithm::Direct}) {
    const CollectiveSchedule schedule = all_reduce_schedule(algorithm, {1, 3}, kCount, kLargePiece);
    std::vector<std::pair<std::int64_t, std::int64_t>> written;
    for (const Action& action : schedule.actions) {
      if (const auto* recv = std::get_if<StartRecv>(&action)) {
        REQUIRE(recv->to.count <= kLargePiece);
        if (recv->to.space == Space::Output)
          written.emplace_back(recv->to.offset, recv->to.offset + recv->to.count);
      }
      if (const auto* sum = std::get_if<Reduce>(&action))
        if (sum->last) written.emplace_back(sum->to.offset, sum->to.offset + sum->to.count);
    }
    std::ranges::sort(written);
    std::int64_t covered = 0;
    for (const auto& [begin, end] : written) {
      REQUIRE(begin <= covered);
      covered = std::max(covered, end);
    }
    REQUIRE(covered == kCount);
  }
}

}  // namespace
}  // namespace meshplan::runtime
