#include "measure/measure_operators.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/error.hpp"
#include "core/statistics.hpp"
#include "measure/call_timer.hpp"
#include "measure/cold_memory.hpp"
#include "measure/operator_bench.hpp"
#include "measure/sampling.hpp"
#include "measure/timed_group.hpp"
#include "program/cost/cost.hpp"
#include "program/cost/step_cost.hpp"
#include "program/lower/lower.hpp"

namespace meshplan::runtime {
namespace {

using program::Program;

/// Fewest samples of one visit.
constexpr int kFewest = 2;

void broadcast(Communicator& world, double* values, std::int64_t count) {
  world.broadcast({values, count, DType::F64}, 0).wait();
}

double reduced(Communicator& world, double value, ReduceOp op) {
  const MutableBuffer buffer{&value, 1, DType::F64};
  world.all_reduce(buffer, buffer, op).wait();
  return value;
}

/// All operators of some programs, on all ranks of a job.
class OperatorRounds {
 public:
  OperatorRounds(std::vector<OperatorJob> jobs, const OperatorMeasurement& options,
                 Communicator& world, Device& device, const Progress& progress)
      : jobs_(std::move(jobs)),
        options_(options),
        world_(world),
        device_(device),
        progress_(progress),
        // A GPU has no other user, and captures its calls anew at each visit.
        rounds_({.rounds = device.rules().queues ? 1 : 3}),
        budget_(options.seconds_per_operator),
        pool_(device.backend()),
        timer_(device),
        alone_(jobs_.size()),
        busy_(jobs_.size()) {
    if (options.total_seconds > 0 && !jobs_.empty())
      budget_.value = std::min(
          budget_.value,
          options.total_seconds / ((several() ? 2.0 : 1.0) * static_cast<double>(jobs_.size())));
    budget_.value /= rounds_.rounds;
  }

  MeasuredOperators run() {
    SampledWork work{
        .order = {},
        .visit = [this](std::size_t which) { visit(which); },
        .seconds = [this] { return reduced(world_, monotonic_seconds() - begin_, ReduceOp::Max); },
        .lacking = [this] { return lacking(); }};
    for (std::size_t i = 0; i < jobs_.size(); ++i) work.order.push_back(i);
    const Visits visits = visit_in_rounds(work, rounds_);
    MeasuredOperators measured{.samples = samples(), .quietness = quietness()};
    measured.quietness.repeated_visits = visits.repeated;
    return measured;
  }

 private:
  bool several() const { return options_.busy_ranks > 1; }
  bool measures() const { return world_.rank() < options_.busy_ranks; }

  void visit(std::size_t which) {
    std::unique_ptr<OperatorBench> bench;
    if (measures()) bench = std::make_unique<OperatorBench>(jobs_[which], pool_, device_);
    if (world_.rank() == 0) alone_.add(which, time(*bench, references_));
    if (several()) {
      world_.barrier().wait();
      if (measures()) busy_.add(which, time(*bench, busy_references_));
      world_.barrier().wait();
    }
    const int all = rounds_.rounds * static_cast<int>(jobs_.size());
    if (progress_) progress_(std::min(++visits_, all), all);
  }

  /// @param references  takes the mean of the reference products meanwhile
  std::vector<TimedSample> time(OperatorBench& bench, std::vector<double>& references) {
    const auto samples = timer_.sample(bench.timed(), budget_, kFewest, options_.reference);
    if (options_.reference != nullptr) references.push_back(options_.reference->take_mean());
    return samples;
  }

  /// On any rank, alone or busy.
  std::vector<std::size_t> lacking() {
    std::vector<bool> either = alone_.lacking(kEnoughUndisturbed);
    const std::vector<bool> busy = busy_.lacking(kEnoughUndisturbed);
    for (std::size_t i = 0; i < either.size(); ++i) either[i] = either[i] || busy[i];
    return on_any_rank(world_, either);
  }

  std::vector<program::OperatorSample> samples() {
    std::vector<program::OperatorSample> samples;
    const double usual_alone = alone_.usual_reference(), usual_busy = busy_.usual_reference();
    const double fraction = options_.reference == nullptr ? 0.5 : kEstimateQuantile;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      const OperatorJob& job = jobs_[i];
      const program::OperationCost cost =
          job.step ? program::step_cost(job.program->plan, *job.step)
                   : program::operation_cost(*job.program, *job.instance);
      double alone[2] = {0, 0};
      if (world_.rank() == 0) {
        const Estimate estimated = estimate(alone_.of(i), usual_alone, fraction);
        alone[0] = estimated.seconds;
        alone[1] = (estimated.p90_s - estimated.p10_s) / estimated.median_s;
      }
      broadcast(world_, alone, 2);
      double busy = alone[0];
      if (several()) {
        const double own = measures() ? estimate(busy_.of(i), usual_busy, fraction).seconds : 0.0;
        busy = reduced(world_, own, ReduceOp::Sum) / options_.busy_ranks;
      }
      samples.push_back({.signature = job.signature,
                         .seconds = alone[0],
                         .seconds_busy = busy,
                         .spread = alone[1],
                         .flops = cost.flops,
                         .bytes = static_cast<double>(cost.bytes)});
    }
    return samples;
  }

