// The ledger over every operation and dtype of a communicator, without a twin.
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "certify/settle.hpp"
#include "certify/witness.hpp"
#include "comm/host_communicator.hpp"
#include "mpi_test_session.hpp"
#include "runtime/certify/faulty_communicator.hpp"

namespace meshplan::test {
namespace {

using runtime::Communicator;
using runtime::ConstBuffer;
using runtime::Handle;
using runtime::MutableBuffer;
using runtime::ReduceOp;
using runtime::Transfer;

constexpr std::int64_t kBlock = 24;

/// A few small numbers in any dtype but those of 8 bits.
struct Memory {
  DType dtype;
  std::vector<std::byte> bytes;

  Memory(DType dtype_, std::int64_t count, int seed)
      : dtype(dtype_), bytes(static_cast<std::size_t>(count * size_of(dtype_))) {
    for (std::int64_t i = 0; i < count; ++i) set(i, static_cast<int>((i * 7 + seed * 13) % 9) - 3);
  }
  void set(std::int64_t i, int value) {
    const auto put = [&](auto number) {
      std::memcpy(bytes.data() + i * size_of(dtype), &number, sizeof number);
    };
    if (dtype == DType::F64) return put(static_cast<double>(value));
    if (dtype == DType::F32) return put(static_cast<float>(value));
    if (dtype == DType::F16) return put(static_cast<_Float16>(value));
    if (dtype == DType::I64) return put(static_cast<std::int64_t>(value));
    if (dtype == DType::I32) return put(static_cast<std::int32_t>(value));
    if (dtype != DType::BF16) return put(static_cast<std::uint8_t>(value));
    const auto wide = static_cast<float>(value);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &wide, sizeof bits);
    put(static_cast<std::uint16_t>(bits >> 16));
  }
  MutableBuffer all() { return {bytes.data(), std::ssize(bytes) / size_of(dtype), dtype}; }
  MutableBuffer block(int number) {
    return {bytes.data() + number * kBlock * size_of(dtype), kBlock, dtype};
  }
};

void reduce(Communicator& group, DType dtype) {
  const int rank = group.rank(), size = group.size();
  const bool real = dtype != DType::I32 && dtype != DType::I64;
  for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Max, ReduceOp::Avg}) {
    if (op == ReduceOp::Avg && !real) continue;
    Memory whole(dtype, kBlock * size, rank), result(dtype, kBlock * size, 1);
    group.all_reduce(whole.all(), result.all(), op).wait();
    group.reduce_scatter(whole.all(), result.block(0), op).wait();
    group.reduce_scatter(whole.all(), whole.block(rank), op).wait();  // in place
    group.all_reduce(result.all(), result.all(), op).wait();
  }
}

void move(Communicator& group, DType dtype) {
  const int rank = group.rank(), size = group.size();
  Memory sent(dtype, kBlock * size, rank), received(dtype, kBlock * size, 0);
  group.all_gather(sent.block(0), received.all()).wait();
  group.all_gather(received.block(rank), received.all()).wait();  // in place
  group.all_to_all(sent.all(), received.all()).wait();
  group.all_to_all(received.all(), received.all()).wait();
  group.broadcast(received.all(), size - 1).wait();
  std::vector<std::int64_t> to, from;  // rank r gives rank s r + s elements
  for (int peer = 0; peer < size; ++peer) to.push_back(rank + peer);
  from = to;
  const std::int64_t total = std::accumulate(to.begin(), to.end(), std::int64_t{0});
  group
      .all_to_all_v({sent.bytes.data(), total, dtype}, to, {received.bytes.data(), total, dtype},
                    from)
      .wait();
  group.barrier().wait();
}

/// Two messages of each of two tags at once, then a shift, all still in flight together.
void pass(Communicator& group, DType dtype) {
  const int next = (group.rank() + 1) % group.size();
  const int before = (group.rank() + group.size() - 1) % group.size();
  Memory sent(dtype, kBlock * 5, group.rank()), received(dtype, kBlock * 5, 0);
  std::vector<Handle> handles;
  for (int i = 0; i < 4; ++i) {
    handles.push_back(group.recv(received.block(i), before, i % 2));
    handles.push_back(group.send(ConstBuffer(sent.block(i)), next, i % 2));
  }
  const std::vector<Transfer> shift = {
      {.direction = Transfer::Direction::Send, .buffer = sent.block(4), .peer = next, .tag = 5},
      {.direction = Transfer::Direction::Recv,
       .buffer = received.block(4),
       .peer = before,
       .tag = 5}};
  handles.push_back(group.send_recv(shift));
  for (std::size_t i = handles.size(); i-- > 0;)
    while (!handles[i].test()) {
    }
}

