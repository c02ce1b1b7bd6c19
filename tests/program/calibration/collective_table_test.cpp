#include "program/calibration/collective_table.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"

namespace meshplan::program {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("The first rule that matches operation, group and message decides",
          "[program][collective_table]") {
  CollectiveTable table;
  table.rules = {{CommOp::AllReduce, CommAlgorithm::OneShot, Bytes{1000}, 2, 4},
                 {CommOp::AllReduce, CommAlgorithm::Doubling, Bytes{1000}},
                 {CommOp::AllReduce, CommAlgorithm::Direct, Bytes{5000}}};
  CHECK(table.choose(CommOp::AllReduce, 4, Bytes{1000}) == CommAlgorithm::OneShot);
  CHECK(table.choose(CommOp::AllReduce, 5, Bytes{1000}) == CommAlgorithm::Doubling);
  CHECK(table.choose(CommOp::AllReduce, 4, Bytes{1001}) == CommAlgorithm::Direct);
  CHECK(table.choose(CommOp::AllReduce, 4, Bytes{5001}) == CommAlgorithm::Ring);
  CHECK(table.choose(CommOp::Broadcast, 4, Bytes{1}) == CommAlgorithm::Ring);
}

TEST_CASE("Every fallback is offered for its operation", "[program][collective_table]") {
  for (const CommOp op :
       {CommOp::AllReduce, CommOp::ReduceScatter, CommOp::AllGather, CommOp::AllToAll,
        CommOp::AllToAllV, CommOp::Broadcast, CommOp::Barrier, CommOp::PointToPoint}) {
    CAPTURE(name_of(op));
    CHECK(is_offered(op, fallback_algorithm(op)));
    CHECK(parse_comm_op(name_of(op)) == op);
  }
}

TEST_CASE("The default table validates; a table whose reductions have no fixed order does not",
          "[program][collective_table]") {
  CHECK_NOTHROW(validate(default_collective_table()));
  CollectiveTable table;
  table.rules = {{CommOp::ReduceScatter, CommAlgorithm::Library}};
  CHECK_THROWS_WITH(validate(table), Contains("rules[0]") && Contains("reduce_scatter") &&
                                         Contains("not fixed") && Contains("direct ring"));
  table.rules = {{CommOp::Broadcast, CommAlgorithm::Tree, Bytes{10}, 8, 4}};
  CHECK_THROWS_WITH(validate(table), Contains("groups of 8 to 4 ranks"));
  table.rules.clear();
  table.piece = Bytes{0};
  CHECK_THROWS_WITH(validate(table), Contains("piece = 0 bytes"));
}

TEST_CASE("A mistyped name is answered with the nearest", "[program][collective_table]") {
  CHECK_THROWS_WITH(parse_comm_op("all_reduse"), Contains("all_reduce"));
  CHECK_THROWS_WITH(parse_comm_algorithm("rign"), Contains("ring"));
}

}  // namespace
}  // namespace meshplan::program
