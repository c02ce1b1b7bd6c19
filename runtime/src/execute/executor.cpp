#include "execute/executor.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>

#include "bind/gradient_scale.hpp"
#include "core/error.hpp"
#include "core/index.hpp"
#include "execute/executor_body.hpp"
#include "execute/tokens_ahead.hpp"
#include "kernels/training/cross_entropy.hpp"
#include "program/context/document_context.hpp"

namespace meshplan::runtime {

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

struct Executor::Body::Calls {
  std::function<void()> compute;
  std::function<Handle()> communicate;  // instead of compute
};

/// An instance ready to run: its call, what it waits for, what to report.
struct Executor::Body::Bound {
  Calls planned;                  // on the memory that the program plans
  Calls moved;                    // on the rows beyond it, of the last step that had such
  Communicator* group = nullptr;  // that communicates
  void* queue = nullptr;          // of the device, where it has queues
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

/// Null where a rank's experts cannot get more rows than the plan has buffers for.
std::unique_ptr<ExpertRoom> make_expert_room(const program::Program& program, Device& device,
                                             const IssueOrder& order) {
  if (program.sizes.routed_tokens >= program::most_routed_rows(program.plan)) return nullptr;
  return std::make_unique<ExpertRoom>(program, device, order);
}

}  // namespace

Executor::Body::Body(const program::Program& program, Device& device, Arena& arena, Groups& groups,
                     StatusBoard* status)
    : program_(program),
      device_(device),
      backend_(device.backend()),
      arena_(arena),
      groups_(groups),
      status_(status),
      shard_place_(program::shard_place(program.plan, groups.mesh(), groups.world().rank())),
      order_(issue_order(program, issue_rules(program, device))),
      room_(make_expert_room(program, device, order_)),
      finishing_(fmt::format("stage {}, end of the step", program.role.stage)),
      no_load_(static_cast<std::size_t>(program::expert_load_elements(program.plan))) {
  const RankPlace place{.tp_rank = groups.coordinates().tp, .coordinates = groups.coordinates()};
  binder_ = std::make_unique<OperatorBinder>(
      backend_, program, place,
      [this](const OperationInstance& instance, program::ValueId value) {
        return memory_of(instance, value);
      },
      arena.scalar<float>(Scalar::GradientScale),
      [this](const OperationInstance& instance, std::int64_t rows) {
        if (room_ != nullptr) room_->set_rows(instance, rows);
      });
  bind();
}

Executor::Body::~Body() {
  if (scratch_ != nullptr) backend_.free(scratch_);
}

void Executor::Body::bind() {
  bound_.reserve(program_.instances.size());
  intervals_.resize(program_.instances.size());
  for (const OperationInstance& instance : program_.instances) {
    const Operation& operation = program::operation_of(program_, instance);
    Bound bound;
    bound.lane = operation.lane;
    bound.status = status_of(instance);
    if (const auto* step = std::get_if<StepOp>(&operation.work))
      bound.planned.compute = bind_step_work(instance, *step);
    else
      bound.planned = bind_calls(instance, program_.sizes);
    if (program::is_communication(operation)) bind_communication(operation, bound);
    bound_.push_back(std::move(bound));
  }
  scratch_bytes_ = std::max(scratch_bytes_, binder_->scratch_bytes());
  if (scratch_bytes_ > 0) scratch_ = backend_.allocate(scratch_bytes_);
  bind_regions();
}

void Executor::Body::bind_regions() {
  for (std::size_t i = 0; i < order_.issues.size(); ++i)
    if (order_.issues[i].kind == Issue::Kind::EndRegion) region_ends_.push_back(i);
  graphs_.resize(region_ends_.size());
}

std::string Executor::Body::status_of(const OperationInstance& instance) const {
  const Operation& operation = program::operation_of(program_, instance);
  std::string text = fmt::format("stage {}", program_.role.stage);
  if (instance.microbatch) text += fmt::format(", micro-batch {}", *instance.microbatch);
  if (instance.layer) {
    const auto& layer = program::layer_of(program_, instance);
    text += layer.layer ? fmt::format(", layer {}", *layer.layer)
                        : ", " + program_.blocks[at(layer.block)].name;
  }
  return text + ", " + operation.name;
}

Communicator& Executor::Body::communicator_of(const Operation& operation) const {
  if (std::holds_alternative<PeerOp>(operation.work)) return groups_.pipeline(operation.lane);
  if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work))
    return groups_.of(flat->collective.group);
  return groups_.of(std::get<CollectiveOp>(operation.work).group);
}