/// Everything on a world and on two groups of it; what the ranks have found.
std::vector<program::ExactCheck> exercise(Communicator& inner, DType dtype) {
  const auto ledger = std::make_shared<runtime::Ledger>();
  const auto world = runtime::make_witnessed_world(inner, ledger);
  std::vector<int> half, all(static_cast<std::size_t>(world->size()));
  std::iota(all.begin(), all.end(), 0);
  for (int rank = world->rank() % 2; rank < world->size(); rank += 2) half.push_back(rank);
  const auto alternate = world->create_group(half, "alternate");
  const auto same = world->create_group(all, "same");
  std::vector<program::ExactCheck> checks;
  for (const char* step : {"step 1", "step 2"}) {
    for (Communicator* group : {world.get(), alternate.get(), same.get()}) {
      if (size_of(dtype) > 1) reduce(*group, dtype);
      move(*group, dtype);
      pass(*group, dtype);
    }
    program::add_checks(checks, runtime::settle(*ledger, inner, step));
  }
  return runtime::all_checks(checks, inner);
}

std::int64_t differing(const std::vector<program::ExactCheck>& checks) {
  std::int64_t count = 0;
  for (const program::ExactCheck& check : checks) count += check.differ;
  return count;
}

}  // namespace

TEST_CASE("messages that arrive as they were sent make no difference", "[certify]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  for (const DType dtype :
       {DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::U8}) {
    for (const bool thread : {false, true}) {
      try {
        world->progress_in_background(thread);
      } catch (const std::exception&) {
        continue;  // this MPI has no second thread
      }
      const auto checks = exercise(*world, dtype);
      INFO(name_of(dtype) << ": " << program::to_json(checks));
      CHECK(differing(checks) == 0);
      if (world->rank() == 0) CHECK(checks.size() == (size_of(dtype) > 1 ? 3 * 7 : 3 * 5));
    }
  }
  world->progress_in_background(false);
}

TEST_CASE("the bit that changes on its way is named with its call and ranks", "[certify]") {
  const auto host = runtime::make_host_world(mpi_session(), {});
  if (host->size() == 1) return;
  FaultState state;
  const auto world = make_faulty_world(*host, state);
  for (const CommOp operation : {CommOp::AllReduce, CommOp::ReduceScatter, CommOp::AllGather,
                                 CommOp::AllToAll, CommOp::AllToAllV, CommOp::PointToPoint}) {
    const int faulty = host->size() - 1;
    std::string same = "same of ranks";
    for (int rank = 0; rank < host->size(); ++rank) same += " " + std::to_string(rank);
    state.restart(
        host->rank() == faulty
            ? std::optional(Fault{
                  .group = same, .operation = operation, .number = 0, .change = Fault::Change::Ulp})
            : std::nullopt);
    const auto checks = exercise(*world, DType::F32);
    if (host->rank() == faulty) CHECK(state.hits == 1);
    if (host->rank() != 0) continue;
    const std::string kind = std::string(program::name_of(operation)) + " of same";
    INFO(kind << ": " << program::to_json(checks));
    CHECK(differing(checks) >= 1);
    for (const program::ExactCheck& check : checks) {
      CHECK((check.differ > 0) == (check.name == kind));
      for (const program::BitDifference& difference : check.first) {
        CHECK_THAT(difference.name,
                   Catch::StartsWith("step 1, " + std::string(program::name_of(operation))) &&
                       Catch::Contains(same) && Catch::Contains("rank " + std::to_string(faulty)));
      }
    }
  }
}

TEST_CASE("an operation whose end nobody has seen is not judged", "[certify]") {
  const auto inner = runtime::make_host_world(mpi_session(), {});
  const auto ledger = std::make_shared<runtime::Ledger>();
  const auto world = runtime::make_witnessed_world(*inner, ledger);
  std::vector<int> all(static_cast<std::size_t>(world->size()));
  std::iota(all.begin(), all.end(), 0);
  const auto group = world->create_group(all, "group");
  Memory sent(DType::F32, kBlock, world->rank()), received(DType::F32, kBlock * world->size(), 0);
  group->all_gather(sent.all(), received.all()).wait();
  {
    const Handle dropped = group->all_gather(sent.all(), received.all());
    inner->barrier().wait();
  }
  const auto checks = runtime::settle(*ledger, *inner, "step 1");
  CHECK(differing(checks) == 0);
}

}  // namespace meshplan::test
