#include "comm/host_communicator.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <set>
#include <utility>

#include "comm/call_verification.hpp"
#include "comm/host_operation.hpp"
#include "comm/reduction.hpp"
#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::runtime {
namespace {

using program::CommAlgorithm;
using program::CommOp;

/// What a collective call is about, apart from its buffers.
struct CollectiveCall {
  CommOp op = CommOp::Barrier;
  std::int64_t message_bytes = 0;  // as in CollectiveTable::choose
  std::int64_t count = 0;          // as in the schedule functions
  int variant = 0;                 // root; 1 = in place
  CallSignature signature;
};

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(std::shared_ptr<HostGroup> group,
                   std::shared_ptr<const HostWorldOptions> options)
      : group_(std::move(group)), options_(std::move(options)) {}

  int rank() const override { return group_->me.rank; }
  int size() const override { return group_->me.size; }
  const std::string& name() const override { return group_->name; }
  const std::vector<int>& world_ranks() const override { return group_->world_ranks; }

  std::unique_ptr<Communicator> create_group(std::span<const int> ranks,
                                             std::string_view name) override;
  Handle all_reduce(ConstBuffer send, MutableBuffer recv, ReduceOp op) override;
  Handle reduce_scatter(ConstBuffer send, MutableBuffer recv, ReduceOp op) override;
  Handle all_gather(ConstBuffer send, MutableBuffer recv) override;
  Handle all_to_all(ConstBuffer send, MutableBuffer recv) override;
  Handle all_to_all_v(ConstBuffer send, std::span<const std::int64_t> send_counts,
                      MutableBuffer recv, std::span<const std::int64_t> recv_counts) override;
  Handle broadcast(MutableBuffer buffer, int root) override;
  Handle barrier() override;
  Handle send(ConstBuffer buffer, int peer, int tag) override;
  Handle recv(MutableBuffer buffer, int peer, int tag) override;
  Handle send_recv(std::span<const Transfer> transfers) override;
  void progress_in_background(bool on) override;

 private:
  ProgressEngine::Lock lock() const { return group_->engine->lock(); }
  void check_buffer(std::string_view operation, const ConstBuffer& buffer) const;
  void check_whole(std::string_view operation) const;
  /// @param rule  gives the text; called only where the condition is broken
  template <class Rule>
  void require(bool condition, std::string_view operation, Rule rule) const {
    if (!condition) throw InvariantError(fmt::format("{} on {}: {}", operation, name(), rule()));
  }
  Handle collective(CollectiveCall call, Buffers buffers);
  std::shared_ptr<const CollectiveSchedule> schedule(const CollectiveCall& call,
                                                     CommAlgorithm algorithm, DType dtype);
  Handle run(HostOperationPtr operation, CallSignature signature, int sequence_number);
  Handle transfer(std::string_view operation, std::span<const Transfer> transfers);
  Handle start(HostOperationPtr operation);
  int next_sequence_number();

  std::shared_ptr<HostGroup> group_;
  std::shared_ptr<const HostWorldOptions> options_;
};

CallSignature signature_of(CommOp op, const ConstBuffer& buffer, ReduceOp reduce, int root) {
  CallSignature signature;
  signature.fields[CallSignature::Operation] = static_cast<std::int64_t>(op);
  signature.fields[CallSignature::Type] = static_cast<std::int64_t>(buffer.dtype);
  signature.fields[CallSignature::Count] = buffer.count;
  signature.fields[CallSignature::Reduction] = static_cast<std::int64_t>(reduce);
  signature.fields[CallSignature::Root] = root;
  return signature;
}

CollectiveSchedule make_schedule(const CollectiveCall& call, CommAlgorithm algorithm, Member me,
                                 std::int64_t piece) {
  switch (call.op) {
    case CommOp::AllReduce:
      return all_reduce_schedule(algorithm, me, call.count, piece);
    case CommOp::ReduceScatter:
      return reduce_scatter_schedule(algorithm, me, call.count, piece);
    case CommOp::AllGather:
      return all_gather_schedule(algorithm, me, call.count, piece);
    case CommOp::AllToAll:
      return all_to_all_schedule(algorithm, me, call.count, piece, call.variant != 0);
    case CommOp::Broadcast:
      return broadcast_schedule(algorithm, me, call.variant, call.count, piece);
    case CommOp::Barrier:
      return barrier_schedule(me);
    case CommOp::AllToAllV:
    case CommOp::PointToPoint:
      break;
  }
  throw InvariantError("not a collective with a cached schedule");
}

// ---------------------------------------------------------------- groups

