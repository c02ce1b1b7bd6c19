#include "meet/handshake.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/socket.h>
#include <type_traits>

namespace meshplan::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMagic = 0x326873656d6e6c70ULL;    // of this program and its protocol 2
constexpr std::uint64_t kRefusal = 0x317865736d6e6c70ULL;  // instead of a welcome

struct Challenge {
  std::uint64_t magic = kMagic;
  Nonce nonce{};
};
struct Claim {
  std::uint64_t magic = kMagic;
  Identity identity;
  Nonce nonce{};
  Hash proof{};
};
struct Welcome {
  std::uint64_t magic = kMagic;
  Hash proof{};
};
// All bytes count, since all are hashed or compared.
static_assert(std::has_unique_object_representations_v<Identity> &&
              std::has_unique_object_representations_v<Challenge> &&
              std::has_unique_object_representations_v<Claim> &&
              std::has_unique_object_representations_v<Welcome>);

constexpr std::string_view kCallerSpeaks = "meshplan: who calls to who listens";
constexpr std::string_view kListenerSpeaks = "meshplan: who listens to who calls";

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
std::span<std::byte> writable(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

/// Small and the first words on a socket: it takes them at once or never.
bool say(const Socket& socket, std::span<const std::byte> words) {
  return ::send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         std::ssize(words);
}

}  // namespace

Acquaintance::Acquaintance(const Secret& secret, const Nonce& listener, const Nonce& caller,
                           const Identity& identity)
    : secret_(secret), transcript_{listener, caller, identity} {
  static_assert(std::has_unique_object_representations_v<Transcript>);
}

Hash Acquaintance::prove(std::string_view role, std::span<const std::byte> about) const {
  std::vector<std::byte> all(sizeof transcript_);
  std::memcpy(all.data(), &transcript_, sizeof transcript_);
  all.insert(all.end(), about.begin(), about.end());
  return secret_.prove(role, all);
}

// ---------------------------------------------------------------- who listens

/// Somebody who has called and is yet to prove itself.
struct Door::Caller {
  Socket socket;
  Nonce nonce;  // that it was challenged with
  Claim claim;
  std::size_t got = 0;
  Clock::time_point since = Clock::now();
};

Door::Door(Socket listener, const Secret& secret, Purpose purpose, int own)
    : listener_(std::move(listener)), secret_(secret), purpose_(purpose), own_(own) {}

Door::~Door() = default;

void Door::add_to(std::vector<pollfd>& polled) const {
  const bool room = callers_.size() < kMostPending ||
                    seconds_since(callers_.front().since) > kLeastPatience.value;
  if (room) polled.push_back({listener_.get(), POLLIN, 0});
  for (const Caller& caller : callers_) polled.push_back({caller.socket.get(), POLLIN, 0});
}

void Door::count_stranger(const Caller& caller) {
  ++strangers_;
  last_stranger_ = far_address(caller.socket);
}

void Door::accept_callers() {
  while (true) {
    const bool full = callers_.size() >= kMostPending;
    const bool may_drop =
        !callers_.empty() && seconds_since(callers_.front().since) > kLeastPatience.value;
    if (full && !may_drop) return;
    Caller caller{accept_one(listener_.get()), random_nonce(), {}};
    const bool no_room = !caller.socket.is_open() && (errno == EMFILE || errno == ENFILE);
    if (!caller.socket.is_open() && !no_room) return;
    if (full || no_room) {
      if (!may_drop) return;
      count_stranger(callers_.front());
      callers_.erase(callers_.begin());
    }
    const Challenge challenge{.nonce = caller.nonce};
    if (caller.socket.is_open() && say(caller.socket, bytes_of(challenge)))
      callers_.push_back(std::move(caller));
  }
}

Door::Verdict Door::hear(Caller& caller) {
  const std::span<std::byte> words = writable(caller.claim);
  const ssize_t got = ::recv(caller.socket.get(), words.data() + caller.got,
                             words.size() - caller.got, MSG_DONTWAIT);
  const bool nothing = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  if (got == 0 || (got < 0 && !nothing)) return Verdict::Stranger;
  if (got > 0) caller.got += static_cast<std::size_t>(got);
  if (caller.got >= sizeof kMagic && caller.claim.magic != kMagic) return Verdict::Stranger;
  if (caller.got < words.size())
    return seconds_since(caller.since) > kPatience.value ? Verdict::Stranger : Verdict::NotYet;
  const Acquaintance acquaintance(secret_, caller.nonce, caller.claim.nonce, caller.claim.identity);
  const Identity& identity = caller.claim.identity;
  if (!equal(acquaintance.prove(kCallerSpeaks), caller.claim.proof) ||
      identity.purpose != purpose_ || identity.to != own_) {
    ++wrong_proofs_;
    say(caller.socket, bytes_of(Welcome{.magic = kRefusal}));
    return Verdict::Stranger;
  }
  const Welcome welcome{.proof = acquaintance.prove(kListenerSpeaks)};
  if (!say(caller.socket, bytes_of(welcome))) return Verdict::Stranger;
  waiting_.push_back({std::move(caller.socket), identity, acquaintance});
  return Verdict::Proven;
}

std::vector<Guest> Door::guests() {
  accept_callers();
  std::vector<Caller> unfinished;
  for (Caller& caller : callers_) {
    const Verdict verdict = hear(caller);
    if (verdict == Verdict::Stranger) count_stranger(caller);
    if (verdict == Verdict::NotYet) unfinished.push_back(std::move(caller));
  }
  callers_ = std::move(unfinished);
  return std::exchange(waiting_, {});
}

std::string Door::about_strangers() const {
  if (strangers_ == 0) return "";
  return fmt::format("; {} connection{} not prove the job's secret, the last from {}{}", strangers_,
                     strangers_ == 1 ? " did" : "s did", last_stranger_,
                     wrong_proofs_ == 0 ? "" : ": is MESHPLAN_JOB_SECRET the same for every rank?");
}

// ---------------------------------------------------------------- who calls

Call introduce(const Socket& socket, const std::function<Secret()>& secret,
               const Identity& identity, const Deadline& deadline) {
  using enum Call::Result;
  Challenge challenge;
  const std::span<std::byte> words = writable(challenge);
  const auto magic = words.first(sizeof challenge.magic);  // another program may say less than all
  if (!read_all(socket, magic, deadline)) return {NoAnswer, {}};
  if (challenge.magic != kMagic) return {Foreign, {}};
  if (!read_all(socket, words.subspan(magic.size()), deadline)) return {NoAnswer, {}};
  Claim claim{.identity = identity, .nonce = random_nonce()};
  const Acquaintance acquaintance(secret(), challenge.nonce, claim.nonce, identity);
  claim.proof = acquaintance.prove(kCallerSpeaks);
  Welcome welcome;
  if (!write_all(socket, bytes_of(claim), deadline) ||
      !read_all(socket, writable(welcome), deadline))
    return {NoAnswer, {}};
  if (welcome.magic == kRefusal) return {Refused, {}};
  const bool known =
      welcome.magic == kMagic && equal(acquaintance.prove(kListenerSpeaks), welcome.proof);
  if (!known) return {Foreign, {}};
  return {Met, acquaintance};
}

}  // namespace meshplan::runtime
