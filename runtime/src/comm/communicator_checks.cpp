#include "comm/communicator_checks.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <set>

#include "comm/reduction.hpp"
#include "core/error.hpp"

namespace meshplan::runtime::checks {
namespace {

void require(const Communicator& comm, bool condition, std::string_view operation,
             const std::string& rule) {
  if (!condition) throw InvariantError(fmt::format("{} on {}: {}", operation, comm.name(), rule));
}

void check_buffer(const Communicator& comm, std::string_view operation, const ConstBuffer& buffer) {
  require(comm, buffer.count >= 0, operation, fmt::format("count {} is negative", buffer.count));
  require(comm, buffer.count == 0 || buffer.data != nullptr, operation,
          fmt::format("no memory for {} elements", buffer.count));
}

/// send.count : recv.count must be `send_parts` : `recv_parts`.
void check_pair(const Communicator& comm, std::string_view operation, const ConstBuffer& send,
                std::int64_t send_parts, const ConstBuffer& recv, std::int64_t recv_parts) {
  check_buffer(comm, operation, send);
  check_buffer(comm, operation, recv);
  require(comm, send.dtype == recv.dtype && send.count * recv_parts == recv.count * send_parts,
          operation,
          fmt::format("sends {} x {}, receives {} x {}; counts must be as {} to {}, dtypes equal",
                      name_of(send.dtype), send.count, name_of(recv.dtype), recv.count, send_parts,
                      recv_parts));
}

void check_reducible(const Communicator& comm, std::string_view operation, DType dtype,
                     ReduceOp op) {
  require(comm, is_reducible(dtype, op), operation,
          fmt::format("{} cannot be reduced so", name_of(dtype)));
}

}  // namespace

void all_reduce(const Communicator& comm, const ConstBuffer& send, const ConstBuffer& recv,
                ReduceOp op) {
  check_pair(comm, "all_reduce", send, 1, recv, 1);
  check_reducible(comm, "all_reduce", send.dtype, op);
}

void reduce_scatter(const Communicator& comm, const ConstBuffer& send, const ConstBuffer& recv,
                    ReduceOp op) {
  check_pair(comm, "reduce_scatter", send, comm.size(), recv, 1);
  check_reducible(comm, "reduce_scatter", send.dtype, op);
}

void all_gather(const Communicator& comm, const ConstBuffer& send, const ConstBuffer& recv) {
  check_pair(comm, "all_gather", send, 1, recv, comm.size());
}

void all_to_all(const Communicator& comm, const ConstBuffer& send, const ConstBuffer& recv) {
  check_pair(comm, "all_to_all", send, 1, recv, 1);
  require(comm, send.count % comm.size() == 0, "all_to_all",
          fmt::format("{} elements are not divisible by {} ranks", send.count, comm.size()));
}

void all_to_all_v(const Communicator& comm, const ConstBuffer& send,
                  std::span<const std::int64_t> send_counts, const ConstBuffer& recv,
                  std::span<const std::int64_t> recv_counts) {
  check_buffer(comm, "all_to_all_v", send);
  check_buffer(comm, "all_to_all_v", recv);
  const auto add_up = [&](std::span<const std::int64_t> counts, const ConstBuffer& buffer) {
    require(comm,
            std::ssize(counts) == comm.size() &&
                std::ranges::all_of(counts, [](std::int64_t count) { return count >= 0; }) &&
                std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == buffer.count,
            "all_to_all_v",
            fmt::format("needs {} counts that add up to {}; got {}", comm.size(), buffer.count,
                        fmt::join(counts, " ")));
  };
  add_up(send_counts, send);
  add_up(recv_counts, recv);
  const auto self = static_cast<std::size_t>(comm.rank());
  require(comm, send_counts[self] == recv_counts[self], "all_to_all_v",
          fmt::format("sends {} to itself and receives {}", send_counts[self], recv_counts[self]));
  require(comm, send.dtype == recv.dtype && (send.data != recv.data || send.count == 0),
          "all_to_all_v", "needs one dtype and two buffers");
}

void broadcast(const Communicator& comm, const ConstBuffer& buffer, int root) {
  check_buffer(comm, "broadcast", buffer);
  require(comm, root >= 0 && root < comm.size(), "broadcast",
          fmt::format("there is no root {}", root));
}

void transfers(const Communicator& comm, std::string_view operation,
               std::span<const Transfer> transfers) {
  for (const Transfer& one : transfers) {
    check_buffer(comm, operation, one.buffer);
    require(comm, one.peer >= 0 && one.peer < comm.size(), operation,
            fmt::format("there is no peer {}", one.peer));
    require(comm, one.tag >= 0 && one.tag <= kMaxTag, operation,
            fmt::format("tag {} is not in 0 to {}", one.tag, kMaxTag));
  }
}

std::string group_label(const Communicator& parent, std::span<const int> ranks,
                        std::string_view name) {
  std::string label = fmt::format("{} of ranks {}", name, fmt::join(ranks, " "));
  std::set<int> seen;
  for (const int member : ranks) {
    if (member < 0 || member >= parent.size())
      throw ConfigError(fmt::format("group {}: rank {} does not exist; the job has ranks 0 to {}",
                                    label, member, parent.size() - 1));
    if (!seen.insert(member).second)
      throw ConfigError(fmt::format("group {}: rank {} is listed twice", label, member));
  }
  return label;
}

}  // namespace meshplan::runtime::checks
