#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <set>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "core/error.hpp"
#include "runtime/launch.hpp"

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
  return {std::string(name),
          colon == std::string_view::npos ? 1 : parse_slots(word.substr(colon + 1), place)};
}

void refuse_repetition(const std::vector<HostSlots>& hosts, const std::string& place) {
  for (std::size_t i = 0; i + 1 < hosts.size(); ++i)
    if (hosts[i].name == hosts.back().name)
      throw ConfigError(fmt::format("{}: host '{}' is listed twice; give its ranks once, as {}:{}",
                                    place, hosts[i].name, hosts[i].name,
                                    hosts[i].slots + hosts.back().slots));
}

/// IPv4 and IPv6 addresses as bytes.
std::set<std::string> addresses_of(const sockaddr* address) {
  if (address == nullptr) return {};
  if (address->sa_family == AF_INET) {
    const auto* ipv4 = reinterpret_cast<const sockaddr_in*>(address);
    return {std::string(reinterpret_cast<const char*>(&ipv4->sin_addr), sizeof(ipv4->sin_addr))};
  }
  if (address->sa_family == AF_INET6) {
    const auto* ipv6 = reinterpret_cast<const sockaddr_in6*>(address);
    return {std::string(reinterpret_cast<const char*>(&ipv6->sin6_addr), sizeof(ipv6->sin6_addr))};
  }
  return {};
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
    }
    refuse_repetition(hosts, place);
  }
  if (hosts.empty())
    throw ConfigError(fmt::format("{}: no hosts; write one host name a line", file));
  return hosts;
}

bool is_this_machine(const std::string& host) {
  char name[256] = {};
  if (host == "localhost" || (gethostname(name, sizeof(name) - 1) == 0 && host == name))
    return true;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  ifaddrs* own = nullptr;
  if (getifaddrs(&own) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> own_owned(own, freeifaddrs);
  std::set<std::string> mine;
  for (const ifaddrs* one = own; one != nullptr; one = one->ifa_next)
    mine.merge(addresses_of(one->ifa_addr));
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next)
    for (const std::string& address : addresses_of(one->ai_addr))
      if (mine.contains(address)) return true;
  return false;
}

}  // namespace meshplan::runtime
