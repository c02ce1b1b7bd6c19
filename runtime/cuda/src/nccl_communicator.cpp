#include "nccl_communicator.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <utility>

#include "comm/communicator_checks.hpp"
#include "core/error.hpp"
#include "core/index.hpp"
#include "stream_pool.hpp"

namespace meshplan::runtime::cuda {
namespace {

using kernels::cuda::check;

std::size_t elements(const ConstBuffer& buffer) {
  return static_cast<std::size_t>(buffer.count);
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return ncclFloat64;
    case DType::F32:
      return ncclFloat32;
    case DType::F16:
      return ncclFloat16;
    case DType::BF16:
      return ncclBfloat16;
    case DType::I64:
      return ncclInt64;
    case DType::I32:
      return ncclInt32;
    case DType::I8:
      return ncclInt8;
    case DType::U8:
      return ncclUint8;
    default:
      throw InvariantError(fmt::format("NCCL has no {}", name_of(dtype)));
  }
}

ncclRedOp_t operation_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return ncclSum;
    case ReduceOp::Prod:
      return ncclProd;
    case ReduceOp::Min:
      return ncclMin;
    case ReduceOp::Max:
      return ncclMax;
    case ReduceOp::Avg:
      return ncclAvg;
  }
  throw InvariantError("reduction without an NCCL operation");
}

class NcclCommunicator;

/// For callers without a queue of their own: done when the communicator's stream has passed.
class NcclOperation final : public PendingOperation {
 public:
  NcclOperation(std::shared_ptr<NcclJob> job, std::string name, std::string group,
                cudaStream_t stream)
      : job_(std::move(job)),
        name_(std::move(name)),
        group_(std::move(group)),
        done_(kernels::cuda::make_event(kernels::cuda::EventTiming::Off)) {
    check(cudaEventRecord(done_.get(), stream), "cudaEventRecord");
  }
  bool test() override {
    job_->check();
    return is_done(done_.get());
  }
  void wait(std::optional<Seconds> limit) override {
    const Seconds hang = job_->options().hang_timeout;
    const bool asked = limit && limit->value < hang.value;
    if (wait_for_device(job_.get(), job_->options().observer, asked ? limit : hang,
                        [&] { return is_done(done_.get()); }))
      return;
    if (!asked) job_->give_up(fmt::format("{} of {}", name_, group_));
    throw CommTimeout(name_, group_, std::nullopt,
                      fmt::format("still running after {} s", limit->value));
  }

