#include "measure/measure_collectives.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "core/index.hpp"
#include "measure/cold_memory.hpp"
#include "measure/message_sweep.hpp"
#include "measure/timed_group.hpp"

namespace meshplan::runtime {
namespace {

using program::CommOp;
using program::CommSample;

std::vector<int> groups_of(const MeasureOptions& options, int world_size) {
  std::vector<int> sizes = options.group_sizes;
  if (sizes.empty()) {
    for (int size = 2; size < world_size; size *= 2) sizes.push_back(size);
    if (world_size > 1) sizes.push_back(world_size);
  }
  for (const int size : sizes)
    if (size < 2 || size > world_size)
      throw ConfigError("measure: a group of " + std::to_string(size) +
                        " ranks; the job allows 2 to " + std::to_string(world_size));
  return sizes;
}

std::vector<CommOp> ops_of(const MeasureOptions& options) {
  if (!options.ops.empty()) return options.ops;
  return {CommOp::AllReduce, CommOp::ReduceScatter, CommOp::AllGather, CommOp::AllToAll,
          CommOp::AllToAllV, CommOp::Broadcast,     CommOp::Barrier};
}

/// Ranks on the machine that has most of them, and its cores.
std::pair<int, int> busiest_machine(const JobLayout& layout) {
  std::pair<int, int> busiest{0, 0};
  for (int machine = 0; machine < layout.num_machines(); ++machine) {
    const int ranks = static_cast<int>(layout.ranks_on(machine).size());
    if (ranks > busiest.first) busiest = {ranks, layout.cores_of_machine[at(machine)]};
  }
  return busiest;
}

/// What the calls send and receive.
class Workspace {
 public:
  /// @param recv_bytes  at least as many as any call receives
  Workspace(const MeasuredWorld& world, std::int64_t send_bytes, std::int64_t recv_bytes)
      : send_(world, send_bytes), recv_(world, recv_bytes) {}
  void* send() { return send_.data(); }
  void* recv() { return recv_.data(); }
  /// Memory that was not used since all the rest of it was. @param bytes  that a call receives
  std::byte* cold(std::int64_t bytes) {
    constexpr std::int64_t kPage = 4096;  // neither a prefetched line nor a known page
    if (next_cold_ + bytes > recv_.bytes()) next_cold_ = 0;
    std::byte* memory = recv_.data() + next_cold_;
    next_cold_ += (bytes + kPage - 1) / kPage * kPage;
    return memory;
  }

 private:
  MeasuredMemory send_;
  MeasuredMemory recv_;
  std::int64_t next_cold_ = 0;
};

/// What the buffers of a call are. Activations were written a moment ago; gradients and parameters,
/// which are reduced and gathered in place, come from memory.
enum class Buffers { Warm, Cold };

/// The operations that gradients and parameters need.
bool moves_parameters(CommOp op) {
  return op == CommOp::AllReduce || op == CommOp::ReduceScatter || op == CommOp::AllGather;
}

/// One call of `op` with `bytes` passed in by this rank, rounded up to whole blocks of fp32.
class SampledCollective {
 public:
  SampledCollective(Communicator& comm, CommOp op, std::int64_t bytes)
      : comm_(comm), op_(op), count_(rounded(comm.size(), op, bytes)) {
    if (op == CommOp::AllToAllV)
      counts_.assign(static_cast<std::size_t>(comm.size()), count_ / comm.size());
  }

  std::int64_t bytes() const { return count_ * size_of(DType::F32); }

  Handle start(Workspace& memory, Buffers buffers) const {
    return buffers == Buffers::Cold ? start_in_place(memory) : start(memory);
  }

  static std::int64_t rounded(int size, CommOp op, std::int64_t bytes) {
    if (op == CommOp::Barrier) return 0;
    const bool in_blocks =
        op == CommOp::ReduceScatter || op == CommOp::AllToAll || op == CommOp::AllToAllV;
    const std::int64_t unit = in_blocks ? size : 1;
    const std::int64_t elements = (bytes + size_of(DType::F32) - 1) / size_of(DType::F32);
    return (elements + unit - 1) / unit * unit;
  }

 private:
  Handle start(Workspace& memory) const {
    const ConstBuffer send{memory.send(), count_, DType::F32};
    const MutableBuffer recv{memory.recv(), count_, DType::F32};
    const int n = comm_.size();
    switch (op_) {
      case CommOp::AllReduce:
        return comm_.all_reduce(send, recv, ReduceOp::Sum);
      case CommOp::ReduceScatter:
        return comm_.reduce_scatter(send, {recv.data, count_ / n, DType::F32}, ReduceOp::Sum);
      case CommOp::AllGather:
        return comm_.all_gather(send, {recv.data, count_ * n, DType::F32});
      case CommOp::AllToAll:
        return comm_.all_to_all(send, recv);
      case CommOp::AllToAllV:
        return comm_.all_to_all_v(send, counts_, recv, counts_);
      case CommOp::Broadcast:
        return comm_.broadcast(recv, 0);
      case CommOp::Barrier:
        return comm_.barrier();
      case CommOp::PointToPoint:
        break;
    }
    throw InvariantError("point-to-point is measured by measure_links");
  }