std::unique_ptr<Communicator> HostCommunicator::create_group(std::span<const int> ranks,
                                                             std::string_view name) {
  const auto held = lock();
  const std::string label = fmt::format("{} of ranks {}", name, fmt::join(ranks, " "));
  std::set<int> seen;
  for (const int member : ranks) {
    if (member < 0 || member >= size())
      throw ConfigError(fmt::format("group {}: rank {} does not exist; the job has ranks 0 to {}",
                                    label, member, size() - 1));
    if (!seen.insert(member).second)
      throw ConfigError(fmt::format("group {}: rank {} is listed twice", label, member));
  }
  auto group = std::make_shared<HostGroup>();
  group->channel = group_->channel->create_group(ranks, label);
  if (group->channel == nullptr) return nullptr;
  group->me.size = static_cast<int>(ranks.size());
  group->me.rank = static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin());
  group->name = label;
  for (const int member : ranks) group->world_ranks.push_back(group_->world_ranks[at(member)]);
  group->engine = group_->engine;
  return std::make_unique<HostCommunicator>(std::move(group), options_);
}

// ---------------------------------------------------------------- checks

void HostCommunicator::check_buffer(std::string_view operation, const ConstBuffer& buffer) const {
  require(buffer.count >= 0, operation,
          [&] { return fmt::format("count {} is negative", buffer.count); });
  require(buffer.count == 0 || buffer.data != nullptr, operation,
          [&] { return fmt::format("no memory for {} elements", buffer.count); });
}

void HostCommunicator::check_whole(std::string_view operation) const {
  if (!group_->broken.empty())
    throw CommError(std::string(operation), name(), std::nullopt,
                    "the group is broken: " + group_->broken);
}

// ---------------------------------------------------------------- collectives

Handle HostCommunicator::all_reduce(ConstBuffer send, MutableBuffer recv, ReduceOp op) {
  check_buffer("all_reduce", send);
  check_buffer("all_reduce", recv);
  require(send.count == recv.count && send.dtype == recv.dtype, "all_reduce", [&] {
    return fmt::format("sends {} x {}, receives {} x {}; they must be equal", name_of(send.dtype),
                       send.count, name_of(recv.dtype), recv.count);
  });
  require(is_reducible(send.dtype, op), "all_reduce",
          [&] { return fmt::format("{} cannot be reduced so", name_of(send.dtype)); });
  return collective({CommOp::AllReduce, send.bytes(), send.count, 0,
                     signature_of(CommOp::AllReduce, send, op, 0)},
                    {send.data, recv.data, send.dtype, op});
}

Handle HostCommunicator::reduce_scatter(ConstBuffer send, MutableBuffer recv, ReduceOp op) {
  check_buffer("reduce_scatter", send);
  check_buffer("reduce_scatter", recv);
  require(send.count == size() * recv.count && send.dtype == recv.dtype, "reduce_scatter", [&] {
    return fmt::format(
        "sends {} x {}, receives {} x {}; it must send {} blocks of what it receives",
        name_of(send.dtype), send.count, name_of(recv.dtype), recv.count, size());
  });
  require(is_reducible(send.dtype, op), "reduce_scatter",
          [&] { return fmt::format("{} cannot be reduced so", name_of(send.dtype)); });
  return collective({CommOp::ReduceScatter, send.bytes(), recv.count, 0,
                     signature_of(CommOp::ReduceScatter, send, op, 0)},
                    {send.data, recv.data, send.dtype, op});
}

Handle HostCommunicator::all_gather(ConstBuffer send, MutableBuffer recv) {
  check_buffer("all_gather", send);
  check_buffer("all_gather", recv);
  require(recv.count == size() * send.count && send.dtype == recv.dtype, "all_gather", [&] {
    return fmt::format(
        "sends {} x {}, receives {} x {}; it must receive {} blocks of what it sends",
        name_of(send.dtype), send.count, name_of(recv.dtype), recv.count, size());
  });
  return collective({CommOp::AllGather, send.bytes(), send.count, 0,
                     signature_of(CommOp::AllGather, send, ReduceOp::Sum, 0)},
                    {send.data, recv.data, send.dtype, ReduceOp::Sum});
}

