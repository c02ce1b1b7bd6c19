#include "os/host_lookup.hpp"

#include <chrono>
#include <future>
#include <ifaddrs.h>
#include <map>
#include <memory>
#include <mutex>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <utility>

namespace meshplan::runtime {
namespace {

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

HostLookup ask_resolver(const std::string& host) {
  HostLookup lookup;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, nullptr, &found);
  if (error != 0) {
    lookup.error = gai_strerror(error);
    lookup.unknown = error == EAI_NONAME || error == EAI_NODATA;
    return lookup;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next)
    lookup.addresses.merge(addresses_of(one->ai_addr));
  return lookup;
}

std::mutex answers_mutex;
std::map<std::string, std::shared_future<HostLookup>>& answers() {
  static auto& all =
      *new std::map<std::string, std::shared_future<HostLookup>>;  // outlives threads
  return all;
}

}  // namespace

void begin_lookup(const std::string& host) {
  const std::lock_guard lock(answers_mutex);
  if (answers().contains(host)) return;
  std::packaged_task<HostLookup()> task([host] { return ask_resolver(host); });
  answers().emplace(host, task.get_future().share());
  // The resolver cannot be interrupted: whoever waits too long leaves it behind.
  std::thread(std::move(task)).detach();
}

HostLookup look_up(const std::string& host) {
  constexpr std::chrono::seconds kLookupPatience{8};
  begin_lookup(host);
  std::shared_future<HostLookup> answer;
  {
    const std::lock_guard lock(answers_mutex);
    answer = answers().at(host);
  }
  if (answer.wait_for(kLookupPatience) == std::future_status::ready) return answer.get();
  return {.error = "the resolver (DNS) does not answer"};
}

std::set<std::string> own_interface_addresses() {
  ifaddrs* own = nullptr;
  if (getifaddrs(&own) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(own, freeifaddrs);
  std::set<std::string> mine;
  for (const ifaddrs* one = own; one != nullptr; one = one->ifa_next)
    mine.merge(addresses_of(one->ifa_addr));
  return mine;
}

}  // namespace meshplan::runtime