void Executor::Body::bind_communication(const Operation& operation, Bound& bound) {
  bound.group = &communicator_of(operation);
  bound.queue = device_.queue(operation.lane);
  bound.host_driven = device_.rules().communications == program::CommunicationDriver::Host;
}

/// Binds anything but step work.
Executor::Body::Calls Executor::Body::bind_calls(const OperationInstance& instance,
                                                 const models::SymbolValues& sizes) {
  const Operation& operation = program::operation_of(program_, instance);
  if (std::holds_alternative<ComputeOp>(operation.work))
    return {.compute = binder_->bind(instance, sizes), .communicate = {}};
  return {.compute = {},
          .communicate = communication(instance, operation, communicator_of(operation))};
}

std::byte* Executor::Body::memory_of(const OperationInstance& instance, program::ValueId value) {
  if (room_ != nullptr)
    if (std::byte* memory = room_->memory_of(instance, value)) return memory;
  return arena_.at(program_, program::address_of(program_, instance, value));
}

/// Those of the plan, unless the router has sent more rows than it has buffers for.
Executor::Body::Calls& Executor::Body::calls_of(int index) {
  Bound& bound = bound_[at(index)];
  if (room_ == nullptr || !room_->holds_rows_of(index)) return bound.planned;
  const OperationInstance& instance = program_.instances[at(index)];
  bound.moved = bind_calls(instance, room_->sizes_of(instance));
  return bound.moved;
}

void Executor::Body::give_back_room() {
  if (room_ != nullptr) room_->give_back();
}