Handle HostCommunicator::all_to_all(ConstBuffer send, MutableBuffer recv) {
  check_buffer("all_to_all", send);
  check_buffer("all_to_all", recv);
  require(send.count == recv.count && send.dtype == recv.dtype && send.count % size() == 0,
          "all_to_all", [&] {
            return fmt::format(
                "sends {} x {}, receives {} x {}; they must be equal and divisible by {}",
                name_of(send.dtype), send.count, name_of(recv.dtype), recv.count, size());
          });
  const int in_place = send.data == recv.data ? 1 : 0;
  return collective({CommOp::AllToAll, send.bytes(), send.count, in_place,
                     signature_of(CommOp::AllToAll, send, ReduceOp::Sum, 0)},
                    {send.data, recv.data, send.dtype, ReduceOp::Sum});
}

Handle HostCommunicator::broadcast(MutableBuffer buffer, int root) {
  check_buffer("broadcast", buffer);
  require(root >= 0 && root < size(), "broadcast",
          [&] { return fmt::format("there is no root {}", root); });
  return collective({CommOp::Broadcast, buffer.bytes(), buffer.count, root,
                     signature_of(CommOp::Broadcast, buffer, ReduceOp::Sum, root)},
                    {buffer.data, buffer.data, buffer.dtype, ReduceOp::Sum});
}

Handle HostCommunicator::barrier() {
  const ConstBuffer nothing{nullptr, 0, DType::U8};
  return collective(
      {CommOp::Barrier, 0, 0, 0, signature_of(CommOp::Barrier, nothing, ReduceOp::Sum, 0)},
      {nullptr, nullptr, DType::U8, ReduceOp::Sum});
}

Handle HostCommunicator::all_to_all_v(ConstBuffer send, std::span<const std::int64_t> send_counts,
                                      MutableBuffer recv,
                                      std::span<const std::int64_t> recv_counts) {
  const auto held = lock();
  check_whole("all_to_all_v");
  check_buffer("all_to_all_v", send);
  check_buffer("all_to_all_v", recv);
  const auto add_up = [&](std::span<const std::int64_t> counts, const ConstBuffer& buffer) {
    const auto self = static_cast<std::size_t>(rank());
    require(counts.size() == static_cast<std::size_t>(size()) &&
                std::ranges::all_of(counts, [](std::int64_t count) { return count >= 0; }) &&
                std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == buffer.count &&
                send_counts[self] == recv_counts[self],
            "all_to_all_v", [&] {
              return fmt::format(
                  "needs {} counts that add up to {}, and the same to and from itself; got {}",
                  size(), buffer.count, fmt::join(counts, " "));
            });
  };
  add_up(send_counts, send);
  add_up(recv_counts, recv);
  require(send.dtype == recv.dtype && (send.data != recv.data || send.count == 0), "all_to_all_v",
          [&] { return "needs one dtype and two buffers"; });
  const CommAlgorithm algorithm =
      options_->table.choose(CommOp::AllToAllV, size(), Bytes{send.bytes()});
  const std::int64_t piece =
      std::max<std::int64_t>(1, options_->table.piece.value / size_of(send.dtype));
  auto actions = std::make_shared<const CollectiveSchedule>(
      all_to_all_v_schedule(algorithm, group_->me, send_counts, recv_counts, piece));
  // The totals may differ between ranks; the counts per peer are compared instead.
  CallSignature signature =
      signature_of(CommOp::AllToAllV, {send.data, 0, send.dtype}, ReduceOp::Sum, 0);
  signature.send_counts.assign(send_counts.begin(), send_counts.end());
  signature.recv_counts.assign(recv_counts.begin(), recv_counts.end());
  const int number = next_sequence_number();
  return run(
      make_operation<ScheduledOperation>(group_, "all_to_all_v", std::move(actions),
                                         Buffers{send.data, recv.data, send.dtype, ReduceOp::Sum},
                                         tag_of(TagKind::Collective, number)),
      std::move(signature), number);
}

int HostCommunicator::next_sequence_number() {
  const int number = group_->next_collective;
  group_->next_collective = (number + 1) % kTagsPerKind;
  return number;
}

std::shared_ptr<const CollectiveSchedule> HostCommunicator::schedule(const CollectiveCall& call,
                                                                     CommAlgorithm algorithm,
                                                                     DType dtype) {
  // A training step repeats its calls; the limit is for callers whose sizes never repeat.
  constexpr std::size_t kMaxSchedules = 512;
  const std::int64_t piece =
      std::max<std::int64_t>(1, options_->table.piece.value / size_of(dtype));
  const ScheduleKey key{call.op, algorithm, call.count, piece, call.variant};
  const auto found = group_->schedules.find(key);
  if (found != group_->schedules.end()) return found->second;
  if (group_->schedules.size() >= kMaxSchedules) group_->schedules.clear();
  auto made =
      std::make_shared<const CollectiveSchedule>(make_schedule(call, algorithm, group_->me, piece));
  group_->schedules.emplace(key, made);
  return made;
}

