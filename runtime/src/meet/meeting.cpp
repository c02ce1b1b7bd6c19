#include "meet/meeting.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <poll.h>
#include <span>
#include <thread>
#include <type_traits>
#include <unistd.h>

#include "core/error.hpp"
#include "core/index.hpp"
#include "meet/handshake.hpp"
#include "meet/same_user.hpp"

namespace meshplan::runtime {
namespace {

using Payload = std::vector<std::byte>;

constexpr std::int64_t kMostPayload = 64 << 10;
constexpr std::string_view kOutcomeRole = "meshplan: outcome of the meeting";

/// Rank 0's last words to a rank; its proof follows, then the bytes.
struct Outcome {
  std::int64_t bytes = 0;  // all payloads, or a message if `refused`
  std::int64_t refused = 0;
  Hash digest{};  // of the bytes
};
static_assert(std::has_unique_object_representations_v<Outcome>);

std::string local_socket_of(const Rendezvous& place) {
  return fmt::format("meshplan-meeting-{}-{}", ::geteuid(), place.port);
}

// ---------------------------------------------------------------- payloads as bytes

/// Each with its size before it.
Payload joined(const std::vector<Payload>& payloads) {
  Payload bytes;
  for (const Payload& one : payloads) {
    const std::int64_t size = std::ssize(one);
    const auto* begin = reinterpret_cast<const std::byte*>(&size);
    bytes.insert(bytes.end(), begin, begin + sizeof size);
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  return bytes;
}

/// Empty where `bytes` are not what joined() made of so many.
std::vector<Payload> separated(std::span<const std::byte> bytes, int count) {
  std::vector<Payload> payloads;
  for (int i = 0; i < count; ++i) {
    std::int64_t size = 0;
    if (bytes.size() < sizeof size) return {};
    std::memcpy(&size, bytes.data(), sizeof size);
    bytes = bytes.subspan(sizeof size);
    if (size < 0 || size > std::ssize(bytes)) return {};
    const auto part = bytes.first(static_cast<std::size_t>(size));
    payloads.emplace_back(part.begin(), part.end());
    bytes = bytes.subspan(part.size());
  }
  return payloads;
}

// ---------------------------------------------------------------- rank 0

/// Rank 0's side of one meeting.
class Host {
 public:
  Host(const Rendezvous& place, const Deadline& deadline)
      : place_(place),
        deadline_(deadline),
        admission_(admission_of(place)),
        secret_(admission_ == Admission::Secret     ? Secret::from_text(place.secret)
                : admission_ == Admission::SameUser ? Secret::random()
                                                    : Secret::from_text("")),
        door_(listener(place), secret_, Purpose::Meeting, 0),
        members_(static_cast<std::size_t>(place.world_size)),
        payloads_(members_.size()) {
    if (admission_ == Admission::SameUser) source_.emplace(local_socket_of(place), secret_);
  }

  Meeting meet(const PayloadOf& own) {
    payloads_.front() = own(near_address(door_.listener()));
    for (int missing = place_.world_size - 1; missing > 0;) {
      wait();
      for (Guest& guest : door_.guests())
        if (admit(guest)) --missing;
    }
    const Payload all = joined(payloads_);
    for (std::size_t rank = 1; rank < members_.size(); ++rank)
      if (!tell(*members_[rank], all, false))
        throw IoError(fmt::format("rank {} went away while ranks were meeting", rank));
    return {std::move(payloads_), secret_};
  }

 private:
  static Socket listener(const Rendezvous& place) {
    Socket made = try_listen(place.address, place.port);
    if (made.is_open()) return made;
    if (errno == EADDRNOTAVAIL)
      throw IoError(
          fmt::format("MASTER_ADDR '{}' is no address of this machine, where rank 0 runs, so that "
                      "rank 0 cannot listen there; this machine has {}",
                      place.address, fmt::join(own_addresses(), ", ")));
    throw IoError(
        fmt::format("rank 0 cannot listen on MASTER_PORT {} of {}: {}; choose another port",
                    place.port, place.address, std::strerror(errno)));
  }

  /// Until somebody speaks, or a while. @throws IoError at the deadline
  void wait() {
    if (deadline_.passed())
      throw IoError(fmt::format("{} of {} did not come to rank 0 at {}:{} within {} s{}{}",
                                missing_ranks(), place_.world_size, place_.address, place_.port,
                                deadline_.timeout().value, hint(), door_.about_strangers()));
    constexpr int kAWhileMs = 100;
    polled_.clear();
    if (source_) polled_.push_back({source_->descriptor(), POLLIN, 0});
    door_.add_to(polled_);
    ::poll(polled_.data(), polled_.size(), std::min(kAWhileMs, deadline_.left_ms()));
    if (source_) source_->answer();
  }

  std::string missing_ranks() const {
    std::vector<std::size_t> missing;
    for (std::size_t rank = 1; rank < members_.size(); ++rank)
      if (!members_[rank]) missing.push_back(rank);
    return fmt::format("rank{} {}", missing.size() == 1 ? "" : "s", fmt::join(missing, ", "));
  }

  /// A host's own name is often an address that no other machine can reach (127.0.1.1).
  std::string hint() const {
    const std::string here = near_address(door_.listener());
    const bool surprising = is_loopback(here) && here != place_.address;
    return surprising ? fmt::format(
                            " (MASTER_ADDR '{}' is {} here, which other machines cannot "
                            "reach)",
                            place_.address, here)
                      : "";
  }

  /// What is wrong with a rank that has come; empty = nothing.
  std::string objection(const Identity& who) const {
    if (who.size != place_.world_size)
      return fmt::format("rank {} was started with WORLD_SIZE {}, rank 0 with {}", who.from,
                         who.size, place_.world_size);
    if (who.from < 1 || who.from >= place_.world_size)
      return fmt::format("a process came as rank {} of {}", who.from, place_.world_size);
    if (members_[at(who.from)])
      return fmt::format("two processes were started as RANK {}", who.from);
    return "";
  }

  /// It has proved itself, so what is wrong with it is wrong with the job.
  bool admit(Guest& guest) {
    const std::string why = objection(guest.identity);
    if (!why.empty()) {
      const auto* text = reinterpret_cast<const std::byte*>(why.data());
      const Payload words(text, text + why.size());
      tell(guest, words, true);
      for (std::optional<Guest>& other : members_)
        if (other) tell(*other, words, true);
      throw ConfigError(why);
    }
    const Identity& who = guest.identity;
    if (who.bytes < 0 || who.bytes > kMostPayload) return false;
    Payload payload(static_cast<std::size_t>(who.bytes));
    if (!read_all(guest.socket, payload, deadline_.within(kPatience)) ||
        !equal(digest_of(payload), who.digest))
      return false;
    const auto rank = static_cast<std::size_t>(who.from);
    payloads_[rank] = std::move(payload);
    members_[rank] = std::move(guest);
    return true;
  }

  bool tell(const Guest& guest, const Payload& bytes, bool refused) const {
    const Outcome outcome{
        .bytes = std::ssize(bytes), .refused = refused ? 1 : 0, .digest = digest_of(bytes)};
    const auto words = std::as_bytes(std::span(&outcome, 1));
    const Hash proof = guest.acquaintance.prove(kOutcomeRole, words);
    return write_all(guest.socket, words, deadline_) && write_all(guest.socket, proof, deadline_) &&
           write_all(guest.socket, bytes, deadline_);
  }

  const Rendezvous& place_;
  Deadline deadline_;
  Admission admission_;
  Secret secret_;
  Door door_;
  std::optional<SecretForSameUser> source_;
  std::vector<std::optional<Guest>> members_;
  std::vector<Payload> payloads_;
  std::vector<pollfd> polled_;
};

// ---------------------------------------------------------------- the others

/// The side of a rank that calls rank 0.
class Visitor {
 public:
  Visitor(const Rendezvous& place, const Deadline& deadline)
      : place_(place),
        deadline_(deadline),
        admission_(admission_of(place)),
        addresses_(addresses_of("MASTER_ADDR", place.address)) {}

  Meeting meet(const PayloadOf& own) {
    std::string error;
    do {
      const Socket socket = connect_to_any(addresses_, place_.port, deadline_);
      error = std::strerror(errno);
      if (socket.is_open()) {
        const Payload payload = own(near_address(socket));
        if (const std::optional<Acquaintance> host = introduce_to(socket, payload))
          return hear(socket, payload, *host);
        error = "no answer";
      }
      constexpr auto kBeforeNext = std::chrono::milliseconds(50);  // rank 0 may start later
      std::this_thread::sleep_for(kBeforeNext);
    } while (!deadline_.passed());
    throw IoError(fmt::format("rank {} could not reach rank 0 at {} within {} s: {}", place_.rank,
                              where(), deadline_.timeout().value, error));
  }

 private:
  std::string where() const { return fmt::format("{}:{}", place_.address, place_.port); }

  Secret secret() const {
    if (admission_ == Admission::Secret) return Secret::from_text(place_.secret);
    if (admission_ == Admission::Anyone) return Secret::from_text("");
    try {
      return secret_of_same_user(local_socket_of(place_), deadline_.within(kPatience));
    } catch (const IoError& error) {
      throw IoError(
          fmt::format("rank {} has no MESHPLAN_JOB_SECRET, and none from rank 0 at {}: {}. Ranks "
                      "of one machine "
                      "need none if all are of one user; otherwise give the same one to every rank",
                      place_.rank, where(), error.what()));
    }
  }

  /// Absent if rank 0 may be asked again.
  std::optional<Acquaintance> introduce_to(const Socket& socket, const Payload& payload) {
    const Identity identity{.from = place_.rank,
                            .to = 0,
                            .size = place_.world_size,
                            .purpose = Purpose::Meeting,
                            .bytes = std::ssize(payload),
                            .digest = digest_of(payload)};
    const auto ask = [this] { return secret_.emplace(secret()); };
    const Call call = introduce(socket, ask, identity, deadline_);
    switch (call.result) {
      case Call::Result::Refused:
        throw ConfigError(
            fmt::format("rank {} and rank 0 at {} were started with different secrets: "
                        "MESHPLAN_JOB_SECRET must "
                        "be the same for every rank, or for none",
                        place_.rank, where()));
      case Call::Result::Foreign:
        throw not_rank_0();
      default:
        return call.acquaintance;
    }
  }

  Meeting hear(const Socket& socket, const Payload& own, const Acquaintance& host) const {
    Outcome outcome;
    Hash proof;
    if (!write_all(socket, own, deadline_) ||
        !read_all(socket, std::as_writable_bytes(std::span(&outcome, 1)), deadline_) ||
        !read_all(socket, proof, deadline_))
      throw IoError(fmt::format(
          "rank {} reached rank 0 at {}, but not all ranks came within {} s, or rank 0 ended",
          place_.rank, where(), deadline_.timeout().value));
    const auto words = std::as_bytes(std::span(&outcome, 1));
    if (!equal(host.prove(kOutcomeRole, words), proof)) throw not_rank_0();
    Payload bytes(static_cast<std::size_t>(outcome.bytes));
    if (!read_all(socket, bytes, deadline_))
      throw IoError(fmt::format("rank 0 at {} stopped talking", where()));
    if (!equal(digest_of(bytes), outcome.digest)) throw not_rank_0();
    if (outcome.refused != 0)
      throw ConfigError(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    std::vector<Payload> payloads = separated(bytes, place_.world_size);
    if (payloads.empty()) throw not_rank_0();
    return {std::move(payloads), secret_.value()};
  }

  IoError not_rank_0() const {
    return IoError(fmt::format("what answers at {} is not rank 0 of this job", where()));
  }

  const Rendezvous& place_;
  Deadline deadline_;
  Admission admission_;
  std::vector<std::string> addresses_;
  std::optional<Secret> secret_;  // once rank 0 has answered
};

}  // namespace

Meeting meet(const Rendezvous& place, const PayloadOf& payload, const Deadline& deadline) {
  const PayloadOf small = [&](const std::string& address) {
    Payload made = payload(address);
    require_invariant(std::ssize(made) <= kMostPayload, "a rank's payload is small");
    return made;
  };
  if (place.world_size == 1) return {{small("127.0.0.1")}, Secret::random()};
  return place.rank == 0 ? Host(place, deadline).meet(small) : Visitor(place, deadline).meet(small);
}

}  // namespace meshplan::runtime