 private:
  std::shared_ptr<NcclJob> job_;
  std::string name_;
  std::string group_;
  kernels::cuda::Event done_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclJob> job, ncclComm_t comm, int rank,
                   std::vector<int> world_ranks, std::string name)
      : job_(std::move(job)),
        comm_(comm),
        rank_(rank),
        world_ranks_(std::move(world_ranks)),
        name_(std::move(name)) {
    job_->add(comm_, name_);
  }
  ~NcclCommunicator() override { job_->remove(comm_); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_ranks_.size()); }
  const std::string& name() const override { return name_; }
  const std::vector<int>& world_ranks() const override { return world_ranks_; }
  void queue_on(void* queue) override { queue_ = static_cast<cudaStream_t>(queue); }

  std::unique_ptr<Communicator> create_group(std::span<const int> ranks,
                                             std::string_view name) override;

  Handle all_reduce(ConstBuffer send, MutableBuffer recv, ReduceOp op) override {
    checks::all_reduce(*this, send, recv, op);
    return run("all_reduce", [&] {
      return ncclAllReduce(send.data, recv.data, elements(send), type_of(send.dtype),
                           operation_of(op), comm_, stream());
    });
  }
  Handle reduce_scatter(ConstBuffer send, MutableBuffer recv, ReduceOp op) override {
    checks::reduce_scatter(*this, send, recv, op);
    return run("reduce_scatter", [&] {
      return ncclReduceScatter(send.data, recv.data, elements(recv), type_of(send.dtype),
                               operation_of(op), comm_, stream());
    });
  }
  Handle all_gather(ConstBuffer send, MutableBuffer recv) override {
    checks::all_gather(*this, send, recv);
    return run("all_gather", [&] {
      return ncclAllGather(send.data, recv.data, elements(send), type_of(send.dtype), comm_,
                           stream());
    });
  }
  Handle all_to_all(ConstBuffer send, MutableBuffer recv) override {
    checks::all_to_all(*this, send, recv);
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), send.count / size());
    return exchange("all_to_all", send, counts, recv, counts);
  }
  Handle all_to_all_v(ConstBuffer send, std::span<const std::int64_t> send_counts,
                      MutableBuffer recv, std::span<const std::int64_t> recv_counts) override {
    checks::all_to_all_v(*this, send, send_counts, recv, recv_counts);
    return exchange("all_to_all_v", send, send_counts, recv, recv_counts);
  }
  Handle broadcast(MutableBuffer buffer, int root) override {
    checks::broadcast(*this, buffer, root);
    return run("broadcast", [&] {
      return ncclBroadcast(buffer.data, buffer.data, elements(buffer), type_of(buffer.dtype), root,
                           comm_, stream());
    });
  }
  /// NCCL has none: a sum of one number, which also orders the queue.
  Handle barrier() override {
    if (barrier_ == nullptr) {
      void* memory = nullptr;
      check(cudaMalloc(&memory, sizeof(float)), "cudaMalloc");
      barrier_.reset(memory);
      check(cudaMemsetAsync(memory, 0, sizeof(float), stream()), "cudaMemsetAsync");
    }
    return run("barrier", [&] {
      return ncclAllReduce(barrier_.get(), barrier_.get(), 1, ncclFloat32, ncclSum, comm_,
                           stream());
    });
  }

  Handle send(ConstBuffer buffer, int peer, int tag) override {
    const Transfer one{Transfer::Direction::Send,
                       {const_cast<void*>(buffer.data), buffer.count, buffer.dtype},
                       peer,
                       tag};
    return transfer("send", {&one, 1});
  }
  Handle recv(MutableBuffer buffer, int peer, int tag) override {
    const Transfer one{Transfer::Direction::Recv, buffer, peer, tag};
    return transfer("recv", {&one, 1});
  }
  Handle send_recv(std::span<const Transfer> transfers) override {
    return transfer("send_recv", transfers);
  }

 private:
  struct FreeDeviceMemory {
    void operator()(void* memory) const noexcept { cudaFree(memory); }
  };

  cudaStream_t stream() {
    if (queue_ != nullptr) return queue_;
    if (own_stream_.get() == nullptr) own_stream_ = kernels::cuda::make_stream();
    return own_stream_.get();
  }

  /// Enqueues by `call`; in shared mode nothing else is on the device meanwhile.
  template <class Call>
  Handle run(const char* operation, const Call& call) {
    if (job_->aborted())
      throw CommError(operation, name_, std::nullopt,
                      "the group is broken: the job's communicators were aborted");
    check(cudaSetDevice(job_->options().device_index), "cudaSetDevice");
    if (job_->options().shared) check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    job_->complete(call(), comm_, operation, name_);
    if (job_->options().shared) {
      NcclOperation(job_, operation, name_, stream()).wait(std::nullopt);
      return {};
    }
    if (queue_ != nullptr) return {};
    return Handle(PendingOperationPtr(new NcclOperation(job_, operation, name_, stream())));
  }

  Handle exchange(const char* operation, const ConstBuffer& send,
                  std::span<const std::int64_t> send_counts, const MutableBuffer& recv,
                  std::span<const std::int64_t> recv_counts) {
    const std::int64_t element = size_of(send.dtype);
    const ncclDataType_t type = type_of(send.dtype);
    const auto bytes = static_cast<std::size_t>(send.count * element);
    const bool in_place = send.data == recv.data && bytes > 0 && size() > 1;
    void* copy = nullptr;
    if (in_place) {  // freed in the stream's order
      check(cudaMallocAsync(&copy, bytes, stream()), "cudaMallocAsync");
      check(cudaMemcpyAsync(copy, send.data, bytes, cudaMemcpyDeviceToDevice, stream()),
            "cudaMemcpyAsync");
    }
    const auto* from = static_cast<const std::byte*>(in_place ? copy : send.data);
    Handle handle = run(operation, [&] {
      auto* to = static_cast<std::byte*>(recv.data);
      ncclGroupStart();
      for (int peer = 0; peer < size(); ++peer) {
        const auto p = static_cast<std::size_t>(peer);
        if (send_counts[p] > 0)
          ncclSend(from, static_cast<std::size_t>(send_counts[p]), type, peer, comm_, stream());
        if (recv_counts[p] > 0)
          ncclRecv(to, static_cast<std::size_t>(recv_counts[p]), type, peer, comm_, stream());
        from += send_counts[p] * element;
        to += recv_counts[p] * element;
      }
      return ncclGroupEnd();
    });
    if (in_place) check(cudaFreeAsync(copy, stream()), "cudaFreeAsync");
    return handle;
  }

  Handle transfer(const char* operation, std::span<const Transfer> transfers) {
    checks::transfers(*this, operation, transfers);
    return run(operation, [&] {
      ncclGroupStart();
      for (const Transfer& one : transfers) {
        if (one.buffer.count == 0) continue;
        if (one.direction == Transfer::Direction::Send)
          ncclSend(one.buffer.data, elements(one.buffer), type_of(one.buffer.dtype), one.peer,
                   comm_, stream());
        else
          ncclRecv(one.buffer.data, elements(one.buffer), type_of(one.buffer.dtype), one.peer,
                   comm_, stream());
      }
      return ncclGroupEnd();
    });
  }

  std::shared_ptr<NcclJob> job_;
  ncclComm_t comm_;
  int rank_;
  std::vector<int> world_ranks_;
  std::string name_;
  cudaStream_t queue_ = nullptr;      // the caller's
  kernels::cuda::Stream own_stream_;  // made for the first call without one
  std::unique_ptr<void, FreeDeviceMemory> barrier_;
};