Handle HostCommunicator::collective(CollectiveCall call, Buffers buffers) {
  const auto held = lock();
  std::string operation(program::name_of(call.op));
  check_whole(operation);
  const int number = next_sequence_number();
  const CommAlgorithm algorithm =
      options_->table.choose(call.op, size(), Bytes{call.message_bytes});
  const bool swaps = call.op == CommOp::AllToAll && call.variant != 0;
  if (algorithm == CommAlgorithm::Library && size() > 1 && !swaps &&
      group_->channel->has_library()) {
    const std::int64_t blocks = call.op == CommOp::AllToAll ? size() : 1;
    const int root = call.op == CommOp::Broadcast ? call.variant : 0;
    return run(make_operation<LibraryOperation>(
                   group_, std::move(operation),
                   Channel::LibraryCall{call.op, buffers.input, buffers.output,
                                        call.message_bytes / blocks, root}),
               std::move(call.signature), number);
  }
  auto actions = schedule(
      call, algorithm == CommAlgorithm::Library ? program::fallback_algorithm(call.op) : algorithm,
      buffers.dtype);
  return run(make_operation<ScheduledOperation>(group_, std::move(operation), std::move(actions),
                                                buffers, tag_of(TagKind::Collective, number)),
             std::move(call.signature), number);
}

Handle HostCommunicator::run(HostOperationPtr operation, CallSignature signature,
                             int sequence_number) {
  if (options_->verify_calls && size() > 1)
    operation = verified_collective(std::move(operation), std::move(signature), sequence_number);
  return start(std::move(operation));
}

// ---------------------------------------------------------------- point to point

Handle HostCommunicator::send(ConstBuffer buffer, int peer, int tag) {
  const Transfer message{Transfer::Direction::Send,
                         {const_cast<void*>(buffer.data), buffer.count, buffer.dtype},
                         peer,
                         tag};
  return transfer("send", {&message, 1});
}

Handle HostCommunicator::recv(MutableBuffer buffer, int peer, int tag) {
  const Transfer message{Transfer::Direction::Recv, buffer, peer, tag};
  return transfer("recv", {&message, 1});
}

Handle HostCommunicator::send_recv(std::span<const Transfer> transfers) {
  return transfer("send_recv", transfers);
}

Handle HostCommunicator::transfer(std::string_view operation, std::span<const Transfer> transfers) {
  const auto held = lock();
  check_whole(operation);
  for (const Transfer& one : transfers) {
    check_buffer(operation, one.buffer);
    require(one.peer >= 0 && one.peer < size(), operation,
            [&] { return fmt::format("there is no peer {}", one.peer); });
    require(one.tag >= 0 && one.tag <= kMaxTag, operation,
            [&] { return fmt::format("tag {} is not in 0 to {}", one.tag, kMaxTag); });
  }
  HostOperationPtr made = make_operation<TransferOperation>(group_, std::string(operation),
                                                            transfers, options_->table.piece.value);
  if (options_->verify_calls) made = verified_transfer(std::move(made), transfers);
  return start(std::move(made));
}

Handle HostCommunicator::start(HostOperationPtr operation) {
  // Send at once what can be sent, unless there is a thread to which that is left.
  if (!group_->engine->in_background()) operation->poll();
  if (!operation->finished()) group_->engine->add(*operation);
  return Handle(std::move(operation));
}

void HostCommunicator::progress_in_background(bool on) {
  if (on && !group_->channel->serves_threads())
    throw ConfigError(
        "a progress thread: this MPI was not started with MPI_THREAD_SERIALIZED, which a second "
        "thread needs; run without --progress-thread");
  group_->engine->progress_in_background(on);
}

}  // namespace

std::unique_ptr<Communicator> make_host_world(const Session& session, HostWorldOptions options) {
  program::validate(options.table);
  auto group = std::make_shared<HostGroup>();
  group->channel = session.make_channel();
  group->me = {session.rank(), session.size()};
  group->name = "world";
  group->world_ranks.resize(static_cast<std::size_t>(session.size()));
  std::iota(group->world_ranks.begin(), group->world_ranks.end(), 0);
  group->engine = std::make_shared<ProgressEngine>(
      options.oversubscribed.value_or(session.layout().oversubscribed()), options.observer);
  return std::make_unique<HostCommunicator>(
      std::move(group), std::make_shared<const HostWorldOptions>(std::move(options)));
}

}  // namespace meshplan::runtime