  /// Noise of one rank alone and of all at once. Ranks wait for each other in a step, so of a visit
  /// the slowest counts.
  std::pair<double, double> noise() {
    if (options_.reference == nullptr) return {0, 0};
    double noise[2] = {0, 0};
    if (world_.rank() == 0) noise[0] = noise_of(alone_.stretches());
    if (several()) {
      std::vector<Stretch> busy = busy_.stretches();
      std::vector<double> slowest(static_cast<std::size_t>(visits_), 0);  // of all ranks
      for (std::size_t i = 0; i < busy.size(); ++i) slowest[i] = busy[i].factor;
      const MutableBuffer all{slowest.data(), visits_, DType::F64};
      world_.all_reduce(all, all, ReduceOp::Max).wait();
      for (std::size_t i = 0; i < busy.size(); ++i) busy[i].factor = slowest[i];
      noise[1] = noise_of(busy);
    }
    broadcast(world_, noise, 2);
    return {noise[0], several() ? noise[1] : noise[0]};
  }

  program::Quietness quietness() {
    double alone[3] = {0, 0, 0};
    if (std::vector<double> references = alone_.references(); !references.empty()) {
      const Spread spread = spread_of(std::move(references));
      alone[0] = mean(references_);
      alone[1] = spread.p10;
      alone[2] = spread.median;
    }
    broadcast(world_, alone, 3);
    const auto sum = [this](double value) { return reduced(world_, value, ReduceOp::Sum); };
    const double busy = sum(mean(busy_references_)) / std::max(1, options_.busy_ranks);
    const auto [noise, noise_busy] = this->noise();
    return {.reference_s = alone[0],
            .reference_busy_s = several() ? busy : alone[0],
            .noise = noise,
            .noise_busy = noise_busy,
            .reference_p10_s = alone[1],
            .reference_p50_s = alone[2],
            .samples = static_cast<int>(sum(alone_.count() + busy_.count())),
            .disturbed = static_cast<int>(sum(alone_.disturbed() + busy_.disturbed()))};
  }

  std::vector<OperatorJob> jobs_;
  const OperatorMeasurement& options_;
  Communicator& world_;
  Device& device_;
  const Progress& progress_;
  RoundOptions rounds_;
  Seconds budget_;
  OperandPool pool_;
  CallTimer timer_;
  SampleSet alone_;                                   // of rank 0
  SampleSet busy_;                                    // of this rank, while others run the same
  std::vector<double> references_, busy_references_;  // mean of each visit
  double begin_ = monotonic_seconds();
  int visits_ = 0;
};

}  // namespace

MeasuredOperators measure_operators(std::span<const program::Plan> plans,
                                    const OperatorMeasurement& options, Communicator& world,
                                    Device& device, const Progress& progress) {
  std::vector<Program> programs;
  for (const program::Plan& plan : plans)
    for (Program& program : program::lower_all(plan)) programs.push_back(std::move(program));
  return OperatorRounds(distinct_jobs(programs), options, world, device, progress).run();
}

MemoryBandwidth measure_memory_bandwidth(const OperatorMeasurement& options, Communicator& world,
                                         Device& device) {
  const std::int64_t bytes =
      device.gpu() ? std::max<std::int64_t>(256 << 20, 2 * cold_bytes(&device)) : 64 << 20;
  const Seconds budget{0.1};
  kernels::Backend& backend = device.backend();
  const bool measures = world.rank() < options.busy_ranks;
  std::byte* memory = measures ? static_cast<std::byte*>(backend.allocate(2 * bytes)) : nullptr;
  CallTimer timer(device);
  const auto copy_rate = [&] {
    const std::vector<double> times = timer.time(
        {.call = [&] { backend.copy(memory, memory + bytes, bytes); }, .capturable = false},
        budget);
    return 2.0 * static_cast<double>(bytes) / quantile(times, kEstimateQuantile);
  };
  MemoryBandwidth result;
  if (world.rank() == 0) result.alone = copy_rate();
  broadcast(world, &result.alone, 1);
  world.barrier().wait();
  result.all = reduced(world, measures ? copy_rate() : 0.0, ReduceOp::Sum);
  if (memory != nullptr) backend.free(memory);
  return result;
}

}  // namespace meshplan::runtime
