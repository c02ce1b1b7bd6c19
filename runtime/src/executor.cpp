#include "runtime/executor.hpp"

#include <array>
#include <chrono>
#include <cstring>
#include <fmt/format.h>

#include "core/error.hpp"

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
  Handle handle;
  bool pending = false;
  Lane lane = Lane::Compute;
  const std::vector<int>* waits = nullptr;
  std::string status;
};

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Executor::Executor(const program::Program& program, kernels::Backend& backend, Arena& arena,
                   Groups& groups, StatusBoard* status)
    : program_(program), backend_(backend), arena_(arena), groups_(groups), status_(status) {
  const RankPlace place{.tp_rank = groups.coordinates().tp, .coordinates = groups.coordinates()};
  binder_ = std::make_unique<OperatorBinder>(
      backend, program, place,
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
    bound.waits = &instance.waits;
    bound.status = status_of(instance);
    if (std::holds_alternative<ComputeOp>(operation.work))
      bound.compute = binder_->bind(instance);
    else if (const auto* step = std::get_if<StepOp>(&operation.work))
      bound.compute = bind_step_work(*step);
    else
      bound.communicate = bind_communication(instance);
    bound_.push_back(std::move(bound));
  }
  scratch_bytes_ = std::max(scratch_bytes_, binder_->scratch_bytes());
  if (scratch_bytes_ > 0) scratch_ = backend_.allocate(scratch_bytes_);
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

std::function<Handle()> Executor::bind_communication(const OperationInstance& instance) {
  const Operation& operation = program::operation_of(program_, instance);
  if (const auto* peer = std::get_if<PeerOp>(&operation.work)) {
    std::byte* data = arena_.at(program_, program::peer_address(program_, instance));
    const std::int64_t count = models::evaluate(peer->elements, program_.sizes);
    Communicator& pipeline = groups_.pipeline(operation.lane);
    const int other = program_.role.stage + peer->stage_offset;
    const MutableBuffer buffer{data, count, peer->dtype};
    if (peer->send) return [&pipeline, buffer, other] { return pipeline.send(buffer, other); };
    return [&pipeline, buffer, other] { return pipeline.recv(buffer, other); };
  }
  if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work)) {
    Communicator& group = groups_.of(flat->collective.group);
    const MutableBuffer buffer{
        arena_.at(program_, program::flat_address(program_, flat->region, flat->range)),
        flat->range.size(), flat->collective.dtype};
    const program::ReduceOp reduce = flat->collective.reduce;
    return [&group, buffer, reduce] { return group.all_reduce(buffer, buffer, reduce); };
  }
  const auto& work = std::get<CollectiveOp>(operation.work);
  Communicator& group = groups_.of(work.group);
  const std::int64_t count = models::evaluate(work.elements, program_.sizes);
  const ConstBuffer from{
      arena_.at(program_, program::address_of(program_, instance, operation.inputs.at(0))), count,
      work.dtype};
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
    default:
      throw InvariantError(operation.name + ": collective without an implementation");
  }
}

void Executor::load(const StepBatch& batch) {
  const std::int64_t tokens = program_.plan.num_microbatches() * program_.sizes.tokens;
  require_invariant(std::ssize(batch.ids) == tokens && std::ssize(batch.targets) == tokens,
                    "a batch of another size than the plan's");
  const std::int64_t bytes = tokens * size_of(DType::I32);
  std::byte* region = arena_.region(Region::Batch);
  backend_.copy_to_device(region, batch.ids.data(), bytes);
  backend_.copy_to_device(region + bytes, batch.targets.data(), bytes);
  const program::Workload& workload = program_.plan.workload;
  std::array<std::byte, program::kNumScalars * program::kScalarBytes> scalars{};
  const auto set = [&](Scalar which, auto value) {
    std::memcpy(scalars.data() + static_cast<std::int64_t>(which) * program::kScalarBytes, &value,
                sizeof value);
  };
  set(Scalar::GradientScale,
      1.0F / static_cast<float>(workload.global_batch_size * workload.seq_len));
  set(Scalar::LearningRate, static_cast<float>(settings_.learning_rate));
  set(Scalar::OptimizerStep, std::int64_t{settings_.optimizer_step});
  backend_.copy_to_device(arena_.region(Region::Scalars), scalars.data(), scalars.size());
}

