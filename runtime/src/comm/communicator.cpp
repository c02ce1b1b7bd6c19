#include "runtime/comm/communicator.hpp"

#include <fmt/format.h>
#include <utility>

namespace meshplan::runtime {
namespace {

std::string describe(const std::string& operation, const std::string& group,
                     std::optional<int> peer, const std::string& what) {
  return peer ? fmt::format("{} on {}, peer {}: {}", operation, group, *peer, what)
              : fmt::format("{} on {}: {}", operation, group, what);
}

}  // namespace

CommError::CommError(std::string operation, std::string group, std::optional<int> peer,
                     const std::string& what)
    : std::runtime_error(describe(operation, group, peer, what)),
      operation_(std::move(operation)),
      group_(std::move(group)),
      peer_(peer) {}

}  // namespace meshplan::runtime
