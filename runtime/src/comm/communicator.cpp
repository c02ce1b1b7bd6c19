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

std::string broadcast_text(Communicator& world, int root, std::string text) {
  std::int64_t size = std::ssize(text);
  world.broadcast({&size, 1, DType::I64}, root).wait();
  text.resize(static_cast<std::size_t>(size));
  world.broadcast({text.data(), size, DType::U8}, root).wait();
  return text;
}

}  // namespace meshplan::runtime
