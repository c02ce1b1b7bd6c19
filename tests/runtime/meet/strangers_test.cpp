// What strangers at a port of a job can do: nothing. They speak our protocol, but have no secret.
#include <atomic>
#include <cstring>
#include <thread>

#include "meet/handshake.hpp"
#include "meet/same_user.hpp"
#include "runtime/job/tcp_session.hpp"
#include "runtime/meet/rank_process.hpp"

namespace meshplan::runtime {
namespace {

using Catch::Matchers::Contains;
using namespace std::chrono_literals;

const std::string kSecret = "a secret of 32 letters, or so it";
constexpr double kLongEnough = 60;  // s, that a busy machine may need for what does happen
/// From now: a constant would run from the program's start, through all other tests.
Deadline soon() {
  return Deadline(Seconds{kLongEnough});
}

// The protocol, by its bytes: challenge = magic, nonce; claim = magic, identity, nonce, proof;
// welcome = magic, proof.
constexpr std::size_t kMagicBytes = 8, kHash = 32;
constexpr std::size_t kChallenge = kMagicBytes + kHash;
constexpr std::size_t kClaim = kMagicBytes + sizeof(Identity) + 2 * kHash;
constexpr std::size_t kWelcome = kMagicBytes + kHash;

using Bytes = std::vector<std::byte>;

Bytes read(const Socket& socket, std::size_t bytes) {
  Bytes words(bytes);
  if (!read_all(socket, words, soon())) return {};
  return words;
}

void say(const Socket& socket, const Bytes& words) {
  CHECK(write_all(socket, words, soon()));
}

Call introduce_with(const Secret& secret, int port, Identity identity) {
  const Socket socket = call(port);
  return introduce(
      socket, [&] { return secret; }, identity, soon());
}

/// Passes on what two ends say to each other, and keeps what the caller said.
class Relay {
 public:
  explicit Relay(int to) : thread_([this, to] { pass_on(to); }) {}
  ~Relay() { thread_.join(); }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  int port() const { return port_.number; }
  /// Once the caller has been answered.
  Bytes claim() {
    while (!heard_) std::this_thread::sleep_for(1ms);
    return claim_;
  }

 private:
  void pass_on(int to) {
    Socket caller;
    while (!caller.is_open()) caller = accept_one(port_.kept.get());
    const Socket host = call(to);
    write_all(caller, read(host, kChallenge), soon());
    claim_ = read(caller, kClaim);
    write_all(host, claim_, soon());
    write_all(caller, read(host, kWelcome), soon());
    heard_ = true;
    // Both ways at once: a caller may be slow to send what it brings, a host slow to answer.
    std::thread payload([&] { pass_until_closed(caller, host); });
    pass_until_closed(host, caller);
    payload.join();
  }

  static void pass_until_closed(const Socket& from, const Socket& to) {
    std::byte one{};
    while (read_all(from, {&one, 1}, soon())) write_all(to, {&one, 1}, soon());
    ::shutdown(to.get(), SHUT_WR);
  }