std::function<void()> Executor::bind_step_work(const StepOp& step) {
  const auto flat = [&](Region region) {
    return reinterpret_cast<float*>(
        arena_.at(program_, program::flat_address(program_, region, step.range)));
  };
  const bool fp32 = program_.plan.workload.precision == DType::F32;
  switch (step.work) {
    case StepWork::LoadBatch:
      return [this] { load(*batch_); };
    case StepWork::MaskLoss: {
      const bool owner = program_.role.last_stage && groups_.coordinates().tp == 0;
      double* loss = arena_.scalar<double>(Scalar::LossSum);
      if (owner) return [] {};
      return [this, loss] { backend_.zero(loss, sizeof(double)); };
    }
    case StepWork::SquaredNorm:
      if (step.first_tp_rank_only && groups_.coordinates().tp != 0) return [] {};
      break;
    case StepWork::ClipCoefficient:
    case StepWork::OptimizerUpdate:
      break;
  }
  const FlatMemory memory{
      .master = flat(fp32 ? Region::Weights : Region::MasterWeights),
      .weights =
          fp32 ? nullptr
               : arena_.at(program_, program::flat_address(program_, Region::Weights, step.range)),
      .gradients = flat(Region::Gradients),
      .moment1 = flat(Region::Moment1),
      .moment2 = flat(Region::Moment2),
      .squared_norm = arena_.scalar<double>(Scalar::SquaredNorm),
      .clip_coefficient = arena_.scalar<float>(Scalar::ClipCoefficient),
      .gradient_norm = arena_.scalar<float>(Scalar::GradientNorm),
      .learning_rate = arena_.scalar<float>(Scalar::LearningRate),
      .optimizer_step = arena_.scalar<std::int64_t>(Scalar::OptimizerStep)};
  return binder_->bind_step(step, memory);
}

void Executor::wait_for(std::size_t index) {
  Bound& bound = bound_[index];
  if (!bound.pending) return;
  if (status_ != nullptr) status_->set(bound.status);
  bound.handle.wait();
  bound.handle = Handle();
  bound.pending = false;
  if (tracing_) intervals_[index].end_s = monotonic_seconds();
}

StepOutcome Executor::run(const StepBatch& batch, const StepSettings& settings) {
  batch_ = &batch;
  settings_ = settings;
  if (scratch_ != nullptr) backend_.set_scratch(scratch_, scratch_bytes_);
  std::array<std::optional<std::size_t>, program::kNumLanes> last_of_lane;
  for (std::size_t i = 0; i < bound_.size(); ++i) {
    Bound& bound = bound_[i];
    for (const int earlier : *bound.waits) wait_for(static_cast<std::size_t>(earlier));
    auto& previous = last_of_lane[static_cast<std::size_t>(bound.lane)];
    if (bound.communicate && previous) wait_for(*previous);  // a lane runs in order
    previous = i;
    if (tracing_) intervals_[i].start_s = monotonic_seconds();
    if (status_ != nullptr) status_->set(bound.status);
    if (bound.communicate) {
      bound.handle = bound.communicate();
      bound.pending = true;
    } else {
      bound.compute();
      if (tracing_) {
        backend_.synchronize();
        intervals_[i].end_s = monotonic_seconds();
      }
    }
  }
  for (const auto& last : last_of_lane)
    if (last) wait_for(*last);
  backend_.synchronize();
  StepOutcome outcome;
  double loss = 0;
  float norm = 0;
  backend_.copy_to_host(&loss, arena_.scalar<double>(Scalar::LossSum), sizeof loss);
  backend_.copy_to_host(&norm, arena_.scalar<float>(Scalar::GradientNorm), sizeof norm);
  const program::Workload& workload = program_.plan.workload;
  outcome.loss = loss / static_cast<double>(workload.global_batch_size * workload.seq_len);
  outcome.gradient_norm = norm;
  return outcome;
}

}  // namespace meshplan::runtime
