#include "comm/call_verification.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/dtype.hpp"
#include "core/index.hpp"

namespace meshplan::runtime {
namespace {

std::string_view name_of_reduction(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return "sum";
    case ReduceOp::Prod:
      return "prod";
    case ReduceOp::Min:
      return "min";
    case ReduceOp::Max:
      return "max";
    case ReduceOp::Avg:
      return "avg";
  }
  return "?";
}

std::int64_t field_of(std::span<const std::int64_t> values, int index) {
  return values[at(index)];
}

/// One message each way with one rank.
struct Exchange {
  int peer = 0;
  int send_tag = 0;
  int recv_tag = 0;
  std::vector<std::int64_t> mine;
  std::vector<std::int64_t> theirs;
};

std::int64_t bytes_of(const std::vector<std::int64_t>& values) {
  return static_cast<std::int64_t>(values.size() * sizeof(std::int64_t));
}

}  // namespace

std::string CallSignature::describe() const {
  const auto op = static_cast<program::CommOp>(field_of(fields, Operation));
  std::string text(program::name_of(op));
  if (op == program::CommOp::Barrier) return text;
  text += fmt::format(", {} x {}", name_of(static_cast<DType>(field_of(fields, Type))),
                      field_of(fields, Count));
  if (op == program::CommOp::AllReduce || op == program::CommOp::ReduceScatter)
    text +=
        fmt::format(", {}", name_of_reduction(static_cast<ReduceOp>(field_of(fields, Reduction))));
  if (op == program::CommOp::Broadcast) text += fmt::format(", root {}", field_of(fields, Root));
  if (op == program::CommOp::AllToAllV)
    text += fmt::format(", sends {}, receives {}", fmt::join(send_counts, " "),
                        fmt::join(recv_counts, " "));
  return text;
}

/// Runs the exchanges, lets `check` judge them, then runs the operation. Operations of a group pass
/// this point in the order of their calls, so that their messages keep that order too.
class VerifiedOperation : public HostOperation {
 public:
  VerifiedOperation(std::shared_ptr<HostGroup> group, HostOperationPtr operation,
                    std::vector<Exchange> exchanges)
      : HostOperation(std::move(group), operation->name_),
        operation_(std::move(operation)),
        exchanges_(std::move(exchanges)),
        requests_(static_cast<int>(2 * exchanges_.size()), memory()) {
    mutable_group().unverified.push_back(this);
  }
  ~VerifiedOperation() override {
    // The inner operation was never handed to the engine, and never started if this one failed.
    operation_->finished_ = true;
  }
  std::optional<int> peer() const override { return operation_->peer(); }

 protected:
  virtual void check(const std::vector<Exchange>& exchanges) const = 0;

 private:
  Progress advance() override {
    if (verified_) return operation_->advance();
    bool moved = !started_;
    if (!started_) start();
    for (; next_request_ < 2 * static_cast<int>(exchanges_.size()); ++next_request_) {
      if (!requests_.test(next_request_, group(), name()))
        return moved ? Progress::Some : Progress::None;
      moved = true;
    }
    auto& unverified = mutable_group().unverified;
    if (unverified.front() != this) return moved ? Progress::Some : Progress::None;
    unverified.erase(unverified.begin());
    check(exchanges_);
    verified_ = true;
    operation_->advance();
    return Progress::Some;
  }

  void start() {
    int request = 0;
    for (Exchange& exchange : exchanges_) {
      exchange.theirs.resize(exchange.mine.size());
      requests_.start_recv(request++, exchange.theirs.data(), bytes_of(exchange.theirs),
                           {group(), name(), exchange.peer, exchange.recv_tag});
      requests_.start_send(request++, exchange.mine.data(), bytes_of(exchange.mine),
                           {group(), name(), exchange.peer, exchange.send_tag});
    }
    started_ = true;
  }

  HostOperationPtr operation_;
  std::vector<Exchange> exchanges_;
  RequestSet requests_;
  int next_request_ = 0;
  bool started_ = false;
  bool verified_ = false;
};

namespace {

class VerifiedCollective final : public VerifiedOperation {
 public:
  VerifiedCollective(std::shared_ptr<HostGroup> group, HostOperationPtr operation,
                     CallSignature mine, std::vector<Exchange> exchanges)
      : VerifiedOperation(std::move(group), std::move(operation), std::move(exchanges)),
        mine_(std::move(mine)) {}

