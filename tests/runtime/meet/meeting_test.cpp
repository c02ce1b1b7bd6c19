// Ranks that meet over TCP.
#include "runtime/meet/rank_process.hpp"

namespace meshplan::runtime {
namespace {

using Catch::Matchers::Contains;

}  // namespace

TEST_CASE("All ranks get what each gives, in whatever order they come", "[runtime][meeting]") {
  const Port port(false);
  const RankProcess three(place_of(3, 4, port.number), "d", 20);
  const RankProcess one(place_of(1, 4, port.number), "", 20);
  const RankProcess zero(place_of(0, 4, port.number), "the id", 20);
  const RankProcess two(place_of(2, 4, port.number), "ccc", 20);
  for (const RankProcess* rank : {&zero, &one, &two, &three})
    CHECK(rank->result() == "got the id  ccc d");
  const RankProcess alone(place_of(0, 1, port.number), "mine", 20);
  CHECK(alone.result() == "got mine");
}

TEST_CASE("Ranks of different jobs are told apart", "[runtime][meeting]") {
  const Port port(false);
  const RankProcess zero(place_of(0, 2, port.number), "id", 20);
  const RankProcess one(place_of(1, 3, port.number), "", 20);
  const char* text = "config: rank 1 was started with WORLD_SIZE 3, rank 0 with 2";
  CHECK(one.result() == text);
  CHECK(zero.result() == text);
}

TEST_CASE("Two processes with one rank are refused, and all learn why", "[runtime][meeting]") {
  const Port port(false);
  const RankProcess zero(place_of(0, 3, port.number), "id", 20);
  const RankProcess one(place_of(1, 3, port.number), "", 20);
  const RankProcess again(place_of(1, 3, port.number), "", 20);
  for (const RankProcess* rank : {&zero, &one, &again})
    CHECK(rank->result() == "config: two processes were started as RANK 1");
}

TEST_CASE("A rank that never comes is named", "[runtime][meeting]") {
  const Port port(false);
  const RankProcess zero(place_of(0, 4, port.number), "id", 0.5);
  const RankProcess two(place_of(2, 4, port.number), "", 5);
  CHECK_THAT(zero.result(),
             Contains("ranks 1, 3 of 4 did not come to rank 0") && Contains("within 0.5 s"));
  CHECK_THAT(two.result(), Contains("rank 2 reached rank 0") && Contains("or rank 0 ended"));
}

TEST_CASE("A rank 0 that never comes is missed with its address", "[runtime][meeting]") {
  const Port port(false);
  const RankProcess one(place_of(1, 2, port.number), "", 0.3);
  CHECK_THAT(one.result(), Contains("rank 1 could not reach rank 0 at 127.0.0.1:" +
                                    std::to_string(port.number)) &&
                               Contains("refused"));
}

TEST_CASE("A port that is taken is named", "[runtime][meeting]") {
  const Port port(true);
  const RankProcess zero(place_of(0, 2, port.number), "id", 5);
  CHECK_THAT(zero.result(),
             Contains("cannot listen on MASTER_PORT " + std::to_string(port.number)) &&
                 Contains("choose another port"));
}

TEST_CASE("Rank 0 listens at MASTER_ADDR and nowhere else", "[runtime][meeting]") {
  const Port port(false);
  const RankProcess zero(place_of(0, 2, port.number), "id", 20);
  { const Socket stranger = call(port.number); }
  CHECK(listening_at(zero.pid()) ==
        std::set<std::string>{"127.0.0.1:" + std::to_string(port.number)});
  const RankProcess one(place_of(1, 2, port.number), "", 20);
  CHECK(zero.result() == "got id ");
}

TEST_CASE("An address of another machine is no address of rank 0", "[runtime][meeting]") {
  Rendezvous place = place_of(0, 2, 29500);
  place.address = "192.0.2.1";  // an address of nobody (RFC 5737); nothing is sent there
  const RankProcess zero(place, "id", 5);
  CHECK_THAT(zero.result(), Contains("MASTER_ADDR '192.0.2.1' is no address of this machine") &&
                                Contains("127.0.0.1"));
  place.address = "no-such-host.invalid";
  const RankProcess lost(place, "id", 5);
  CHECK_THAT(lost.result(), Contains("MASTER_ADDR 'no-such-host.invalid'"));
}

}  // namespace meshplan::runtime
