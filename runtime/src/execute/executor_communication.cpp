// Executor: collectives and messages, bound to their group and buffers.
#include <numeric>

#include "core/error.hpp"
#include "execute/executor_body.hpp"

namespace meshplan::runtime {

using program::Collective;
using program::CollectiveOp;
using program::FlatCollectiveOp;
using program::Operation;
using program::OperationInstance;
using program::PeerOp;

std::function<Handle()> Executor::Body::communication(const OperationInstance& instance,
                                                      const Operation& operation,
                                                      Communicator& group) {
  if (const auto* peer = std::get_if<PeerOp>(&operation.work)) {
    std::byte* data = arena_.at(program_, program::peer_address(program_, instance));
    const std::int64_t count = models::evaluate(peer->elements, program_.sizes);
    const int other = program_.role.stage + peer->stage_offset;
    const MutableBuffer buffer{data, count, peer->dtype};
    if (peer->send) return [&group, buffer, other] { return group.send(buffer, other); };
    return [&group, buffer, other] { return group.recv(buffer, other); };
  }
  if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work))
    return flat_communication(instance, *flat, group);
  const auto& work = std::get<CollectiveOp>(operation.work);
  const std::int64_t count = models::evaluate(work.elements, program_.sizes);
  std::byte* sent = memory_of(instance, operation.inputs.at(0));
  const ConstBuffer from{sent, count, work.dtype};
  std::byte* to = memory_of(instance, operation.outputs.at(0));
  const program::ReduceOp reduce = work.reduce;
  switch (work.collective) {
    case Collective::AllReduce:
      return [&group, from, to, reduce] {
        return group.all_reduce(from, {to, from.count, from.dtype}, reduce);
      };
    case Collective::ReduceScatter:
      return [&group, from, to, reduce] {
        return group.reduce_scatter(from, {to, from.count / group.size(), from.dtype}, reduce);
      };
    case Collective::AllGather:
      return [&group, from, to] {
        return group.all_gather(from, {to, from.count * group.size(), from.dtype});
      };
    case Collective::AllToAll:
      return [&group, from, to] { return group.all_to_all(from, {to, from.count, from.dtype}); };
    case Collective::Shift: {
      const int ranks = group.size();
      const std::array transfers = {Transfer{.direction = Transfer::Direction::Send,
                                             .buffer = {sent, count, work.dtype},
                                             .peer = (group.rank() + 1) % ranks},
                                    Transfer{.direction = Transfer::Direction::Recv,
                                             .buffer = {to, count, work.dtype},
                                             .peer = (group.rank() + ranks - 1) % ranks}};
      return [&group, transfers] { return group.send_recv(transfers); };
    }
    case Collective::AllToAllV:
      return exchange_of_rows(instance, operation, group);
    default:
      throw InvariantError(operation.name + ": collective without an implementation");
  }
}

std::function<Handle()> Executor::Body::flat_communication(const OperationInstance& instance,
                                                           const FlatCollectiveOp& flat,
                                                           Communicator& group) {
  const CollectiveOp& work = flat.collective;
  const program::FlatPlaces places = program::flat_places(program_, instance, flat, shard_place_);
  const std::int64_t element = program::element_bytes(program_, flat.region);
  const auto buffer = [&](const program::Address& address) {
    return MutableBuffer{arena_.at(program_, address), address.bytes / element, work.dtype};
  };
  const MutableBuffer all = buffer(places.all), part = buffer(places.part);
  switch (work.collective) {
    case Collective::AllReduce: {
      const MutableBuffer summed = flat.owned ? part : all;
      return [&group, summed, reduce = work.reduce] {
        return group.all_reduce(summed, summed, reduce);
      };
    }
    case Collective::ReduceScatter:
      return [&group, all, part, reduce = work.reduce] {
        return group.reduce_scatter(all, part, reduce);
      };
    case Collective::AllGather:
      return [&group, all, part] { return group.all_gather(part, all); };
    case Collective::AllToAll:
      return [&group, all, part] { return group.all_to_all(all, part); };
    default:
      throw InvariantError("flat ranges are reduced, scattered, gathered and exchanged");
  }
}

/// The rows to and from every rank are known since their sizes were exchanged.
std::function<Handle()> Executor::Body::exchange_of_rows(const OperationInstance& instance,
                                                         const Operation& operation,
                                                         Communicator& group) {
  const auto& work = std::get<CollectiveOp>(operation.work);
  const auto ranks = static_cast<std::size_t>(group.size());
  return [&group, work, from = memory_of(instance, operation.inputs.at(0)),
          to = memory_of(instance, operation.outputs.at(0)), binder = binder_.get(), at = &instance,
          sent = std::vector<std::int64_t>(ranks),
          received = std::vector<std::int64_t>(ranks)]() mutable {
    const std::vector<std::int32_t>& rows = binder->exchanged_rows(*at, work.group);
    require_invariant(rows.size() == 2 * sent.size(), "rows travel after their number");
    for (std::size_t rank = 0; rank < sent.size(); ++rank) {
      sent[rank] = rows[rank] * work.row_elements;
      received[rank] = rows[sent.size() + rank] * work.row_elements;
    }
    if (work.reverse) std::swap(sent, received);
    const auto total = [](const std::vector<std::int64_t>& counts) {
      return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    };
    return group.all_to_all_v({from, total(sent), work.dtype}, sent,
                              {to, total(received), work.dtype}, received);
  };
}

}  // namespace meshplan::runtime