void Executor::Body::load(const StepBatch& batch) {
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
  const bool predicts = program_.plan.model.mtp_layers > 0;
  if (predicts) {
    ids_ = with_tokens_ahead(program_.plan, batch.ids, kBeyondSequence);
    targets_ = with_tokens_ahead(program_.plan, batch.targets, kernels::kIgnoredTarget);
  }
  upload(predicts ? ids_ : batch.ids, sizes.ids);
  upload(predicts ? targets_ : batch.targets, sizes.ids);
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

double Executor::Body::loss_tokens() const {
  const program::Workload& workload = program_.plan.workload;
  return batch_->loss_tokens > 0
             ? batch_->loss_tokens
             : static_cast<double>(workload.global_batch_size * workload.seq_len);
}

const float* Executor::Body::expert_load(int row) const {
  if (no_load_.empty()) return nullptr;
  return reinterpret_cast<const float*>(arena_.region(Region::ExpertLoad)) +
         std::int64_t{row} * program_.plan.model.moe->num_experts;
}

void Executor::Body::start(int index) {
  Bound& bound = bound_[at(index)];
  if (status_ != nullptr) status_->set(bound.status);
  Calls& calls = calls_of(index);
  if (bound.queue != nullptr) bound.group->queue_on(bound.queue);
  if (bound.host_driven) {
    if (tracing_) intervals_[at(index)].start_s = monotonic_seconds();
    bound.handle = calls.communicate();
    return;
  }
  if (tracing_) device_.stamp(2 * index, bound.lane);
  device_.push_range(bound.status.c_str());
  if (calls.communicate)
    calls.communicate();
  else
    calls.compute();
  device_.pop_range();
  if (tracing_) device_.stamp(2 * index + 1, bound.lane);
}

void Executor::Body::await(int index) {
  Bound& bound = bound_[at(index)];
  if (status_ != nullptr) status_->set(bound.status);
  bound.handle.wait();
  bound.handle = Handle();
  if (tracing_) intervals_[at(index)].end_s = monotonic_seconds();
}

/// The first run is a warm-up: libraries choose their kernels and load them.
Executor::Body::Capture Executor::Body::capture_now() const {
  if (tracing_ || runs_ == 0) return Capture::No;
  return runs_ == 1 ? Capture::Now : Capture::Replay;
}

void Executor::Body::lend_scratch() {
  if (scratch_ != nullptr) backend_.set_scratch(scratch_, scratch_bytes_);
}

StepOutcome Executor::Body::run(const StepBatch& batch, const StepSettings& settings) {
  batch_ = &batch;
  settings_ = settings;
  lend_scratch();
  const Capture capture = capture_now();
  for (std::size_t i = 0; i < order_.issues.size(); ++i) {
    const Issue& issue = order_.issues[i];
    switch (issue.kind) {
      case Issue::Kind::Run:
        start(*issue.instance);
        break;
      case Issue::Kind::Await:
        await(*issue.instance);
        break;
      case Issue::Kind::SetMark:
        device_.set_mark(*issue.mark, issue.lane);
        break;
      case Issue::Kind::WaitMark:
        device_.wait_mark(*issue.mark, issue.lane);
        break;
      case Issue::Kind::BeginRegion: {
        const auto region = static_cast<std::size_t>(*issue.instance);
        if (capture == Capture::Now) device_.begin_capture();
        if (capture != Capture::Replay) break;
        graphs_[region]->replay();
        i = region_ends_[region];
        break;
      }
      case Issue::Kind::EndRegion:
        if (capture == Capture::Now) graphs_[at(*issue.instance)] = device_.end_capture();
        break;
    }
    if (room_ != nullptr) room_->issued(i);
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
void Executor::Body::collect_intervals() {
  for (std::size_t i = 0; i < bound_.size(); ++i) {
    if (bound_[i].host_driven) continue;
    intervals_[i] = {device_.stamp_seconds(static_cast<int>(2 * i)),
                     device_.stamp_seconds(static_cast<int>(2 * i + 1))};
  }
}

StepOutcome Executor::Body::outcome() {
  StepOutcome outcome;
  std::array<std::byte, program::kNumScalars * program::kScalarBytes> scalars{};
  backend_.copy_to_host(scalars.data(), arena_.region(Region::Scalars), std::ssize(scalars));
  const auto read = [&](Scalar which, auto value) {
    std::memcpy(&value, scalars.data() + static_cast<std::int64_t>(which) * program::kScalarBytes,
                sizeof value);
    return value;
  };
  const double tokens = loss_tokens();
  outcome.loss = read(Scalar::LossSum, 0.0) / tokens;
  const models::ModelSpec& model = program_.plan.model;
  if (model.mtp_layers > 0)
    outcome.prediction_loss =
        read(Scalar::PredictionLossSum, 0.0) / tokens / model.mtp_loss_coefficient;
  outcome.gradient_norm = double{read(Scalar::GradientNorm, 0.0F)};
  outcome.indexer_loss = read(Scalar::IndexerLossSum, 0.0) / tokens;
  if (!no_load_.empty()) {
    outcome.balance_loss = read(Scalar::BalanceLossSum, 0.0) / tokens;
    outcome.z_loss = read(Scalar::ZLossSum, 0.0) / tokens;
    outcome.expert_load.resize(no_load_.size());
    backend_.copy_to_host(outcome.expert_load.data(), expert_load(0),
                          std::ssize(no_load_) * size_of(DType::F32));
  }
  if (room_ != nullptr) outcome.rows_beyond_plan = room_->end_step();
  return outcome;
}

Executor::Executor(const program::Program& program, Device& device, Arena& arena, Groups& groups,
                   StatusBoard* status)
    : body_(std::make_unique<Body>(program, device, arena, groups, status)) {}

Executor::~Executor() = default;

StepOutcome Executor::run(const StepBatch& batch, const StepSettings& settings) {
  return body_->run(batch, settings);
}

void Executor::set_tracing(bool on) {
  body_->set_tracing(on);
}

const std::vector<Interval>& Executor::intervals() const {
  return body_->intervals();
}

std::int64_t Executor::scratch_bytes() const {
  return body_->scratch_bytes();
}

void Executor::lend_scratch() {
  body_->lend_scratch();
}

void Executor::give_back_room() {
  body_->give_back_room();
}

}  // namespace meshplan::runtime