  Port port_{true};
  Bytes claim_;
  std::atomic<bool> heard_ = false;
  std::thread thread_;
};

}  // namespace

TEST_CASE("A stranger at the port does not count as a rank", "[runtime][strangers]") {
  const Port port(false);
  const RankProcess zero(place_of(0, 2, port.number), "id", kLongEnough);
  const Socket web = call(port.number);
  say(web, bytes_of("GET / HTTP/1.1\r\nHost: rank-0\r\n\r\n"));
  // The first protocol's 24 bytes, of "rank 1 of 3": they ended a job of 2.
  const struct {
    std::uint64_t magic = 0x6d657368706c616eULL;
    std::int32_t rank = 1, world_size = 3;
    std::int64_t bytes = 0;
  } hello;
  const Socket old = call(port.number);
  say(old, Bytes(reinterpret_cast<const std::byte*>(&hello),
                 reinterpret_cast<const std::byte*>(&hello) + sizeof hello));
  const RankProcess one(place_of(1, 2, port.number), "", kLongEnough);
  CHECK(one.result() == "got id ");
  CHECK(zero.result() == "got id ");
}

TEST_CASE("Nobody without the secret counts, whatever it claims to be", "[runtime][strangers]") {
  for (const std::string& secret : {kSecret, std::string()}) {
    const Port port(false);
    const RankProcess zero(place_of(0, 2, port.number, secret), "id", kLongEnough);
    const std::int64_t much = std::int64_t{1} << 62;
    for (const Identity& identity :
         {Identity{.from = 1, .to = 0, .size = 3},  // ends the job of a fool
          Identity{.from = 7, .to = 0, .size = 2},
          Identity{.from = 1, .to = 0, .size = 2, .bytes = much}})
      for (const Secret& guess : {Secret::random(), Secret::from_text("")}) {
        const Call made = introduce_with(guess, port.number, identity);
        CHECK(made.result == Call::Result::Refused);
      }
    const RankProcess one(place_of(1, 2, port.number, secret), "", kLongEnough);
    CHECK(one.result() == "got id ");
    CHECK(zero.result() == "got id ");
  }
}

TEST_CASE("A size that no rank has is not believed even with the secret", "[runtime][strangers]") {
  const Port port(false);
  const RankProcess zero(place_of(0, 2, port.number, kSecret), "id", kLongEnough);
  for (const std::int64_t bytes : {std::int64_t{1} << 62, std::int64_t{-1}}) {
    const Identity identity{.from = 1, .to = 0, .size = 2, .bytes = bytes};
    CHECK(introduce_with(Secret::from_text(kSecret), port.number, identity).result ==
          Call::Result::Met);
  }
  const RankProcess one(place_of(1, 2, port.number, kSecret), "", kLongEnough);
  CHECK(zero.result() == "got id ");
}

TEST_CASE("A rank with another secret learns it, and ends nobody else", "[runtime][strangers]") {
  const Port port(false);
  const RankProcess zero(place_of(0, 2, port.number, kSecret), "id", kLongEnough);
  const RankProcess other(place_of(1, 2, port.number, kSecret + "!"), "", kLongEnough);
  CHECK_THAT(other.result(), Contains("config: rank 1 and rank 0") &&
                                 Contains("different secrets: MESHPLAN_JOB_SECRET") &&
                                 !Contains(kSecret));
  const RankProcess none(place_of(1, 2, port.number), "", kLongEnough);
  CHECK_THAT(none.result(), Contains("rank 1 has no MESHPLAN_JOB_SECRET, and none from rank 0"));
  const RankProcess one(place_of(1, 2, port.number, kSecret), "", kLongEnough);
  CHECK(one.result() == "got id ");
}

TEST_CASE("Rank 0 says that somebody had another secret when nobody else came",
          "[runtime][strangers]") {
  const Port port(false);
  const RankProcess zero(place_of(0, 2, port.number, kSecret), "id", 1);
  const RankProcess other(place_of(1, 2, port.number, kSecret + "!"), "", kLongEnough);
  CHECK_THAT(zero.result(), Contains("rank 1 of 2 did not come") &&
                                Contains("1 connection did not prove the job's secret, the last "
                                         "from 127.0.0.1: is MESHPLAN_JOB_SECRET the same") &&
                                !Contains(kSecret));
}

TEST_CASE("What a rank has said is worth nothing a second time", "[runtime][strangers]") {
  const Port port(false);
  const RankProcess zero(place_of(0, 3, port.number, kSecret), "id", kLongEnough);
  Relay between(port.number);
  const RankProcess one(place_of(1, 3, between.port(), kSecret), "one", kLongEnough);
  const Bytes claim = between.claim();
  REQUIRE(claim.size() == kClaim);
  const auto replay_to = [&](int there) {
    const Socket replay = call(there);
    CHECK(read(replay, kChallenge).size() == kChallenge);
    say(replay, claim);
    const Bytes answer = read(replay, kWelcome);
    CHECK(Bytes(answer.begin(), answer.begin() + kMagicBytes) !=
          Bytes(claim.begin(), claim.begin() + kMagicBytes));  // refused
  };
  replay_to(port.number);  // were it believed: two processes of rank 1, and the job ends
  const Port next(false);
  const RankProcess zero_again(place_of(0, 2, next.number, kSecret), "id", kLongEnough);
  replay_to(next.number);
  const RankProcess two(place_of(2, 3, port.number, kSecret), "two", kLongEnough);
  for (const RankProcess* rank : {&zero, &one, &two}) CHECK(rank->result() == "got id one two");
  const RankProcess one_again(place_of(1, 2, next.number, kSecret), "again", kLongEnough);
  CHECK(zero_again.result() == "got id again");
}

TEST_CASE("Its own words sent back convince nobody", "[runtime][strangers]") {
  SECTION("a rank that calls") {
    const Port port(true);
    const RankProcess one(place_of(1, 2, port.number, kSecret), "", kLongEnough);
    Socket caller;
    while (!caller.is_open()) caller = accept_one(port.kept.get());
    // The magic is no secret: it is in every challenge and claim.
    Bytes challenge(kChallenge);
    const std::uint64_t magic = 0x326873656d6e6c70ULL;
    std::memcpy(challenge.data(), &magic, sizeof magic);
    say(caller, challenge);
    const Bytes claim = read(caller, kClaim);
    REQUIRE(claim.size() == kClaim);
    Bytes welcome(claim.begin(), claim.begin() + kMagicBytes);
    welcome.insert(welcome.end(), claim.end() - kHash, claim.end());
    say(caller, welcome);
    CHECK_THAT(one.result(), Contains("is not rank 0 of this job"));
  }
  SECTION("rank 0") {
    const Port port(false);
    const RankProcess zero(place_of(0, 2, port.number, kSecret), "id", kLongEnough);
    const Socket caller = call(port.number);
    const Bytes challenge = read(caller, kChallenge);
    REQUIRE(challenge.size() == kChallenge);
    const Identity identity{.from = 1, .to = 0, .size = 2};
    Bytes claim(challenge.begin(), challenge.begin() + kMagicBytes);
    const auto* who = reinterpret_cast<const std::byte*>(&identity);
    claim.insert(claim.end(), who, who + sizeof identity);
    for (int i = 0; i < 2; ++i) claim.insert(claim.end(), challenge.end() - kHash, challenge.end());
    say(caller, claim);
    const Bytes answer = read(caller, kWelcome);
    CHECK(Bytes(answer.begin(), answer.begin() + kMagicBytes) !=
          Bytes(challenge.begin(), challenge.begin() + kMagicBytes));
    const RankProcess one(place_of(1, 2, port.number, kSecret), "", kLongEnough);
    CHECK(zero.result() == "got id ");
  }
}

TEST_CASE("Silent connections hold up nobody, and the deadline holds", "[runtime][strangers]") {
  const int count = GENERATE(200, 600);  // fewer and more than rank 0 listens to at once
  const Port port(false);
  constexpr double kTimeout = 3;
  const auto begin = std::chrono::steady_clock::now();
  const RankProcess zero(place_of(0, 3, port.number, kSecret), "id", kTimeout);
  std::vector<Socket> silent;
  for (int i = 0; i < count; ++i) silent.push_back(call(port.number));
  const RankProcess one(place_of(1, 3, port.number, kSecret), "", kTimeout);
  const std::string result = zero.result();
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::duration<double>(2 * kTimeout));
  CHECK_THAT(result, Contains("rank 2 of 3 did not come"));  // so rank 1 was heard between them
}

