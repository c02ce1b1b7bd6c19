#include "runtime/measure_collectives.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "core/statistics.hpp"

namespace meshplan::runtime {
namespace {

using program::CommOp;
using program::CommSample;
using program::LinkSample;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<std::int64_t> sizes_of(const MeasureOptions& options) {
  if (!options.bytes.empty()) return options.bytes;
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = 8; bytes <= (std::int64_t{64} << 20); bytes *= 4)
    sizes.push_back(bytes);
  if (sizes.back() != std::int64_t{64} << 20) sizes.push_back(std::int64_t{64} << 20);
  return sizes;
}

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
    if (ranks > busiest.first)
      busiest = {ranks, layout.cores_of_machine[static_cast<std::size_t>(machine)]};
  }
  return busiest;
}

/// The largest of one number over a group: all ranks decide alike.
double largest(Communicator& comm, double value) {
  comm.all_reduce({&value, 1, DType::F64}, {&value, 1, DType::F64}, ReduceOp::Max).wait();
  return value;
}

/// More than the caches of a processor that one rank may hold.
constexpr std::int64_t kColdBytes = 96 << 20;

/// Memory for the largest case, touched once.
class Workspace {
 public:
  Workspace(const MeasuredWorld& world, std::int64_t largest_bytes, int ranks)
      : send_(allocate(world, largest_bytes)),
        recv_bytes_(std::max(kColdBytes, largest_bytes * ranks)),
        recv_(allocate(world, recv_bytes_)) {}
  void* send() { return send_.get(); }
  void* recv() { return recv_.get(); }
  /// Memory that was not used since all the rest of it was. @param bytes  at most ranks * largest
  std::byte* cold(std::int64_t bytes) {
    constexpr std::int64_t kPage = 4096;  // neither a prefetched line nor a known page
    if (next_cold_ + bytes > recv_bytes_) next_cold_ = 0;
    std::byte* memory = static_cast<std::byte*>(recv()) + next_cold_;
    next_cold_ += (bytes + kPage - 1) / kPage * kPage;
    return memory;
  }

 private:
  using Memory = std::unique_ptr<void, std::function<void(void*)>>;
  static Memory allocate(const MeasuredWorld& world, std::int64_t bytes) {
    if (world.device == nullptr)
      return {new std::byte[static_cast<std::size_t>(bytes)](),
              [](void* memory) { delete[] static_cast<std::byte*>(memory); }};
    kernels::Backend& backend = world.device->backend();
    return {backend.allocate(bytes), [&backend](void* memory) { backend.free(memory); }};
  }

  Memory send_;
  std::int64_t recv_bytes_;
  Memory recv_;
  std::int64_t next_cold_ = 0;
};

constexpr program::Lane kLane = program::Lane::Tp;

bool device_drives(const MeasuredWorld& world) {
  return world.device != nullptr &&
         world.device->rules().communications == program::CommunicationDriver::Device;
}

/// Some ranks: what moves the data, and what moves times. One and the same without a device.
class TimedGroup {
 public:
  /// Called by all ranks at once.
  TimedGroup(const MeasuredWorld& world, std::span<const int> members, std::string_view name)
      : device_(world.device),
        device_drives_(device_drives(world)),
        host_(world.host.create_group(members, name)),
        moves_(world.device == nullptr ? nullptr : world.moves->create_group(members, name)) {
    if (moves_ != nullptr && device_drives_) moves_->queue_on(device_->queue(kLane));
  }
  bool member() const { return host_ != nullptr; }
  Communicator& moves() { return moves_ == nullptr ? *host_ : *moves_; }
  Communicator& host() { return *host_; }

  /// Seconds of `once`, as this rank sees it; all members of the group enter together.
  double seconds_of(const std::function<void()>& once, int calls) {
    host_->barrier().wait();
    if (device_drives_) {
      device_->stamp(0, kLane);
      for (int i = 0; i < calls; ++i) once();
      device_->stamp(1, kLane);
      device_->synchronize();
      return (device_->stamp_seconds(1) - device_->stamp_seconds(0)) / calls;
    }
    const auto start = Clock::now();
    once();
    if (device_ != nullptr) device_->synchronize();
    return seconds_since(start);
  }
  bool queues_calls() const { return device_drives_; }