 private:
  void check(const std::vector<Exchange>& exchanges) const override {
    const auto size = static_cast<std::size_t>(group().me.size);
    std::vector<CallSignature> calls(size);
    calls[at(group().me.rank)] = mine_;
    for (const Exchange& exchange : exchanges) calls[at(exchange.peer)] = unpack(exchange.theirs);
    const bool agree = std::ranges::all_of(
        calls, [&](const CallSignature& call) { return call.fields == calls[0].fields; });
    if (agree && counts_match(calls)) return;
    std::string text = "the ranks passed different calls:";
    for (std::size_t rank = 0; rank < size; ++rank)
      text += fmt::format("\n  rank {}: {}", rank, calls[rank].describe());
    throw CommMismatch(name(), group().name, std::nullopt, text);
  }

  CallSignature unpack(const std::vector<std::int64_t>& message) const {
    CallSignature call;
    const auto fields_end = message.begin() + CallSignature::kNumFields;
    const auto sends_end = fields_end + group().me.size;
    std::copy(message.begin(), fields_end, call.fields.begin());
    if (field_of(call.fields, CallSignature::Operation) ==
        static_cast<std::int64_t>(program::CommOp::AllToAllV)) {
      call.send_counts.assign(fields_end, sends_end);
      call.recv_counts.assign(sends_end, message.end());
    }
    return call;
  }

  static bool counts_match(const std::vector<CallSignature>& calls) {
    for (std::size_t from = 0; from < calls.size(); ++from)
      for (std::size_t to = 0; to < calls.size(); ++to)
        if (!calls[from].send_counts.empty() &&
            calls[from].send_counts[to] != calls[to].recv_counts[from])
          return false;
    return true;
  }

  CallSignature mine_;
};

class VerifiedTransfer final : public VerifiedOperation {
 public:
  using VerifiedOperation::VerifiedOperation;

 private:
  void check(const std::vector<Exchange>& exchanges) const override {
    for (const Exchange& exchange : exchanges) {
      if (exchange.mine == exchange.theirs) continue;
      const auto describe = [](const std::vector<std::int64_t>& call) {
        return fmt::format("{} x {}", name_of(static_cast<DType>(call[0])), call[1]);
      };
      throw CommMismatch(name(), group().name, exchange.peer,
                         fmt::format("sender and receiver differ: rank {} passed {}, rank {} "
                                     "passed {}",
                                     group().me.rank, describe(exchange.mine), exchange.peer,
                                     describe(exchange.theirs)));
    }
  }
};

}  // namespace

HostOperationPtr verified_collective(HostOperationPtr operation, CallSignature mine,
                                     int sequence_number) {
  const Member me = operation->group().me;
  std::vector<std::int64_t> message(mine.fields.begin(), mine.fields.end());
  for (const auto* counts : {&mine.send_counts, &mine.recv_counts}) {
    message.insert(message.end(), counts->begin(), counts->end());
    if (counts->empty()) message.insert(message.end(), static_cast<std::size_t>(me.size), 0);
  }
  std::vector<Exchange> exchanges;
  const int tag = tag_of(TagKind::CollectiveCheck, sequence_number);
  for (int peer = 0; peer < me.size; ++peer)
    if (peer != me.rank) exchanges.push_back({peer, tag, tag, message, {}});
  const auto group = operation->shared_group();
  return make_operation<VerifiedCollective>(group, std::move(operation), std::move(mine),
                                            std::move(exchanges));
}

HostOperationPtr verified_transfer(HostOperationPtr operation,
                                   std::span<const Transfer> transfers) {
  std::vector<Exchange> exchanges;
  for (const Transfer& transfer : transfers) {
    int send_tag = tag_of(TagKind::SenderCheck, transfer.tag);
    int recv_tag = tag_of(TagKind::ReceiverCheck, transfer.tag);
    if (transfer.direction == Transfer::Direction::Recv) std::swap(send_tag, recv_tag);
    exchanges.push_back({transfer.peer,
                         send_tag,
                         recv_tag,
                         {static_cast<std::int64_t>(transfer.buffer.dtype), transfer.buffer.count},
                         {}});
  }
  const auto group = operation->shared_group();
  return make_operation<VerifiedTransfer>(group, std::move(operation), std::move(exchanges));
}

}  // namespace meshplan::runtime
