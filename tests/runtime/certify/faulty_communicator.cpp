#include "runtime/certify/faulty_communicator.hpp"

#include <cmath>
#include <functional>
#include <limits>

namespace meshplan::test {
namespace {

using runtime::Communicator;
using runtime::ConstBuffer;
using runtime::Handle;
using runtime::MutableBuffer;
using runtime::PendingOperation;
using runtime::PendingOperationPtr;
using runtime::ReduceOp;
using runtime::Transfer;

template <class T>
T changed(T value, Fault::Change change) {
  if (change == Fault::Change::Gross) return -2 * value - 1;
  const T other = value == 0 ? T(1e-4) : value * T(1 + 1e-4);
  // Of a subnormal number 1e-4 is nothing.
  if (change == Fault::Change::Relative && other != value) return other;
  return std::nextafter(value, std::numeric_limits<T>::max());
}

/// Changes one element that is not 0, if there is one.
template <class T>
void change_element(void* data, std::int64_t count, const Fault& fault) {
  auto* values = static_cast<T*>(data);
  const auto elements = static_cast<std::size_t>(count);
  std::size_t i = fault.seed % elements;
  for (std::size_t tried = 0; values[i] == 0 && tried < elements; ++tried) i = (i + 1) % elements;
  if constexpr (std::is_floating_point_v<T>)
    values[i] = changed(values[i], fault.change);
  else
    values[i] = static_cast<T>(values[i] ^ T{1});
}

void change(DType dtype, void* data, std::int64_t count, const Fault& fault) {
  if (dtype == DType::F64) return change_element<double>(data, count, fault);
  if (dtype == DType::F32) return change_element<float>(data, count, fault);
  change_element<std::uint8_t>(data, count * size_of(dtype), fault);
}

class FaultyOperation final : public PendingOperation {
 public:
  FaultyOperation(Handle inner, std::vector<std::byte> sent, std::function<void()> on_done)
      : sent_(std::move(sent)), inner_(std::move(inner)), on_done_(std::move(on_done)) {}
  bool test() override {
    if (!inner_.test()) return false;
    if (on_done_) std::exchange(on_done_, nullptr)();
    return true;
  }
  void wait(std::optional<Seconds> limit) override {
    inner_.wait(limit);
    if (on_done_) std::exchange(on_done_, nullptr)();
  }

 private:
  std::vector<std::byte> sent_;
  Handle inner_;
  std::function<void()> on_done_;
};

class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(std::shared_ptr<Communicator> inner, FaultState& state)
      : inner_(std::move(inner)), state_(state) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  const std::vector<int>& world_ranks() const override { return inner_->world_ranks(); }
  void progress_in_background(bool on) override { inner_->progress_in_background(on); }

  std::unique_ptr<Communicator> create_group(std::span<const int> ranks,
                                             std::string_view name) override {
    std::shared_ptr<Communicator> group = inner_->create_group(ranks, name);
    if (group == nullptr) return nullptr;
    return std::make_unique<FaultyCommunicator>(std::move(group), state_);
  }