 private:
  Device* device_;
  bool device_drives_;
  std::unique_ptr<Communicator> host_;
  std::unique_ptr<Communicator> moves_;
};

/// What the buffers of a call are. Activations were written a moment ago; gradients and parameters,
/// which are reduced and gathered in place, come from memory.
enum class Buffers { Warm, Cold };

/// The operations that gradients and parameters need.
bool moves_parameters(CommOp op) {
  return op == CommOp::AllReduce || op == CommOp::ReduceScatter || op == CommOp::AllGather;
}

/// One call of `op` with `bytes` passed in by this rank, rounded up to whole blocks of fp32.
class Call {
 public:
  Call(Communicator& comm, CommOp op, std::int64_t bytes)
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

/// So many that they take about a millisecond: what starts the first one no longer counts.
int calls_that_last(double seconds_of_one) {
  constexpr double kBatchSeconds = 1e-3;
  constexpr double kMostCalls = 20;
  return static_cast<int>(
      std::clamp(kBatchSeconds / std::max(seconds_of_one, 1e-9), 1.0, kMostCalls));
}

/// Times of `once`, each that of the slowest rank, until the budget or max_repeats is spent. Fewer
/// than min_repeats only where these would take more than four budgets.
/// @param before  of every call, not timed
std::vector<double> time_repeats(
    TimedGroup& group, const std::function<void()>& once, const MeasureOptions& options,
    const std::function<void()>& before = [] {}) {
  group.seconds_of(once, 1);  // connections, caches, scratch
  const int calls =
      group.queues_calls()
          ? calls_that_last(largest(group.host(), group.seconds_of(once, 1)))  // alike on all ranks
          : 1;
  std::vector<double> times;
  double spent = 0;
  while (static_cast<int>(times.size()) < options.max_repeats &&
         (static_cast<int>(times.size()) < options.min_repeats ||
          spent < options.budget_per_case.value)) {
    before();
    times.push_back(largest(group.host(), group.seconds_of(once, calls)));
    spent += times.back() * calls;
    if (spent > 4 * options.budget_per_case.value) break;
  }
  return times;
}

/// Rank 0 has measured every case; the others may have waited.
template <class Sample>
void share(Communicator& world, std::vector<Sample>& samples) {
  std::int64_t count = static_cast<std::int64_t>(samples.size());
  world.broadcast({&count, 1, DType::I64}, 0).wait();
  samples.resize(static_cast<std::size_t>(count));
  world.broadcast({samples.data(), count * static_cast<std::int64_t>(sizeof(Sample)), DType::U8}, 0)
      .wait();
}

template <class Sample>
void set_times(Sample& sample, const std::vector<double>& times, double scale) {
  const Spread spread = spread_of(times);
  sample.repeats = static_cast<int>(times.size());
  sample.seconds = spread.median * scale;
  sample.p10_s = spread.p10 * scale;
  sample.p90_s = spread.p90 * scale;
}

/// What a rank's caches hold when it communicates: what it has computed with. So the carrier's own
/// buffers and scratch memory are cold; an activation that it sends was written last.
class Caches {
 public:
  void prepare(const Call& call, Buffers buffers, Workspace& memory) {
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

}  // namespace

std::vector<CommSample> measure_collectives(const MeasuredWorld& world, const JobLayout& layout,
                                            const program::CollectiveTable& table,
                                            const MeasureOptions& options) {
  Communicator& host = world.host;
  const auto sizes = sizes_of(options);
  const auto group_sizes = groups_of(options, host.size());
  const auto [ranks_on_host, cores_on_host] = busiest_machine(layout);
  if (group_sizes.empty()) return {};
  Workspace memory(world, *std::ranges::max_element(sizes) + 4 * host.size(), host.size());
  std::vector<std::unique_ptr<TimedGroup>> groups;
  for (const int size : group_sizes) {
    std::vector<int> members(static_cast<std::size_t>(size));
    std::iota(members.begin(), members.end(), 0);
    groups.push_back(std::make_unique<TimedGroup>(world, members, "measured"));
  }
  const std::vector<Case> cases = cases_of(options, device_drives(world));
  Caches caches;
  std::vector<CommSample> samples;
  std::vector<std::pair<Case, int>> too_slow;
  const auto start = Clock::now();
  for (const std::int64_t bytes : sizes)
    for (std::size_t g = 0; g < groups.size(); ++g)
      for (const Case& one : cases) {
        const bool repeats_barrier = one.op == CommOp::Barrier && bytes != sizes.front();
        // Decided by all ranks alike, for they enter the barrier below together.
        const double elapsed = largest(host, seconds_since(start));
        const bool skip =
            repeats_barrier || elapsed > options.total_budget.value ||
            std::ranges::find(too_slow, std::pair(one, group_sizes[g])) != too_slow.end();
        if (skip) continue;
        double slow = 0;
        if (groups[g]->member()) {
          const Call call(groups[g]->moves(), one.op, bytes);
          const auto times = time_repeats(
              *groups[g], [&] { call.start(memory, one.buffers).wait(); }, options,
              [&] {
                if (world.device == nullptr) caches.prepare(call, one.buffers, memory);
              });
          CommSample sample{.op = one.op,
                            .group_size = group_sizes[g],
                            .ranks_on_host = ranks_on_host,
                            .cores_on_host = cores_on_host,
                            .bytes = call.bytes(),
                            .algorithm = device_drives(world) ? program::CommAlgorithm::Library
                                                              : table.choose(one.op, group_sizes[g],
                                                                             Bytes{call.bytes()}),
                            .cold = one.buffers == Buffers::Cold};
          set_times(sample, times, 1.0);
          samples.push_back(sample);
          slow = static_cast<int>(times.size()) < options.min_repeats ? 1 : 0;
        }
        if (largest(host, slow) > 0) too_slow.emplace_back(one, group_sizes[g]);
      }
  share(host, samples);
  return samples;
}

namespace {

std::vector<std::pair<int, int>> pairs_to_measure(const JobLayout& layout, bool all_of_machine) {
  std::vector<std::pair<int, int>> pairs;
  for (int rank = 0; rank + 1 < layout.size(); ++rank) pairs.emplace_back(rank, rank + 1);
  const auto add = [&](int from, int to) {
    const std::pair<int, int> pair{from, to};
    if (from < to && std::ranges::find(pairs, pair) == pairs.end()) pairs.push_back(pair);
  };
  for (int machine = 0; machine < layout.num_machines(); ++machine) {
    const std::vector<int> ranks = layout.ranks_on(machine);
    add(0, ranks.front());
    for (const int from : ranks)
      for (const int to : ranks)
        if (all_of_machine) add(from, to);
  }
  return pairs;
}

}  // namespace

std::vector<LinkSample> measure_links(const MeasuredWorld& world, const JobLayout& layout,
                                      const MeasureOptions& options) {
  const auto pairs = pairs_to_measure(layout, world.device != nullptr);
  const auto sizes = sizes_of(options);
  Workspace memory(world, *std::ranges::max_element(sizes), 1);
  std::vector<LinkSample> samples;
  const auto start = Clock::now();
  for (const auto& [from, to] : pairs) {
    const std::vector<int> members{from, to};
    TimedGroup pair(world, members, "link");
    for (const std::int64_t bytes : sizes) {
      if (largest(world.host, seconds_since(start)) > options.total_budget.value) break;
      LinkSample sample;
      if (pair.member()) {
        Communicator& moves = pair.moves();
        const int peer = 1 - moves.rank();
        const auto ping_pong = [&] {
          if (moves.rank() == 0) moves.send({memory.send(), bytes, DType::U8}, peer).wait();
          moves.recv({memory.recv(), bytes, DType::U8}, peer).wait();
          if (moves.rank() == 1) moves.send({memory.send(), bytes, DType::U8}, peer).wait();
        };
        const auto times = time_repeats(pair, ping_pong, options);
        const auto machine = [&](int rank) {
          return layout.machine_of_rank[static_cast<std::size_t>(rank)];
        };
        sample = {
            .from = from, .to = to, .same_host = machine(from) == machine(to), .bytes = bytes};
        set_times(sample, times, 0.5);  // one way of two
      }
      // The pair's first rank has it; every rank gets it.
      world.host.broadcast({&sample, static_cast<std::int64_t>(sizeof(sample)), DType::U8}, from)
          .wait();
      samples.push_back(sample);
    }
  }
  return samples;
}

}  // namespace meshplan::runtime
