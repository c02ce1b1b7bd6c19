#include "runtime/launch/rendezvous.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fmt/format.h>

#include "core/error.hpp"
#include "os/tcp_socket.hpp"

namespace meshplan::runtime {
namespace {

int number_of(const EnvironmentLookup& environment, const char* name, int least, int most) {
  const char* text = environment(name);
  if (text == nullptr)
    throw ConfigError(fmt::format(
        "{} is not set; ranks without mpiexec need RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and "
        "MASTER_PORT, as torchrun sets them",
        name));
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto parsed = std::from_chars(text, end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < least || value > most)
    throw ConfigError(
        fmt::format("{}='{}': must be a number from {} to {}", name, text, least, most));
  return value;
}

/// Who has heard a rank prove its secret can try guesses at leisure, so it must not be guessable.
std::string checked(const std::string& secret) {
  constexpr std::size_t kLeast = 16;
  if (secret.size() < kLeast)
    throw ConfigError(fmt::format(
        "MESHPLAN_JOB_SECRET has {} characters: give the same random text of at least {} "
        "to every rank, for example of `openssl rand -hex 16`",
        secret.size(), kLeast));
  return secret;
}

}  // namespace

std::optional<Rendezvous> read_rendezvous(const EnvironmentLookup& environment) {
  if (environment("RANK") == nullptr && environment("WORLD_SIZE") == nullptr) return std::nullopt;
  constexpr int kMostRanks = 1 << 20;
  Rendezvous place;
  place.world_size = number_of(environment, "WORLD_SIZE", 1, kMostRanks);
  place.rank = number_of(environment, "RANK", 0, place.world_size - 1);
  place.local_rank = number_of(environment, "LOCAL_RANK", 0, place.world_size - 1);
  place.port = number_of(environment, "MASTER_PORT", 1, 65535);
  const char* address = environment("MASTER_ADDR");
  if (address == nullptr || *address == '\0')
    throw ConfigError("MASTER_ADDR is not set: the host name of rank 0");
  place.address = address;
  if (environment("LOCAL_WORLD_SIZE") != nullptr)
    place.local_world_size = number_of(environment, "LOCAL_WORLD_SIZE", 1, place.world_size);
  if (const char* secret = environment("MESHPLAN_JOB_SECRET")) place.secret = checked(secret);
  return place;
}

Admission admission_of(const Rendezvous& place) {
  if (!place.secret.empty()) return Admission::Secret;
  const bool one_machine =
      place.local_world_size == place.world_size ||
      std::ranges::all_of(addresses_of("MASTER_ADDR", place.address), is_loopback);
  return one_machine ? Admission::SameUser : Admission::Anyone;
}

std::optional<std::string> admission_warning(const Rendezvous& place) {
  if (place.rank != 0 || place.world_size == 1 || admission_of(place) != Admission::Anyone)
    return std::nullopt;
  return fmt::format(
      "ranks of several machines meet at {}:{} without a secret, so that whoever reaches this port "
      "can join the job or end it: give every rank the same random MESHPLAN_JOB_SECRET, for "
      "example "
      "of `openssl rand -hex 16`",
      place.address, place.port);
}

}  // namespace meshplan::runtime
