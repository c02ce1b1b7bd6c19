// The contract of Communicator, on MPI. Run at 1, 2, 3, 4 and 8 ranks.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "comm/host_communicator.hpp"
#include "core/error.hpp"
#include "mpi_test_session.hpp"
#include "runtime/comm/communicator_contract.hpp"

namespace meshplan::runtime {
namespace {

using program::CollectiveTable;
using program::CommAlgorithm;
using program::CommOp;

const Session& session() {
  return test::mpi_session();
}

constexpr Bytes kSmallPiece{512};  // so that a few thousand elements already are many pieces

CollectiveTable small_pieces() {
  CollectiveTable table = program::default_collective_table();
  table.piece = kSmallPiece;
  return table;
}

/// Every operation runs `algorithm` where it is offered.
CollectiveTable only(CommAlgorithm algorithm) {
  CollectiveTable table;
  table.piece = kSmallPiece;
  for (const CommOp op : {CommOp::AllReduce, CommOp::ReduceScatter, CommOp::AllGather,
                          CommOp::AllToAll, CommOp::AllToAllV, CommOp::Broadcast, CommOp::Barrier})
    if (is_offered(op, algorithm)) table.rules.push_back({op, algorithm});
  return table;
}

TEST_CASE("Reductions match their closed forms for every dtype and size", "[runtime][mpi]") {
  HostWorldOptions options;
  options.table = small_pieces();
  const auto world = make_host_world(session(), options);
  for (const std::int64_t count : {0, 1, 3, 257, 3001}) contract::check_reductions(*world, count);
}

TEST_CASE("Data movement puts every element in its place for every dtype and size",
          "[runtime][mpi]") {
  HostWorldOptions options;
  options.table = small_pieces();
  const auto world = make_host_world(session(), options);
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::I32, DType::U8})
    for (const std::int64_t count : {0, 1, 3, 257, 3001})
      contract::check_movement(*world, dtype, count);
  for (const std::int64_t unit : {0, 1, 333}) contract::check_all_to_all_v(*world, unit);
}

TEST_CASE("Every algorithm of the table keeps the contract", "[runtime][mpi]") {
  for (const CommAlgorithm algorithm :
       {CommAlgorithm::OneShot, CommAlgorithm::Direct, CommAlgorithm::Doubling, CommAlgorithm::Tree,
        CommAlgorithm::Ring, CommAlgorithm::Pairwise, CommAlgorithm::Library}) {
    CAPTURE(name_of(algorithm));
    HostWorldOptions options;
    options.table = only(algorithm);
    const auto world = make_host_world(session(), options);
    contract::check_reductions(*world, 1001);
    contract::check_movement(*world, DType::F32, 1001);
    contract::check_all_to_all_v(*world, 100);
    contract::check_determinism(*world, 1001);
    contract::check_many_in_flight(*world);
    world->barrier().wait();
  }
}