TEST_CASE("Bytes that drip in hold up nobody", "[runtime][strangers]") {
  const Port port(false);
  const RankProcess zero(place_of(0, 2, port.number, kSecret), "id", 2);
  std::vector<Socket> slow;
  for (int i = 0; i < 20; ++i) slow.push_back(call(port.number));
  const auto begin = std::chrono::steady_clock::now();
  const Bytes challenge = read(slow.front(), kChallenge);
  std::size_t said = 0;
  for (bool open = true; open && std::chrono::steady_clock::now() - begin < 6s; ++said) {
    for (const Socket& socket : slow)
      open = open && ::send(socket.get(), &challenge[said % kMagicBytes], 1, MSG_NOSIGNAL) == 1;
    std::this_thread::sleep_for(100ms);
  }
  CHECK(std::chrono::steady_clock::now() - begin < 4s);  // rank 0 has gone
  CHECK_THAT(zero.result(), Contains("rank 1 of 2 did not come"));
}

TEST_CASE("Strangers at the ranks' own ports do not disturb them", "[runtime][strangers]") {
  const Port port(false);
  const auto session = [&](int rank) {
    return [place = place_of(rank, 3, port.number, kSecret)] {
      const TcpSession made(place, Seconds{30});
      return "a session of " + std::to_string(made.size());
    };
  };
  const RankProcess zero(session(0));
  const RankProcess one(session(1));
  std::set<std::string> ports;
  while (ports.size() < 3) {  // the meeting's, and one of each rank
    ports = listening_at(zero.pid());
    ports.merge(listening_at(one.pid()));
  }
  std::vector<Socket> strangers;
  const Bytes greeting(16);
  for (const std::string& at : ports) {
    CHECK_THAT(at, Catch::StartsWith("127.0.0.1:"));
    const int number = std::stoi(at.substr(at.find(':') + 1));
    for (int i = 0; i < 50; ++i) strangers.push_back(call(number));
    for (std::size_t i = 0; i < 10; ++i) say(strangers[strangers.size() - 1 - i], greeting);
  }
  const RankProcess two(session(2));
  for (const RankProcess* rank : {&zero, &one, &two}) CHECK(rank->result() == "a session of 3");
}

