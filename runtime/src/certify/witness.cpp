#include "certify/witness.hpp"

#include <functional>
#include <utility>
#include <xxhash.h>

#include "core/index.hpp"

namespace meshplan::runtime {
namespace {

using program::CommOp;

std::uint64_t hash_of(const void* data, std::int64_t bytes) {
  return XXH3_64bits(bytes == 0 ? nullptr : data, static_cast<std::size_t>(bytes));
}

std::vector<std::byte> copy_of(const ConstBuffer& buffer) {
  const auto* data = static_cast<const std::byte*>(buffer.data);
  return {data, data + buffer.bytes()};
}

/// A block on its way: its place in the ledger, and the memory that holds it once it has arrived.
struct Arrival {
  int peer = 0;
  std::size_t index = 0;  // in received[peer]
  const void* data = nullptr;
  std::int64_t bytes = 0;
};

/// An operation of the inner communicator that reports its end, once. One that is dropped before is
/// not reported: nobody knows what its memory holds.
class WitnessedOperation final : public PendingOperation {
 public:
  WitnessedOperation(Handle inner, std::function<void()> on_done)
      : inner_(std::move(inner)), on_done_(std::move(on_done)) {}

  bool test() override {
    if (!inner_.test()) return false;
    report();
    return true;
  }
  void wait(std::optional<Seconds> limit) override {
    inner_.wait(limit);
    report();
  }

 private:
  void report() {
    if (on_done_) std::exchange(on_done_, nullptr)();
  }

  Handle inner_;
  std::function<void()> on_done_;
};

class WitnessedCommunicator final : public Communicator {
 public:
  WitnessedCommunicator(std::shared_ptr<GroupLedger> own, std::shared_ptr<Ledger> ledger,
                        std::shared_ptr<int> groups_made)
      : own_(std::move(own)), ledger_(std::move(ledger)), groups_made_(std::move(groups_made)) {}

  int rank() const override { return inner().rank(); }
  int size() const override { return inner().size(); }
  const std::string& name() const override { return inner().name(); }
  const std::vector<int>& world_ranks() const override { return inner().world_ranks(); }
  void queue_on(void* queue) override { inner().queue_on(queue); }
  void progress_in_background(bool on) override { inner().progress_in_background(on); }

  std::unique_ptr<Communicator> create_group(std::span<const int> ranks,
                                             std::string_view name) override;
  Handle all_reduce(ConstBuffer send, MutableBuffer recv, ReduceOp op) override;
  Handle reduce_scatter(ConstBuffer send, MutableBuffer recv, ReduceOp op) override;
  Handle all_gather(ConstBuffer send, MutableBuffer recv) override;
  Handle all_to_all(ConstBuffer send, MutableBuffer recv) override;
  Handle all_to_all_v(ConstBuffer send, std::span<const std::int64_t> send_counts,
                      MutableBuffer recv, std::span<const std::int64_t> recv_counts) override;
  Handle broadcast(MutableBuffer buffer, int root) override;
  Handle barrier() override { return inner().barrier(); }
  Handle send(ConstBuffer buffer, int peer, int tag) override;
  Handle recv(MutableBuffer buffer, int peer, int tag) override;
  Handle send_recv(std::span<const Transfer> list) override;

 private:
  Communicator& inner() const { return *own_->inner; }
  int next_call(CommOp operation) { return own_->next_call[operation]++; }

  std::size_t open_sum(CommOp operation, const ConstBuffer& given, ReduceOp op);
  Handle close_sum(Handle handle, std::size_t sum, const MutableBuffer& result);
  void sends(int peer, Block block, const void* data, std::int64_t bytes);
  /// @param data  where it will be
  Arrival receives(int peer, Block block, const void* data, std::int64_t bytes);
  std::optional<Arrival> transfers(const Transfer& transfer);
  Handle close(Handle handle, std::vector<Arrival> arrivals);