  Handle start_in_place(Workspace& memory) const {
    const int n = comm_.size();
    const std::int64_t whole = op_ == CommOp::AllGather ? count_ * n : count_;
    auto* all = reinterpret_cast<float*>(memory.cold(whole * size_of(DType::F32)));
    float* own = all + whole / n * comm_.rank();
    switch (op_) {
      case CommOp::AllReduce:
        return comm_.all_reduce({all, count_, DType::F32}, {all, count_, DType::F32},
                                ReduceOp::Sum);
      case CommOp::ReduceScatter:
        return comm_.reduce_scatter({all, count_, DType::F32}, {own, count_ / n, DType::F32},
                                    ReduceOp::Sum);
      case CommOp::AllGather:
        return comm_.all_gather({own, count_, DType::F32}, {all, whole, DType::F32});
      default:
        throw InvariantError("an operation that moves no parameters");
    }
  }

  Communicator& comm_;
  CommOp op_;
  std::int64_t count_;
  std::vector<std::int64_t> counts_;
};

/// What a rank's caches hold when it communicates: what it has computed with. So the carrier's own
/// buffers and scratch memory are cold; an activation that it sends was written last.
class Caches {
 public:
  void prepare(const SampledCollective& call, Buffers buffers, Workspace& memory) {
    const bool cold = buffers == Buffers::Cold;
    touch(other_.data(), cold ? kStepBytes : kLayerBytes);
    if (!cold) touch(static_cast<std::byte*>(memory.send()), call.bytes());
  }

 private:
  static void touch(std::byte* memory, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; ++i) memory[i] ^= std::byte{1};
  }

  static constexpr std::int64_t kLayerBytes = 4 << 20;
  static constexpr std::int64_t kStepBytes = 16 << 20;
  std::vector<std::byte> other_ = std::vector<std::byte>(kStepBytes);
};

struct Case {
  CommOp op = CommOp::AllReduce;
  Buffers buffers = Buffers::Warm;
  bool operator==(const Case&) const = default;
};

/// A GPU's own links are slower than its memory: there it makes no difference.
std::vector<Case> cases_of(const MeasureOptions& options, bool device_drives) {
  std::vector<Case> cases;
  for (const CommOp op : ops_of(options)) {
    cases.push_back({op, Buffers::Warm});
    if (moves_parameters(op) && !device_drives) cases.push_back({op, Buffers::Cold});
  }
  return cases;
}

/// For messages of at most `largest_bytes`.
Workspace workspace_for(const MeasuredWorld& world, const std::vector<Case>& cases,
                        std::int64_t largest_bytes) {
  const int ranks = world.host.size();
  const std::int64_t send_bytes = largest_bytes + size_of(DType::F32) * ranks;  // whole blocks
  std::int64_t recv_bytes = send_bytes * ranks;
  if (std::ranges::find(cases, Buffers::Cold, &Case::buffers) != cases.end())
    recv_bytes = std::max(recv_bytes, cold_bytes(world.device));
  return {world, send_bytes, recv_bytes};
}

}  // namespace

MeasuredMessages<CommSample> measure_collectives(const MeasuredWorld& world,
                                                 const JobLayout& layout,
                                                 const program::CollectiveTable& table,
                                                 const MeasureOptions& options) {
  Communicator& host = world.host;
  const auto sizes = message_sizes(options);
  const auto group_sizes = groups_of(options, host.size());
  const auto [ranks_on_host, cores_on_host] = busiest_machine(layout);
  if (group_sizes.empty()) return {};
  std::vector<std::unique_ptr<TimedGroup>> groups;
  for (const int size : group_sizes) {
    std::vector<int> members(static_cast<std::size_t>(size));
    std::iota(members.begin(), members.end(), 0);
    groups.push_back(std::make_unique<TimedGroup>(world, members, "measured"));
  }
  const std::vector<Case> cases = cases_of(options, device_drives(world));
  Workspace memory = workspace_for(world, cases, *std::ranges::max_element(sizes));
  Caches caches;
  std::vector<MessageSeries> series;
  for (const auto& group : groups)
    for (const Case& one : cases)
      series.push_back(
          {.group = group.get(),
           .once =
               [&memory, &group, one](std::int64_t bytes) {
                 SampledCollective(group->moves(), one.op, bytes).start(memory, one.buffers).wait();
               },
           .before =
               [&, one](std::int64_t bytes) {
                 if (world.device == nullptr)
                   caches.prepare(SampledCollective(group->moves(), one.op, bytes), one.buffers,
                                  memory);
               },
           .smallest_only = one.op == CommOp::Barrier});
  const MessageSweep sweep(world, series, sizes, options);
  MeasuredMessages<CommSample> measured{.samples = {}, .quietness = sweep.quietness()};
  for (std::size_t s = 0; s < series.size(); ++s)
    for (std::size_t size = 0; size < sizes.size(); ++size) {
      if (!sweep.timed(s, size)) continue;
      const Case& one = cases[s % cases.size()];
      const int group_size = group_sizes[s / cases.size()];
      const std::int64_t bytes =
          SampledCollective::rounded(group_size, one.op, sizes[size]) * size_of(DType::F32);
      CommSample sample{.op = one.op,
                        .group_size = group_size,
                        .ranks_on_host = ranks_on_host,
                        .cores_on_host = cores_on_host,
                        .bytes = bytes,
                        .algorithm = device_drives(world)
                                         ? program::CommAlgorithm::Library
                                         : table.choose(one.op, group_size, Bytes{bytes}),
                        .cold = one.buffers == Buffers::Cold};
      if (host.rank() == 0) set_times(sample, sweep.estimate(s, size));
      share(host, sample, 0);
      measured.samples.push_back(sample);
    }
  return measured;
}

}  // namespace meshplan::runtime