TEST_CASE("Point-to-point messages arrive whole and in order", "[runtime][mpi]") {
  HostWorldOptions options;
  options.table = small_pieces();
  for (const bool verify : {false, true}) {
    options.verify_calls = verify;
    const auto world = make_host_world(session(), options);
    for (const std::int64_t count : {0, 1, 300, 200'001})
      contract::check_point_to_point(*world, count);
    contract::check_message_order(*world, 5001);
    contract::check_grouped_transfers(*world, 1001);
  }
}

TEST_CASE("Groups run side by side", "[runtime][mpi]") {
  for (const bool verify : {false, true}) {
    HostWorldOptions options;
    options.table = small_pieces();
    options.verify_calls = verify;
    const auto world = make_host_world(session(), options);
    contract::check_concurrent_groups(*world);
    contract::check_group_order(*world);
    contract::check_many_in_flight(*world);
  }
}

TEST_CASE("With a progress thread every operation keeps its contract", "[runtime][mpi]") {
  for (const CommAlgorithm algorithm :
       {CommAlgorithm::OneShot, CommAlgorithm::Ring, CommAlgorithm::Library}) {
    CAPTURE(name_of(algorithm));
    HostWorldOptions options;
    options.table = only(algorithm);
    options.verify_calls = algorithm == CommAlgorithm::OneShot;
    const auto world = make_host_world(session(), options);
    world->progress_in_background(true);
    contract::check_reductions(*world, 1001);
    contract::check_movement(*world, DType::F32, 1001);
    contract::check_all_to_all_v(*world, 100);
    contract::check_determinism(*world, 1001);
    contract::check_many_in_flight(*world);
    contract::check_point_to_point(*world, 20'001);
    contract::check_grouped_transfers(*world, 1001);
    contract::check_concurrent_groups(*world);
    contract::check_group_order(*world);
    world->progress_in_background(algorithm == CommAlgorithm::Ring);  // off, or on twice
    contract::check_many_in_flight(*world);
    world->barrier().wait();
  }
}

TEST_CASE("With a progress thread waits still give up and broken calls still throw",
          "[runtime][mpi]") {
  const auto world = make_host_world(session(), {});
  world->progress_in_background(true);
  contract::check_timeout(*world);
  contract::check_abandonment(*world);
  contract::check_count_mismatch_of_messages(*world);
  contract::check_invalid_calls(*world);
  HostWorldOptions options;
  options.verify_calls = true;
  const auto verified = make_host_world(session(), options);
  verified->progress_in_background(true);
  contract::check_mismatches(*verified);
}

TEST_CASE("Waits give up in time and abandoned operations break their group", "[runtime][mpi]") {
  const auto world = make_host_world(session(), {});
  contract::check_timeout(*world);
  contract::check_abandonment(*world);
  contract::check_count_mismatch_of_messages(*world);
  contract::check_invalid_calls(*world);
}

TEST_CASE("Verified calls that differ throw on every rank and name what each rank passed",
          "[runtime][mpi]") {
  HostWorldOptions options;
  options.verify_calls = true;
  const auto world = make_host_world(session(), options);
  contract::check_mismatches(*world);
  contract::check_reductions(*world, 100);
}

TEST_CASE("A table that reduces in an unknown order is refused", "[runtime][mpi]") {
  HostWorldOptions options;
  options.table.rules = {{CommOp::AllReduce, CommAlgorithm::Library}};
  REQUIRE_THROWS_AS(make_host_world(session(), options), ConfigError);
}

struct CountingObserver : WaitObserver {
  void wait_begins(std::optional<int> peer) noexcept override {
    ++begun;
    last_peer = peer;
  }
  void wait_ends() noexcept override { ++ended; }
  int begun = 0;
  int ended = 0;
  std::optional<int> last_peer;
};

TEST_CASE("An observer learns for whom a rank waits, and that the wait ended", "[runtime][mpi]") {
  CountingObserver observer;
  HostWorldOptions options;
  options.observer = &observer;
  options.oversubscribed = true;
  const auto world = make_host_world(session(), options);
  if (world->size() < 2) return;
  float value = 0;
  if (world->rank() == 0) {
    Handle handle = world->recv({&value, 1, DType::F32}, 1);
    REQUIRE_THROWS_AS(handle.wait(Seconds{0.1}), CommTimeout);
    REQUIRE(observer.begun == 1);
    REQUIRE(observer.ended == 1);
    REQUIRE(observer.last_peer == 1);
    world->barrier().wait();
    handle.wait();
    REQUIRE(observer.begun == observer.ended);
  } else {
    world->barrier().wait();
    if (world->rank() == 1) world->send({&value, 1, DType::F32}, 0).wait();
  }
}

TEST_CASE("More than 2^31 elements travel", "[.large][runtime][mpi]") {
  const auto world = make_host_world(session(), {});
  if (world->size() != 2) return;
  constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 5;
  std::vector<std::uint8_t> data(static_cast<std::size_t>(kCount));
  const bool root = world->rank() == 0;
  if (root)
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::uint8_t>(i % 251);
  if (root)
    world->send({data.data(), kCount, DType::U8}, 1).wait();
  else
    world->recv({data.data(), kCount, DType::U8}, 0).wait();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < data.size(); ++i)
    if (data[i] != static_cast<std::uint8_t>(i % 251)) ++wrong;
  REQUIRE(wrong == 0);
  HostWorldOptions tree;
  tree.table.rules = {{CommOp::Broadcast, CommAlgorithm::Tree}};  // whole buffers in one message
  const auto whole = make_host_world(session(), tree);
  whole->broadcast({data.data(), kCount, DType::U8}, 0).wait();
  REQUIRE(data.back() == static_cast<std::uint8_t>((kCount - 1) % 251));
}

}  // namespace
}  // namespace meshplan::runtime
