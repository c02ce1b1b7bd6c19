#include "runtime/executor.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <numeric>

#include "core/error.hpp"
#include "program/offload.hpp"
#include "runtime/loss_scale.hpp"

namespace meshplan::runtime {

using program::Collective;
using program::CollectiveOp;
using program::ComputeOp;
using program::FlatCollectiveOp;
using program::Lane;
using program::Operation;
using program::OperationInstance;
using program::PeerOp;
using program::Region;
using program::Scalar;
using program::StepOp;
using program::StepWork;

/// An instance ready to run: its call, what it waits for, what to report.
struct Executor::Bound {
  std::function<void()> compute;
  std::function<Handle()> communicate;  // instead of compute
  Communicator* group = nullptr;        // that communicates
  void* queue = nullptr;                // of the device, where it has queues
  Handle handle;
  Lane lane = Lane::Compute;
  bool host_driven = false;  // a communication that the host waits for
  std::string status;
};

namespace {

/// A progress thread moves one communication while the next one of its lane waits for its turn.
IssueRules issue_rules(const program::Program& program, const Device& device) {
  IssueRules rules = device.rules();
  if (program.plan.progress_thread) rules.in_flight = 2;
  return rules;
}

}  // namespace

Executor::Executor(const program::Program& program, Device& device, Arena& arena, Groups& groups,
                   StatusBoard* status)
    : program_(program),
      device_(device),
      backend_(device.backend()),
      arena_(arena),
      groups_(groups),
      status_(status),
      shard_place_(program::shard_place(program.plan, groups.mesh(), groups.world().rank())),
      order_(issue_order(program, issue_rules(program, device))),
      finishing_(fmt::format("stage {}, end of the step", program.role.stage)),
      no_load_(static_cast<std::size_t>(program::expert_load_elements(program.plan))) {
  const RankPlace place{.tp_rank = groups.coordinates().tp, .coordinates = groups.coordinates()};
  binder_ = std::make_unique<OperatorBinder>(
      backend_, program, place,
      [this](const OperationInstance& instance, program::ValueId value) {
        return arena_.at(program_, program::address_of(program_, instance, value));
      },
      arena.scalar<float>(Scalar::GradientScale));
  bind();
}

Executor::~Executor() {
  if (scratch_ != nullptr) backend_.free(scratch_);
}

void Executor::bind() {
  bound_.reserve(program_.instances.size());
  intervals_.resize(program_.instances.size());
  for (const OperationInstance& instance : program_.instances) {
    const Operation& operation = program::operation_of(program_, instance);
    Bound bound;
    bound.lane = operation.lane;
    bound.status = status_of(instance);
    if (std::holds_alternative<ComputeOp>(operation.work))
      bound.compute = binder_->bind(instance);
    else if (const auto* step = std::get_if<StepOp>(&operation.work))
      bound.compute = bind_step_work(instance, *step);
    else
      bind_communication(instance, bound);
    bound_.push_back(std::move(bound));
  }
  scratch_bytes_ = std::max(scratch_bytes_, binder_->scratch_bytes());
  if (scratch_bytes_ > 0) scratch_ = backend_.allocate(scratch_bytes_);
  bind_regions();
}

void Executor::bind_regions() {
  for (std::size_t i = 0; i < order_.issues.size(); ++i)
    if (order_.issues[i].kind == Issue::Kind::EndRegion) region_ends_.push_back(i);
  for (std::size_t i = 0; i < region_ends_.size(); ++i) graphs_.push_back(device_.new_graph());
}

std::string Executor::status_of(const OperationInstance& instance) const {
  const Operation& operation = program::operation_of(program_, instance);
  std::string text = fmt::format("stage {}", program_.role.stage);
  if (instance.microbatch >= 0) text += fmt::format(", micro-batch {}", instance.microbatch);
  if (instance.layer >= 0) {
    const auto& layer = program_.layers[static_cast<std::size_t>(instance.layer)];
    text += layer.layer ? fmt::format(", layer {}", *layer.layer)
                        : ", " + program_.blocks[static_cast<std::size_t>(layer.block)].name;
  }
  return text + ", " + operation.name;
}

Communicator& Executor::communicator_of(const Operation& operation) const {
  if (std::holds_alternative<PeerOp>(operation.work)) return groups_.pipeline(operation.lane);
  if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work))
    return groups_.of(flat->collective.group);
  return groups_.of(std::get<CollectiveOp>(operation.work).group);
}