  Handle all_reduce(ConstBuffer send, MutableBuffer recv, ReduceOp op) override {
    return run(CommOp::AllReduce, send, recv,
               [&](ConstBuffer from) { return inner_->all_reduce(from, recv, op); });
  }
  Handle reduce_scatter(ConstBuffer send, MutableBuffer recv, ReduceOp op) override {
    return run(CommOp::ReduceScatter, send, recv,
               [&](ConstBuffer from) { return inner_->reduce_scatter(from, recv, op); });
  }
  Handle all_gather(ConstBuffer send, MutableBuffer recv) override {
    return run(CommOp::AllGather, send, next_block(recv),
               [&](ConstBuffer from) { return inner_->all_gather(from, recv); });
  }
  Handle all_to_all(ConstBuffer send, MutableBuffer recv) override {
    return run(CommOp::AllToAll, send, next_block(recv),
               [&](ConstBuffer from) { return inner_->all_to_all(from, recv); });
  }
  Handle all_to_all_v(ConstBuffer send, std::span<const std::int64_t> send_counts,
                      MutableBuffer recv, std::span<const std::int64_t> recv_counts) override {
    return run(CommOp::AllToAllV, send, recv, [&](ConstBuffer from) {
      return inner_->all_to_all_v(from, send_counts, recv, recv_counts);
    });
  }
  Handle broadcast(MutableBuffer buffer, int root) override {
    const MutableBuffer nothing{nullptr, 0, buffer.dtype};
    const MutableBuffer received = rank() == root ? nothing : buffer;
    return run(CommOp::Broadcast, nothing, received,
               [&](ConstBuffer /*from*/) { return inner_->broadcast(buffer, root); });
  }
  Handle barrier() override { return inner_->barrier(); }
  Handle send(ConstBuffer buffer, int peer, int tag) override {
    const MutableBuffer nothing{nullptr, 0, buffer.dtype};
    return run(CommOp::PointToPoint, buffer, nothing,
               [&](ConstBuffer from) { return inner_->send(from, peer, tag); });
  }
  Handle recv(MutableBuffer buffer, int peer, int tag) override {
    return run(CommOp::PointToPoint, {nullptr, 0, buffer.dtype}, buffer,
               [&](ConstBuffer /*from*/) { return inner_->recv(buffer, peer, tag); });
  }
  /// One message each way, as a ring passes them.
  Handle send_recv(std::span<const Transfer> list) override {
    std::vector<Transfer> transfers(list.begin(), list.end());
    Transfer* sent = nullptr;
    ConstBuffer from;
    MutableBuffer to;
    for (Transfer& transfer : transfers)
      if (transfer.direction == Transfer::Direction::Recv) {
        to = transfer.buffer;
      } else {
        sent = &transfer;
        from = transfer.buffer;
      }
    return run(CommOp::PointToPoint, from, to, [&](ConstBuffer altered) {
      if (sent != nullptr) sent->buffer.data = const_cast<void*>(altered.data);
      return inner_->send_recv(transfers);
    });
  }

 private:
  /// The next rank's of as many blocks as there are ranks.
  MutableBuffer next_block(const MutableBuffer& recv) const {
    const std::int64_t count = recv.count / size();
    auto* data = static_cast<std::byte*>(recv.data);
    return {data + (rank() + 1) % size() * count * size_of(recv.dtype), count, recv.dtype};
  }

  /// @param target  of what arrives, that which other ranks had a part in
  template <class Call>
  Handle run(CommOp operation, ConstBuffer send, MutableBuffer target, Call call) {
    const int number = state_.next[{name(), operation}]++;
    if (size() > 1)
      state_.calls.push_back({.group = name(),
                              .size = size(),
                              .operation = operation,
                              .number = number,
                              .dtype = send.dtype,
                              .sent = send.count,
                              .received = target.count});
    const std::optional<Fault>& fault = state_.fault;
    if (!fault || fault->group != name() || fault->operation != operation ||
        fault->number != number)
      return call(send);
    ++state_.hits;
    if (fault->where == Fault::Where::Received)
      return Handle(
          PendingOperationPtr(new FaultyOperation(call(send), {}, [target, made = *fault] {
            change(target.dtype, target.data, target.count, made);
          })));
    const auto* given = static_cast<const std::byte*>(send.data);
    std::vector<std::byte> sent(given, given + send.bytes());
    change(send.dtype, sent.data(), send.count, *fault);
    Handle handle = call({sent.data(), send.count, send.dtype});
    return Handle(
        PendingOperationPtr(new FaultyOperation(std::move(handle), std::move(sent), nullptr)));
  }

  std::shared_ptr<Communicator> inner_;
  FaultState& state_;
};

}  // namespace

std::unique_ptr<runtime::Communicator> make_faulty_world(runtime::Communicator& inner,
                                                         FaultState& state) {
  std::shared_ptr<Communicator> world(&inner, [](Communicator* /*world*/) {});
  return std::make_unique<FaultyCommunicator>(std::move(world), state);
}

}  // namespace meshplan::test