TEST_CASE("A proof is for one purpose and one place", "[runtime][strangers]") {
  const Secret secret = Secret::from_text(kSecret);
  const auto result_of = [&](const Identity& identity) {
    Door door(try_listen("127.0.0.1", 0), secret, Purpose::Mesh, 2);
    const int port = near_port(door.listener());
    const RankProcess caller([&] {
      return std::to_string(static_cast<int>(introduce_with(secret, port, identity).result));
    });
    std::size_t guests = 0;
    std::vector<pollfd> polled;
    std::string said;
    std::thread waits([&] { said = caller.result(); });
    for (int i = 0; i < 200 && guests == 0 && door.about_strangers().empty(); ++i) {
      polled.clear();
      door.add_to(polled);
      ::poll(polled.data(), polled.size(), 50);
      guests += door.guests().size();
    }
    waits.join();
    return said == std::to_string(static_cast<int>(Call::Result::Met)) && guests == 1;
  };
  CHECK(result_of({.from = 3, .to = 2, .size = 4, .purpose = Purpose::Mesh}));
  CHECK_FALSE(result_of({.from = 3, .to = 1, .size = 4, .purpose = Purpose::Mesh}));
  CHECK_FALSE(result_of({.from = 3, .to = 2, .size = 4, .purpose = Purpose::Guardians}));
}

TEST_CASE("Ranks without a secret are those of one user", "[runtime][strangers]") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can try as another user");
    return;
  }
  const Port port(false);
  const RankProcess zero(place_of(0, 2, port.number), "id", kLongEnough);
  const RankProcess other([&]() -> std::string {
    constexpr uid_t kNobody = 65534;
    // Its challenge says that rank 0 has begun: its port is open before its local socket is.
    if (read(call(port.number), kChallenge).empty()) return "rank 0 does not begin";
    const std::string name = "meshplan-meeting-0-" + std::to_string(port.number);
    if (::setuid(kNobody) != 0) return "cannot become another user";
    secret_of_same_user(name, Deadline(Seconds{5}));
    return "got the secret";
  });
  CHECK_THAT(other.result(), Contains("another user"));
  const RankProcess one(place_of(1, 2, port.number), "", kLongEnough);
  CHECK(one.result() == "got id ");
}

}  // namespace meshplan::runtime