void Executor::bind_communication(const OperationInstance& instance, Bound& bound) {
  const Operation& operation = program::operation_of(program_, instance);
  bound.group = &communicator_of(operation);
  bound.queue = device_.queue(operation.lane);
  bound.host_driven = device_.rules().communications == program::CommunicationDriver::Host;
  bound.communicate = communication(instance, operation, *bound.group);
}

std::function<Handle()> Executor::communication(const OperationInstance& instance,
                                                const Operation& operation, Communicator& group) {
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
  std::byte* sent =
      arena_.at(program_, program::address_of(program_, instance, operation.inputs.at(0)));
  const ConstBuffer from{sent, count, work.dtype};
  std::byte* to =
      arena_.at(program_, program::address_of(program_, instance, operation.outputs.at(0)));
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

std::function<Handle()> Executor::flat_communication(const OperationInstance& instance,
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

/// The rows to and from every rank are read when the exchange starts.
std::function<Handle()> Executor::exchange_of_rows(const OperationInstance& instance,
                                                   const Operation& operation,
                                                   Communicator& group) {
  const auto& work = std::get<CollectiveOp>(operation.work);
  const auto address = [&](program::ValueId id) {
    return arena_.at(program_, program::address_of(program_, instance, id));
  };
  const auto ranks = static_cast<std::size_t>(group.size());
  return [this, &group, work, from = address(operation.inputs.at(0)),
          rows_at = address(operation.inputs.at(1)), to = address(operation.outputs.at(0)),
          rows = std::vector<std::int32_t>(2 * ranks), sent = std::vector<std::int64_t>(ranks),
          received = std::vector<std::int64_t>(ranks)]() mutable {
    backend_.copy_to_host(rows.data(), rows_at, std::ssize(rows) * size_of(DType::I32));
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

void Executor::load(const StepBatch& batch) {
  const program::BatchSizes sizes = program::batch_sizes(program_.plan);
  std::byte* next = arena_.region(Region::Batch);
  const auto upload = [&](const std::vector<std::int32_t>& array, std::int64_t elements) {
    require_invariant(std::ssize(array) == elements * program_.plan.num_microbatches(),
                      "a batch of another size than the plan's");
    if (array.empty()) return;
    const std::int64_t bytes = std::ssize(array) * size_of(DType::I32);
    device_.upload(next, array.data(), bytes, Lane::Host);
    next += bytes;
  };
  upload(batch.ids, sizes.ids);
  upload(batch.targets, sizes.ids);
  upload(batch.positions, sizes.positions);
  upload(batch.key_ranges, sizes.key_ranges);
  upload(batch.order, sizes.order);
  std::array<std::byte, program::kNumScalars * program::kScalarBytes> scalars{};
  const auto set = [&](Scalar which, auto value) {
    std::memcpy(scalars.data() + static_cast<std::int64_t>(which) * program::kScalarBytes, &value,
                sizeof value);
  };
  const float mean_scale = gradient_scale_of(loss_tokens());
  set(Scalar::GradientScale, mean_scale * static_cast<float>(settings_.loss_scale));
  set(Scalar::MeanScale, mean_scale);
  set(Scalar::LearningRate, static_cast<float>(settings_.learning_rate));
  set(Scalar::OptimizerStep, std::int64_t{settings_.optimizer_step});
  device_.upload(arena_.region(Region::Scalars), scalars.data(), std::ssize(scalars), Lane::Host);
  if (!no_load_.empty())
    device_.upload(arena_.region(Region::ExpertLoad), no_load_.data(),
                   std::ssize(no_load_) * size_of(DType::F32), Lane::Host);
}

double Executor::loss_tokens() const {
  const program::Workload& workload = program_.plan.workload;
  return batch_->loss_tokens > 0
             ? batch_->loss_tokens
             : static_cast<double>(workload.global_batch_size * workload.seq_len);
}

const float* Executor::expert_load(int row) const {
  if (no_load_.empty()) return nullptr;
  return reinterpret_cast<const float*>(arena_.region(Region::ExpertLoad)) +
         std::int64_t{row} * program_.plan.model.moe->num_experts;
}

/// Of the ranks that hold the same, is this the one whose share of a sum over all ranks counts?
bool Executor::counts_here(const StepOp& step) const {
  if (!step.first_replica_only) return true;
  if (step.bucket) {
    const program::Bucket& bucket = program_.buckets[static_cast<std::size_t>(*step.bucket)];
    if (bucket.shards > 1) return !bucket.replicas || groups_.of(*bucket.replicas).rank() == 0;
  }
  const program::Coordinates& place = groups_.coordinates();
  return step.expert ? place.edp == 0 : place.dp == 0 && place.cp == 0;
}

/// The work on what this rank owns of the range.
StepOp Executor::owned_part(StepOp step) const {
  if (!step.bucket) return step;
  const program::FlatRange owned =
      program::owned_range(program_.buckets[static_cast<std::size_t>(*step.bucket)], shard_place_);
  step.range.begin = std::max(step.range.begin, owned.begin);
  step.range.end = std::max(step.range.begin, std::min(step.range.end, owned.end));
  return step;
}

/// Where `range` of a region that is flat over parameters lies, if this rank holds it.
std::byte* Executor::flat_memory(Region region, const StepOp& step) const {
  if (program_.memory.regions[static_cast<std::size_t>(region)].stride_bytes == 0) return nullptr;
  program::FlatRange range = step.range;
  if (step.bucket) {
    const program::Bucket& bucket = program_.buckets[static_cast<std::size_t>(*step.bucket)];
    const std::int64_t begin =
        program::element_offset(program_.plan, region, bucket, range.begin, shard_place_);
    range = {begin, begin + range.size()};
  }
  return arena_.at(program_, program::flat_address(program_, region, range));
}

/// Adds what was reduced of a micro-batch to what the rank owns of earlier ones.
std::function<void()> Executor::bind_accumulation(const OperationInstance& instance,
                                                  const StepOp& step) {
  const program::FlatPlaces places = program::flat_places(
      program_, instance,
      {.region = Region::UnreducedBuckets, .range = step.range, .bucket = step.bucket},
      shard_place_);
  auto* sum = flat_memory(Region::Gradients, owned_part(step));
  const std::byte* value = arena_.at(program_, places.part);
  if (!instance.accumulate)
    return [this, sum, value, bytes = places.part.bytes] { backend_.copy(sum, value, bytes); };
  const kernels::Accumulate add{
      .count = places.part.bytes / size_of(DType::F32), .sum = sum, .value = value};
  return [this, add] { backend_.run(add); };
}

/// Offloaded optimizer state of what the rank owns of the range, to or from the device.
std::function<void()> Executor::bind_state_copy(const OperationInstance& instance,
                                                const StepOp& step) {
  struct Copy {
    std::byte* to;
    const std::byte* from;
  };
  const std::int64_t bytes = step.range.size() * size_of(DType::F32);
  if (bytes == 0) return [] {};
  const bool fetch = step.work == StepWork::FetchState;
  std::vector<Copy> copies;
  for (const Region region : program::offloaded_regions(program_.plan)) {
    std::byte* host = flat_memory(region, step);
    std::byte* slot = arena_.at(program_, program::staged_address(program_, instance, region));
    copies.push_back(fetch ? Copy{slot, host} : Copy{host, slot});
  }
  return [this, copies, bytes, lane = program::operation_of(program_, instance).lane] {
    for (const Copy& copy : copies) device_.copy(copy.to, copy.from, bytes, lane);
  };
}

std::function<void()> Executor::bind_step_work(const OperationInstance& instance,
                                               const StepOp& whole) {
  const StepOp step = owned_part(whole);
  const bool works_on_range =
      step.work == StepWork::SquaredNorm || step.work == StepWork::OptimizerUpdate;
  if (works_on_range && step.range.size() == 0) return [] {};
  const auto flat = [&](Region region) {
    return reinterpret_cast<float*>(flat_memory(region, step));
  };
  const bool fp32 = program_.plan.workload.precision == DType::F32;
  const auto state = [&](Region region) {
    const bool staged = program_.memory.regions[static_cast<std::size_t>(region)].on_host;
    if (!staged) return flat(region);
    return reinterpret_cast<float*>(
        arena_.at(program_, program::staged_address(program_, instance, region)));
  };
  switch (step.work) {
    case StepWork::LoadBatch:
      return [this] { load(*batch_); };
    case StepWork::MaskLoss: {
      const bool owner =
          program_.role.last_stage && groups_.coordinates().tp == 0 && counts_here(step);
      double* loss = arena_.scalar<double>(Scalar::LossSum);
      if (owner) return [] {};
      return [this, loss] { backend_.zero(loss, sizeof(double)); };
    }
    case StepWork::SquaredNorm:
      if (!counts_here(step) || groups_.coordinates().tp % step.tp_copies != 0) return [] {};
      break;
    case StepWork::AccumulateGradients:
      return bind_accumulation(instance, whole);
    case StepWork::ClearGradients: {
      const program::Address cleared =
          program::flat_places(
              program_, instance,
              {.region = Region::UnreducedBuckets, .range = whole.range, .bucket = whole.bucket},
              {})
              .all;
      return [this, gap = arena_.at(program_, cleared), bytes = cleared.bytes] {
        backend_.zero(gap, bytes);
      };
    }
    case StepWork::FetchState:
    case StepWork::StoreState:
      return bind_state_copy(instance, step);
    case StepWork::CompressGradients:
    case StepWork::SumCompressed:
    case StepWork::CompressSum:
    case StepWork::DecompressGradients:
    case StepWork::SettleErrors:
      return bind_compression(instance, whole);
    case StepWork::ClipCoefficient:
    case StepWork::OptimizerUpdate:
    case StepWork::BalanceExperts:
      break;
  }
  const FlatMemory memory{.master = state(fp32 ? Region::Weights : Region::MasterWeights),
                          .weights = fp32 ? nullptr : flat(Region::Weights),
                          .gradients = flat(Region::Gradients),
                          .moment1 = state(Region::Moment1),
                          .moment2 = state(Region::Moment2),
                          .squared_norm = arena_.scalar<double>(Scalar::SquaredNorm),
                          .clip_coefficient = arena_.scalar<float>(Scalar::ClipCoefficient),
                          .gradient_norm = arena_.scalar<float>(Scalar::GradientNorm),
                          .mean_scale = arena_.scalar<float>(Scalar::MeanScale),
                          .expert_load = expert_load(step.load_row),
                          .learning_rate = arena_.scalar<float>(Scalar::LearningRate),
                          .optimizer_step = arena_.scalar<std::int64_t>(Scalar::OptimizerStep)};
  return binder_->bind_step(step, memory);
}

void Executor::start(int index) {
  Bound& bound = bound_[static_cast<std::size_t>(index)];
  if (status_ != nullptr) status_->set(bound.status);
  if (bound.queue != nullptr) bound.group->queue_on(bound.queue);
  if (bound.host_driven) {
    if (tracing_) intervals_[static_cast<std::size_t>(index)].start_s = monotonic_seconds();
    bound.handle = bound.communicate();
    return;
  }
  if (tracing_) device_.stamp(2 * index, bound.lane);
  device_.push_range(bound.status.c_str());
  if (bound.communicate)
    bound.communicate();
  else
    bound.compute();
  device_.pop_range();
  if (tracing_) device_.stamp(2 * index + 1, bound.lane);
}

void Executor::await(int index) {
  Bound& bound = bound_[static_cast<std::size_t>(index)];
  if (status_ != nullptr) status_->set(bound.status);
  bound.handle.wait();
  bound.handle = Handle();
  if (tracing_) intervals_[static_cast<std::size_t>(index)].end_s = monotonic_seconds();
}

/// The first run is a warm-up: libraries choose their kernels and load them.
Executor::Capture Executor::capture_now() const {
  if (tracing_ || runs_ == 0) return Capture::No;
  return runs_ == 1 ? Capture::Now : Capture::Replay;
}

StepOutcome Executor::run(const StepBatch& batch, const StepSettings& settings) {
  batch_ = &batch;
  settings_ = settings;
  if (scratch_ != nullptr) backend_.set_scratch(scratch_, scratch_bytes_);
  const Capture capture = capture_now();
  for (std::size_t i = 0; i < order_.issues.size(); ++i) {
    const Issue& issue = order_.issues[i];
    switch (issue.kind) {
      case Issue::Kind::Run:
        start(issue.instance);
        break;
      case Issue::Kind::Await:
        await(issue.instance);
        break;
      case Issue::Kind::SetMark:
        device_.set_mark(issue.mark, issue.lane);
        break;
      case Issue::Kind::WaitMark:
        device_.wait_mark(issue.mark, issue.lane);
        break;
      case Issue::Kind::BeginRegion: {
        const auto region = static_cast<std::size_t>(issue.instance);
        if (capture == Capture::Now) device_.begin_capture();
        if (capture != Capture::Replay) break;
        device_.replay(graphs_[region]);
        i = region_ends_[region];
        break;
      }
      case Issue::Kind::EndRegion:
        if (capture == Capture::Now)
          device_.end_capture(graphs_[static_cast<std::size_t>(issue.instance)]);
        break;
    }
  }
  if (status_ != nullptr) status_->set(finishing_);
  device_.synchronize();
  if (tracing_)
    collect_intervals();
  else
    ++runs_;
  return outcome();
}

/// Communications that the host drives were timed by its own clock.
void Executor::collect_intervals() {
  for (std::size_t i = 0; i < bound_.size(); ++i) {
    if (bound_[i].host_driven) continue;
    intervals_[i] = {device_.stamp_seconds(static_cast<int>(2 * i)),
                     device_.stamp_seconds(static_cast<int>(2 * i + 1))};
  }
}

StepOutcome Executor::outcome() {
  StepOutcome outcome;
  double loss = 0;
  float norm = 0;
  backend_.copy_to_host(&loss, arena_.scalar<double>(Scalar::LossSum), sizeof loss);
  backend_.copy_to_host(&norm, arena_.scalar<float>(Scalar::GradientNorm), sizeof norm);
  const double tokens = loss_tokens();
  outcome.loss = loss / tokens;
  if (!no_load_.empty()) {
    std::array<double, 2> router_losses{};
    backend_.copy_to_host(router_losses.data(), arena_.scalar<double>(Scalar::BalanceLossSum),
                          sizeof router_losses);
    outcome.balance_loss = router_losses[0] / tokens;
    outcome.z_loss = router_losses[1] / tokens;
    outcome.expert_load.resize(no_load_.size());
    backend_.copy_to_host(outcome.expert_load.data(), expert_load(0),
                          std::ssize(no_load_) * size_of(DType::F32));
  }
  outcome.gradient_norm = norm;
  return outcome;
}

}  // namespace meshplan::runtime
