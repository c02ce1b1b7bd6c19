// What arrives at a door before a proof, and behind one.
#include "meet/handshake.hpp"
#include "runtime/meet/rank_process.hpp"

namespace meshplan::runtime {

// Whoever is between two machines cannot prove the secret, but can change what follows the proof.
TEST_CASE("A payload is the one that its rank has proved", "[runtime][meeting]") {
  const std::string secret_text = "a secret of 32 letters, or so it";
  const Secret secret = Secret::from_text(secret_text);
  const Deadline soon(Seconds{20});
  const Port port(false);
  const RankProcess zero(place_of(0, 2, port.number, secret_text), "id", 10);
  const Socket changed = call(port.number);
  const Identity identity{
      .from = 1, .to = 0, .size = 2, .bytes = 3, .digest = digest_of(bytes_of("one"))};
  const Call met = introduce(
      changed, [&] { return secret; }, identity, soon);
  REQUIRE(met.result == Call::Result::Met);
  CHECK(write_all(changed, bytes_of("two"), soon));
  const RankProcess one(place_of(1, 2, port.number, secret_text), "one", 10);
  CHECK(zero.result() == "got id one");
  CHECK(one.result() == "got id one");
}

TEST_CASE("A caller that says nothing is let go after a while", "[runtime][meeting]") {
  Door door(try_listen("127.0.0.1", 0), Secret::random(), Purpose::Mesh, 0);
  const auto begin = std::chrono::steady_clock::now();
  const Socket silent = call(near_port(door.listener()));
  const Deadline late(Seconds{20});
  std::vector<pollfd> polled;
  while (door.about_strangers().empty() && !late.passed()) {
    polled.clear();
    door.add_to(polled);
    ::poll(polled.data(), polled.size(), 50);
    CHECK(door.guests().empty());
  }
  CHECK_THAT(door.about_strangers(), Catch::Contains("1 connection did not prove"));
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::duration<double>(kPatience.value));
  // Its challenge of 40 bytes, then the end.
  std::vector<std::byte> words(40);
  CHECK(read_all(silent, words, late));
  CHECK(::recv(silent.get(), words.data(), 1, MSG_DONTWAIT) == 0);
}

}  // namespace meshplan::runtime