ncclConfig_t config_of() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

std::unique_ptr<Communicator> NcclCommunicator::create_group(std::span<const int> ranks,
                                                             std::string_view name) {
  const std::string label = checks::group_label(*this, ranks, name);
  const auto me = std::ranges::find(ranks, rank_);
  const bool member = me != ranks.end();
  ncclConfig_t config = config_of();
  // The children of one split are disjoint, so their first ranks name them.
  const int color = member ? ranks.front() : NCCL_SPLIT_NOCOLOR;
  const int key = static_cast<int>(me - ranks.begin());
  ncclComm_t child = nullptr;
  job_->complete(ncclCommSplit(comm_, color, key, &child, &config), comm_, "create_group", label);
  if (!member) return nullptr;
  job_->complete(ncclInProgress, child, "create_group", label);
  std::vector<int> world_ranks;
  for (const int rank : ranks) world_ranks.push_back(world_ranks_[at(rank)]);
  return std::make_unique<NcclCommunicator>(job_, child, key, std::move(world_ranks), label);
}

/// Returns when every rank of `host_world` has called it, so that what goes wrong afterwards is
/// NCCL's. Rank 0 waits for a message of each other rank and answers; the others give it a little
/// longer, for it knows who is missing.
void meet(Communicator& host_world, Seconds limit) {
  constexpr int kTag = kMaxTag;
  constexpr Seconds kLonger{2.0};
  std::vector<std::uint8_t> here(static_cast<std::size_t>(host_world.size()));
  const auto message = [&](int rank) { return MutableBuffer{&here[at(rank)], 1, DType::U8}; };
  const auto begin = std::chrono::steady_clock::now();
  const auto left = [&] {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    return Seconds{std::max(0.0, limit.value - spent.count())};
  };
  std::vector<int> missing;
  if (host_world.rank() == 0) {
    std::vector<Handle> messages;
    for (int rank = 1; rank < host_world.size(); ++rank)
      messages.push_back(host_world.recv(message(rank), rank, kTag));
    for (int rank = 1; rank < host_world.size(); ++rank) {
      try {
        messages[at(rank - 1)].wait(left());
      } catch (const CommTimeout&) {
        missing.push_back(rank);
      }
    }
  } else {
    host_world.send(message(host_world.rank()), 0, kTag).wait(limit);
  }
  if (!missing.empty())
    throw CommError(
        "start of NCCL", "world", missing.front(),
        fmt::format("rank{} {} did not come within {} s", missing.size() == 1 ? "" : "s",
                    fmt::join(missing, ", "), limit.value));
  host_world.broadcast(message(0), 0).wait(limit + kLonger);
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_world(Communicator& host_world,
                                              std::shared_ptr<NcclJob> job) {
  const Seconds limit = job->options().setup_timeout;
  check(cudaSetDevice(job->options().device_index), "cudaSetDevice");
  meet(host_world, limit);
  ncclUniqueId id{};
  if (host_world.rank() == 0) {
    const ncclResult_t made = ncclGetUniqueId(&id);
    if (made != ncclSuccess)
      throw CommError("ncclGetUniqueId", "world", std::nullopt, ncclGetErrorString(made));
  }
  host_world.broadcast({id.internal, sizeof id.internal, DType::U8}, 0).wait(limit);
  ncclConfig_t config = config_of();
  ncclComm_t comm = nullptr;
  job->complete(ncclCommInitRankConfig(&comm, host_world.size(), id, host_world.rank(), &config),
                comm, "ncclCommInitRankConfig", "world",
                "all have come, so NCCL cannot connect them (NCCL_SOCKET_IFNAME chooses the "
                "network, NCCL_DEBUG=INFO tells more)");
  std::vector<int> ranks(static_cast<std::size_t>(host_world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<NcclCommunicator>(std::move(job), comm, host_world.rank(),
                                            std::move(ranks), "world");
}

}  // namespace meshplan::runtime::cuda
