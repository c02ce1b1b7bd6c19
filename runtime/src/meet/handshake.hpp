// How two processes of one job prove to each other that they are, before anything else is said.
//
//   who listens -> who calls   Challenge: a nonce
//   who calls -> who listens   Claim: who it is, a nonce of its own, and a proof over both
//   who listens -> who calls   Welcome: a proof over the same, in the other role
//
// Nothing is allocated by a stranger's words, none of them is waited for, and strangers hold at
// most kMostPending connections, each for kPatience.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <poll.h>
#include <string>
#include <vector>

#include "meet/secret.hpp"
#include "os/tcp_socket.hpp"

namespace meshplan::runtime {

constexpr std::size_t kMostPending = 256;
constexpr Seconds kPatience{5.0};
/// A newer caller may take the place of one that has said nothing for so long.
constexpr Seconds kLeastPatience{0.5};

/// What a connection is for: a proof for one purpose is none for another.
enum class Purpose : std::int32_t { Meeting = 1, Mesh = 2, Guardians = 3 };

/// Who calls whom: ranks, or machines between guardians. What the caller says next is part of it.
struct Identity {
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::int32_t size = 0;  // of the caller's job, in the same unit
  Purpose purpose = Purpose::Meeting;
  std::int64_t bytes = 0;  // that follow
  Hash digest{};           // of these
};

/// A connection between two who have proved that they belong together.
class Acquaintance {
 public:
  Acquaintance(const Secret& secret, const Nonce& listener, const Nonce& caller,
               const Identity& identity);
  /// Whoever says this is the one who was met, and says it on this connection.
  Hash prove(std::string_view role, std::span<const std::byte> about = {}) const;

 private:
  Secret secret_;
  struct Transcript {
    Nonce listener;
    Nonce caller;
    Identity identity;
  } transcript_;
};

/// Who has proved itself to a Door.
struct Guest {
  Socket socket;
  Identity identity;
  Acquaintance acquaintance;
};

/// A listener that lets in who knows the secret. Moves all that call at once; never blocks.
class Door {
 public:
  /// @param own  `Identity::to` of whom it lets in
  Door(Socket listener, const Secret& secret, Purpose purpose, int own);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  /// What to poll() for, before guests() can do anything new. Call guests() after 100 ms anyway.
  void add_to(std::vector<pollfd>& polled) const;
  /// Who has proved itself since the last call.
  std::vector<Guest> guests();
  const Socket& listener() const { return listener_; }
  /// "; 3 connections did not prove the job's secret, the last from 10.0.0.7"; empty if none.
  std::string about_strangers() const;

 private:
  struct Caller;
  enum class Verdict { NotYet, Stranger, Proven };
  void accept_callers();
  Verdict hear(Caller& caller);
  void count_stranger(const Caller& caller);

  Socket listener_;
  Secret secret_;
  Purpose purpose_;
  int own_;
  std::vector<Caller> callers_;  // oldest first
  std::vector<Guest> waiting_;   // proved, not yet given out
  int strangers_ = 0;
  int wrong_proofs_ = 0;
  std::string last_stranger_;
};

/// What became of a call.
struct Call {
  enum class Result {
    Met,
    Refused,   // the other has another secret
    Foreign,   // it speaks another language, or has no proof itself
    NoAnswer,  // it hung up or said nothing: it may be asked again
  };
  Result result = Result::NoAnswer;
  std::optional<Acquaintance> acquaintance;  // if met
};
/// Proves itself to a Door at the other end, and hears its proof. @param secret  asked once the
/// other end has spoken
Call introduce(const Socket& socket, const std::function<Secret()>& secret,
               const Identity& identity, const Deadline& deadline);

}  // namespace meshplan::runtime
