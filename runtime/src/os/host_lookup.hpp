#pragma once

#include <set>
#include <string>

namespace meshplan::runtime {

/// What the resolver says about a name.
struct HostLookup {
  std::set<std::string> addresses;  // IPv4 and IPv6, as bytes
  std::string error;                // why there are none
  bool unknown = false;             // no such name, rather than a resolver in trouble
};

/// Starts to look a name up, in the background; asks once for each name in a process.
void begin_lookup(const std::string& host);
/// Waits for the answer, a few seconds at most: a resolver may be slow, or gone.
HostLookup look_up(const std::string& host);

/// The addresses of this machine's interfaces, as bytes.
std::set<std::string> own_interface_addresses();

}  // namespace meshplan::runtime
