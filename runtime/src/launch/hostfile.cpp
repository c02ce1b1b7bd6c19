#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "core/error.hpp"
#include "os/host_lookup.hpp"
#include "runtime/launch/launch.hpp"

namespace meshplan::runtime {
namespace {

bool is_host_name(std::string_view name) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  return !name.empty() && name.front() != '-' &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

int parse_slots(std::string_view digits, const std::string& place) {
  int slots = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), slots);
  if (error != std::errc() || end != digits.data() + digits.size() || slots < 1)
    throw ConfigError(
        fmt::format("{}: '{}' is not a number of ranks; it must be 1 or more", place, digits));
  return slots;
}

/// "host" or "host:4"
HostSlots parse_host(std::string_view word, const std::string& place) {
  const auto colon = word.find(':');
  const std::string_view name = word.substr(0, colon);
  if (!is_host_name(name))
    throw ConfigError(
        fmt::format("{}: '{}' is not a host name (letters, digits, '.', '-', '_')", place, name));
  if (colon == std::string_view::npos) return {std::string(name)};
  return {std::string(name), parse_slots(word.substr(colon + 1), place), true};
}

void refuse_repetition(const std::vector<HostSlots>& hosts, const std::string& place) {
  for (std::size_t i = 0; i + 1 < hosts.size(); ++i)
    if (hosts[i].name == hosts.back().name)
      throw ConfigError(fmt::format("{}: host '{}' is listed twice; give its ranks once, as {}:{}",
                                    place, hosts[i].name, hosts[i].name,
                                    std::int64_t{hosts[i].slots} + hosts.back().slots));
}

/// A name that means something to ssh alone: an alias, or a host behind another one. Host names
/// hold nothing that a shell would obey (is_host_name).
bool is_known_to_ssh(const std::string& host) {
  const std::unique_ptr<FILE, int (*)(FILE*)> ssh(
      ::popen(fmt::format("ssh -G '{}' 2>/dev/null", host).c_str(), "r"), ::pclose);
  if (ssh == nullptr) return false;
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), line.size(), ssh.get()) != nullptr) {
    std::istringstream words(line.data());
    std::string option;
    std::string value;
    words >> option >> value;
    if (option == "proxyjump" || option == "proxycommand") return true;
    if (option == "hostname" && value != host) return true;
  }
  return false;
}

}  // namespace

std::vector<HostSlots> parse_host_list(std::string_view list) {
  const std::string place = fmt::format("hosts '{}'", list);
  std::vector<HostSlots> hosts;
  std::size_t begin = 0;
  while (begin <= list.size()) {
    const auto end = std::min(list.find(',', begin), list.size());
    hosts.push_back(parse_host(list.substr(begin, end - begin), place));
    refuse_repetition(hosts, place);
    begin = end + 1;
  }
  return hosts;
}

std::vector<HostSlots> parse_hostfile(std::string_view text, std::string_view file) {
  std::vector<HostSlots> hosts;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string place = fmt::format("{}:{}", file, number);
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host;
    std::string option;
    std::string extra;
    if (!(words >> host)) continue;
    hosts.push_back(parse_host(host, place));
    if (words >> option) {
      constexpr std::string_view kSlots = "slots=";
      if (!option.starts_with(kSlots) || words >> extra)
        throw ConfigError(
            fmt::format("{}: '{}' is not understood; write 'host', 'host:4' or "
                        "'host slots=4'",
                        place, line));
      hosts.back().slots = parse_slots(std::string_view(option).substr(kSlots.size()), place);
      hosts.back().is_limit = true;
    }
    refuse_repetition(hosts, place);
  }
  if (hosts.empty())
    throw ConfigError(fmt::format("{}: no hosts; write one host name a line", file));
  return hosts;
}

std::optional<int> most_ranks(const std::vector<HostSlots>& hosts) {
  if (hosts.empty() || !std::ranges::all_of(hosts, &HostSlots::is_limit)) return std::nullopt;
  std::int64_t slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  return static_cast<int>(std::min<std::int64_t>(slots, std::numeric_limits<int>::max()));
}

void require_slots(const std::vector<HostSlots>& hosts, int ranks) {
  const std::optional<int> most = most_ranks(hosts);
  if (!most || ranks <= *most) return;
  std::vector<std::string> given;
  for (const HostSlots& host : hosts) given.push_back(fmt::format("{}:{}", host.name, host.slots));
  const HostSlots& last = hosts.back();
  throw ConfigError(fmt::format(
      "hosts {} have {} slot{}, but the job has {} ranks: give them more, for example {}:{} (ranks "
      "may outnumber cores), or write hosts without numbers, which share the ranks in turns",
      fmt::join(given, ","), *most, *most == 1 ? "" : "s", ranks, last.name,
      last.slots + ranks - *most));
}

int ranks_on_fullest_host(const std::vector<HostSlots>& hosts, int ranks) {
  if (hosts.empty()) return ranks;
  const auto is_here = [](const HostSlots& host) { return is_this_machine(host.name); };
  if (std::ranges::count_if(hosts, is_here) > 1) return ranks;
  std::int64_t slots = 0;
  std::int64_t most = 0;
  for (const HostSlots& host : hosts) {
    slots += host.slots;
    most = std::max<std::int64_t>(most, host.slots);
  }
  const std::int64_t rounds = (ranks + slots - 1) / slots;  // hydra starts over when slots run out
  return static_cast<int>(std::min<std::int64_t>(ranks, rounds * most));
}

bool is_this_machine(const std::string& host) {
  char name[256] = {};
  if (host == "localhost" || (gethostname(name, sizeof(name) - 1) == 0 && host == name))
    return true;
  const std::set<std::string> mine = own_interface_addresses();
  return std::ranges::any_of(look_up(host).addresses,
                             [&](const std::string& address) { return mine.contains(address); });
}

bool host_answers(const std::string& host) {
  const auto is_set = [](const char* name) {
    return std::getenv(name) != nullptr;  // NOLINT(concurrency-mt-unsafe)
  };
  if (is_this_machine(host) || is_set("HYDRA_LAUNCHER") || is_set("SLURM_JOB_ID")) return true;
  // The name holds nothing that a shell would obey (is_host_name).
  const std::unique_ptr<FILE, int (*)(FILE*)> ssh(
      ::popen(fmt::format("ssh -o BatchMode=yes -o ConnectTimeout=3 '{}' true </dev/null "
                          ">/dev/null 2>&1 && echo yes",
                          host)
                  .c_str(),
              "r"),
      ::pclose);
  return ssh != nullptr && std::fgetc(ssh.get()) == 'y';
}

void require_known_hosts(const std::vector<HostSlots>& hosts) {
  for (const HostSlots& host : hosts) begin_lookup(host.name);
  for (const HostSlots& host : hosts) {
    if (is_this_machine(host.name)) continue;
    const HostLookup lookup = look_up(host.name);
    if (!lookup.addresses.empty() || is_known_to_ssh(host.name)) continue;
    const std::string text = fmt::format(
        "host '{}' is not known to this machine: {}; check its spelling, /etc/hosts, "
        "DNS and ~/.ssh/config",
        host.name, lookup.error);
    if (lookup.unknown) throw ConfigError(text);
    throw IoError(text);
  }
}

}  // namespace meshplan::runtime