  std::shared_ptr<GroupLedger> own_;
  std::shared_ptr<Ledger> ledger_;
  std::shared_ptr<int> groups_made_;
};

std::unique_ptr<Communicator> WitnessedCommunicator::create_group(std::span<const int> ranks,
                                                                  std::string_view name) {
  const int number = ++*groups_made_;
  std::shared_ptr<Communicator> group = inner().create_group(ranks, name);
  if (group == nullptr) return nullptr;
  auto own = std::make_shared<GroupLedger>(number, std::string(name), std::move(group));
  ledger_->push_back(own);
  return std::make_unique<WitnessedCommunicator>(std::move(own), ledger_, groups_made_);
}

// ---------------------------------------------------------------- sums

std::size_t WitnessedCommunicator::open_sum(CommOp operation, const ConstBuffer& given,
                                            ReduceOp op) {
  own_->sums.push_back({.operation = operation,
                        .call = next_call(operation),
                        .reduce = op,
                        .dtype = given.dtype,
                        .given = copy_of(given)});
  return own_->sums.size() - 1;
}

Handle WitnessedCommunicator::close_sum(Handle handle, std::size_t sum,
                                        const MutableBuffer& result) {
  return Handle(
      PendingOperationPtr(new WitnessedOperation(std::move(handle), [own = own_, sum, result] {
        own->sums[sum].result = copy_of(result);
        own->sums[sum].seen = true;
      })));
}

Handle WitnessedCommunicator::all_reduce(ConstBuffer send, MutableBuffer recv, ReduceOp op) {
  const std::size_t sum = open_sum(CommOp::AllReduce, send, op);
  return close_sum(inner().all_reduce(send, recv, op), sum, recv);
}

Handle WitnessedCommunicator::reduce_scatter(ConstBuffer send, MutableBuffer recv, ReduceOp op) {
  const std::size_t sum = open_sum(CommOp::ReduceScatter, send, op);
  return close_sum(inner().reduce_scatter(send, recv, op), sum, recv);
}

// ---------------------------------------------------------------- blocks

void WitnessedCommunicator::sends(int peer, Block block, const void* data, std::int64_t bytes) {
  block.hash = hash_of(data, bytes);
  own_->sent[at(peer)].push_back(block);
}

Arrival WitnessedCommunicator::receives(int peer, Block block, const void* data,
                                        std::int64_t bytes) {
  std::vector<Block>& list = own_->received[at(peer)];
  block.seen = false;
  list.push_back(block);
  return {.peer = peer, .index = list.size() - 1, .data = data, .bytes = bytes};
}

Handle WitnessedCommunicator::close(Handle handle, std::vector<Arrival> arrivals) {
  return Handle(PendingOperationPtr(
      new WitnessedOperation(std::move(handle), [own = own_, arrivals = std::move(arrivals)] {
        for (const Arrival& arrival : arrivals) {
          Block& block = own->received[at(arrival.peer)][arrival.index];
          block.hash = hash_of(arrival.data, arrival.bytes);
          block.seen = true;
        }
      })));
}

Handle WitnessedCommunicator::all_gather(ConstBuffer send, MutableBuffer recv) {
  const Block block{.operation = CommOp::AllGather, .call = next_call(CommOp::AllGather)};
  std::vector<Arrival> arrivals;
  const std::int64_t bytes = send.bytes();
  const auto* to = static_cast<const std::byte*>(recv.data);
  for (int peer = 0; peer < size(); ++peer) {
    sends(peer, block, send.data, bytes);
    arrivals.push_back(receives(peer, block, to + peer * bytes, bytes));
  }
  return close(inner().all_gather(send, recv), std::move(arrivals));
}

Handle WitnessedCommunicator::all_to_all(ConstBuffer send, MutableBuffer recv) {
  const Block block{.operation = CommOp::AllToAll, .call = next_call(CommOp::AllToAll)};
  std::vector<Arrival> arrivals;
  const std::int64_t bytes = send.bytes() / size();
  const auto* from = static_cast<const std::byte*>(send.data);
  const auto* to = static_cast<const std::byte*>(recv.data);
  for (int peer = 0; peer < size(); ++peer) {
    sends(peer, block, from + peer * bytes, bytes);
    arrivals.push_back(receives(peer, block, to + peer * bytes, bytes));
  }
  return close(inner().all_to_all(send, recv), std::move(arrivals));
}

Handle WitnessedCommunicator::all_to_all_v(ConstBuffer send,
                                           std::span<const std::int64_t> send_counts,
                                           MutableBuffer recv,
                                           std::span<const std::int64_t> recv_counts) {
  const Block block{.operation = CommOp::AllToAllV, .call = next_call(CommOp::AllToAllV)};
  std::vector<Arrival> arrivals;
  const auto* from = static_cast<const std::byte*>(send.data);
  const auto* to = static_cast<const std::byte*>(recv.data);
  for (int peer = 0; peer < size(); ++peer) {
    const std::int64_t sent = send_counts[static_cast<std::size_t>(peer)] * size_of(send.dtype);
    const std::int64_t received = recv_counts[static_cast<std::size_t>(peer)] * size_of(recv.dtype);
    sends(peer, block, from, sent);
    arrivals.push_back(receives(peer, block, to, received));
    from += sent;
    to += received;
  }
  return close(inner().all_to_all_v(send, send_counts, recv, recv_counts), std::move(arrivals));
}

Handle WitnessedCommunicator::broadcast(MutableBuffer buffer, int root) {
  const Block block{.operation = CommOp::Broadcast, .call = next_call(CommOp::Broadcast)};
  if (rank() == root)
    for (int peer = 0; peer < size(); ++peer) sends(peer, block, buffer.data, buffer.bytes());
  const Arrival arrival = receives(root, block, buffer.data, buffer.bytes());
  return close(inner().broadcast(buffer, root), {arrival});
}

// ---------------------------------------------------------------- messages

std::optional<Arrival> WitnessedCommunicator::transfers(const Transfer& transfer) {
  const bool receiving = transfer.direction == Transfer::Direction::Recv;
  const Block block{.lane = transfer.tag,
                    .call = own_->next_message[{transfer.peer, transfer.tag, receiving}]++};
  const MutableBuffer& buffer = transfer.buffer;
  if (receiving) return receives(transfer.peer, block, buffer.data, buffer.bytes());
  sends(transfer.peer, block, buffer.data, buffer.bytes());
  return std::nullopt;
}

Handle WitnessedCommunicator::send(ConstBuffer buffer, int peer, int tag) {
  transfers({.direction = Transfer::Direction::Send,
             .buffer = {const_cast<void*>(buffer.data), buffer.count, buffer.dtype},
             .peer = peer,
             .tag = tag});
  return inner().send(buffer, peer, tag);
}

Handle WitnessedCommunicator::recv(MutableBuffer buffer, int peer, int tag) {
  const auto arrival = transfers(
      {.direction = Transfer::Direction::Recv, .buffer = buffer, .peer = peer, .tag = tag});
  return close(inner().recv(buffer, peer, tag), {*arrival});
}

Handle WitnessedCommunicator::send_recv(std::span<const Transfer> list) {
  std::vector<Arrival> arrivals;
  for (const Transfer& transfer : list)
    if (const auto arrival = transfers(transfer)) arrivals.push_back(*arrival);
  return close(inner().send_recv(list), std::move(arrivals));
}

}  // namespace

std::unique_ptr<Communicator> make_witnessed_world(Communicator& inner,
                                                   std::shared_ptr<Ledger> ledger) {
  // The world belongs to the caller.
  std::shared_ptr<Communicator> world(&inner, [](Communicator* /*world*/) {});
  auto own = std::make_shared<GroupLedger>(0, "world", std::move(world));
  ledger->push_back(own);
  return std::make_unique<WitnessedCommunicator>(std::move(own), std::move(ledger),
                                                 std::make_shared<int>(0));
}

}  // namespace meshplan::runtime
