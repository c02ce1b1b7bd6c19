#include "runtime/parity/parity_support.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bind/gradient_scale.hpp"
#include "core/hash.hpp"
#include "data/packed_batch.hpp"
#include "program/context/context.hpp"
#include "program/context/packing.hpp"
#include "program/shard_layout.hpp"
#include "train/learning_rate.hpp"

namespace meshplan::test {
namespace {

using program::Parameter;
using program::Region;

/// Token stream of the tests: a fixed function of the sequence and position, so that a loss can
/// fall.
std::int32_t token(std::int64_t sequence, std::int64_t position, int vocabulary) {
  return static_cast<std::int32_t>((sequence * 37 + position * position * 11 + position * 3) %
                                   vocabulary);
}

/// Adds this rank's shard into the global array; of what several ranks hold, the first one's.
void scatter_into(std::vector<double>& global, const Parameter& parameter,
                  const program::Coordinates& place, const float* local) {
  const std::int64_t columns =
      parameter.global_shape.size() > 1 ? parameter.global_shape.back() : 1;
  for (const program::MatrixPiece& piece : program::matrix_pieces(parameter, place)) {
    if (piece.copy != 0) continue;
    for (std::int64_t r = 0; r < piece.rows; ++r)
      for (std::int64_t c = 0; c < piece.columns; ++c) {
        const std::int64_t at = (piece.global_row + r) * columns + piece.global_column + c;
        global[static_cast<std::size_t>(at)] =
            local[piece.local_offset + r * piece.local_stride + c];
      }
  }
}

/// Names and shapes of all parameters of the model, from the one-rank program: the same on every
/// rank.
std::vector<Parameter> all_parameters(const program::Plan& plan) {
  program::Plan one_rank = plan;
  one_rank.parallel = {};
  one_rank.layers_per_stage.clear();
  one_rank.schedule = program::ScheduleKind::OneFOneB;
  one_rank.custom_schedule.clear();
  one_rank.micro_batch_size = 1;
  one_rank.compression = {};
  one_rank.zero_stage = one_rank.zero_shard_group = 0;
  one_rank.max_tokens_per_rank = 0;
  return program::lower(one_rank, 0).parameters;
}

/// The first bytes of a region, in host memory.
std::vector<std::byte> read(runtime::Trainer& trainer, Region region, std::int64_t bytes) {
  std::vector<std::byte> data(static_cast<std::size_t>(bytes));
  trainer.device().backend().copy_to_host(data.data(), trainer.arena().region(region), bytes);
  return data;
}

/// Values of a region in the unsharded form: each rank gives what it owns, and of what several own
/// the first one's counts. Divided by `scale`.
std::map<std::string, std::vector<double>> gather(runtime::Trainer& trainer, Region region,
                                                  runtime::Communicator& world, double scale = 1) {
  const program::Program& program = trainer.program();
  const program::Coordinates place = trainer.groups().coordinates();
  const std::vector<std::byte> bytes =
      read(trainer, region, program.memory.regions[static_cast<std::size_t>(region)].bytes());
  const auto* values = reinterpret_cast<const float*>(bytes.data());
  // A copy of the flat parameters in which only what this rank is to give is there.
  std::vector<float> flat(static_cast<std::size_t>(program.parameter_elements), 0.0F);
  const auto runs = program::owned_runs(program, region, trainer.shard_place());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const program::Bucket& bucket = program.buckets[i];
    const bool sharded = bucket.shards > 1;
    const bool first = sharded ? !bucket.replicas || trainer.groups().leads(*bucket.replicas)
                               : (bucket.expert() ? place.edp : place.dp + place.cp) == 0;
    if (first)
      std::copy_n(values + runs[i].offset, runs[i].range.size(),
                  flat.begin() + runs[i].range.begin);
  }
  std::map<std::string, std::vector<double>> result;
  for (const Parameter& parameter : all_parameters(program.plan)) {
    const auto elements =
        std::accumulate(parameter.global_shape.begin(), parameter.global_shape.end(),
                        std::int64_t{1}, std::multiplies<>());
    std::vector<double> global(static_cast<std::size_t>(elements), 0.0);
    const auto own = std::ranges::find(program.parameters, parameter.name, &Parameter::name);
    if (own != program.parameters.end() && !own->tied_copy)
      scatter_into(global, *own, place, flat.data() + own->offset);
    const runtime::MutableBuffer buffer{global.data(), elements, DType::F64};
    world.all_reduce(buffer, buffer, runtime::ReduceOp::Sum).wait();
    for (double& value : global) value /= scale;
    result[parameter.name] = std::move(global);
  }
  return result;
}

double norm(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

}  // namespace

namespace {

/// Documents of a sequence: as many lengths as fit of a fixed row that sequences begin at different
/// places of, one token at least, with padding between and at the end.
program::PackedSequence parity_documents(const program::Plan& plan, std::int64_t sequence) {
  constexpr std::int64_t kLengths[] = {11, 2, 5, 1, 19, 3, 7};
  program::PackedSequence packed;
  const std::int64_t multiple = plan.workload.documents.pad_multiple;
  for (std::int64_t i = 0;; ++i) {
    const std::int64_t length = kLengths[static_cast<std::size_t>((sequence * 3 + i) % 7)];
    const std::int64_t padded = (length + multiple - 1) / multiple * multiple;
    if (packed.padded.back() + padded > plan.workload.seq_len) return packed;
    packed.append(length, padded);
  }
}

runtime::StepBatch packed_parity_batch(const program::Plan& plan,
                                       const program::Coordinates& place) {
  runtime::StepBatch batch;
  runtime::load_packed(
      plan, place, [&](std::int64_t sequence) { return parity_sequence(plan, sequence); }, batch);
  for (std::int64_t sequence = 0; sequence < plan.workload.global_batch_size; ++sequence)
    batch.loss_tokens += static_cast<double>(parity_documents(plan, sequence).loss_tokens());
  return batch;
}

RunResult train(const program::Plan& plan, int num_steps, runtime::Communicator& world,
                runtime::Device& device, const Mutation& mutate, const Variant& variant,
                const runtime::StepBatch* given);

}  // namespace

runtime::PackedTokens parity_sequence(const program::Plan& plan, std::int64_t sequence) {
  return runtime::packed_tokens(
      parity_documents(plan, sequence), plan.workload.seq_len,
      *plan.workload.documents.end_of_document, [&](int document, std::int64_t position) {
        return token(sequence * 5 + document, position, plan.model.vocab_size);
      });
}

runtime::StepBatch parity_batch(const program::Plan& plan, const program::Coordinates& place) {
  if (plan.workload.documents.packed) return packed_parity_batch(plan, place);
  runtime::StepBatch batch;
  const bool classes = plan.model.num_classes > 0;
  if (classes) batch.loss_tokens = static_cast<double>(plan.workload.global_batch_size);
  const program::ContextShard own =
      program::context_shard(plan.workload.seq_len, plan.parallel.cp, place.cp);
  for (int m = 0; m < plan.num_microbatches(); ++m)
    for (int i = 0; i < plan.micro_batch_size; ++i) {
      const std::int64_t sequence = (m * plan.parallel.dp + place.dp) * plan.micro_batch_size + i;
      for (std::int64_t t = 0; t < own.length; ++t) {
        const std::int64_t position = own.position(t);
        batch.ids.push_back(token(sequence, position, plan.model.vocab_size));
        batch.targets.push_back(classes ? -1
                                        : token(sequence, position + 1, plan.model.vocab_size));
      }
      if (classes)
        batch.targets[static_cast<std::size_t>(m * plan.tokens_per_microbatch() + i)] =
            static_cast<std::int32_t>(sequence % plan.model.num_classes);
    }
  return batch;
}

RunResult run_plan(const program::Plan& plan, int num_steps, runtime::Communicator& world,
                   kernels::Backend& backend, const Mutation& mutate, const Variant& variant) {
  runtime::HostDevice device(backend);
  return run_plan(plan, num_steps, world, device, mutate, variant);
}

RunResult run_plan(const program::Plan& plan, int num_steps, runtime::Communicator& world,
                   runtime::Device& device, const Mutation& mutate, const Variant& variant) {
  return train(plan, num_steps, world, device, mutate, variant, nullptr);
}

RunResult run_batch(const program::Plan& plan, const runtime::StepBatch& batch,
                    runtime::Communicator& world, kernels::Backend& backend) {
  runtime::HostDevice device(backend);
  return train(plan, 1, world, device, {}, {}, &batch);
}

namespace {

RunResult train(const program::Plan& plan, int num_steps, runtime::Communicator& world,
                runtime::Device& device, const Mutation& mutate, const Variant& variant,
                const runtime::StepBatch* given) {
  models::ModelGraph graph = models::build_graph(plan.model);
  if (variant.edit_graph) variant.edit_graph(graph);
  program::Program lowered = program::lower(plan, graph, runtime::stage_of(plan, world.rank()),
                                            program::Pass::Training, variant.profile);
  if (mutate) mutate(lowered);
  runtime::Trainer trainer(std::move(lowered), std::nullopt, world, device, /*seed=*/7, nullptr);
  RunResult result;
  const runtime::StepBatch batch =
      given != nullptr ? *given : parity_batch(plan, trainer.groups().coordinates());
  const double loss_scale = runtime::scales_loss(plan.workload) ? 65536 : 1;
  for (int step = 0; step < num_steps; ++step) {
    const runtime::StepOutcome outcome = trainer.train_step(
        batch, {.optimizer_step = step + 1,
                .learning_rate = runtime::learning_rate(plan.workload.optimizer, step, num_steps),
                .loss_scale = loss_scale});
    result.losses.push_back(outcome.loss);
    result.gradient_norms.push_back(outcome.gradient_norm);
    result.balance_losses.push_back(outcome.balance_loss);
    result.z_losses.push_back(outcome.z_loss);
    result.expert_loads.push_back(outcome.expert_load);
    result.rows_beyond_plan.push_back(outcome.rows_beyond_plan);
    if (step == 0) result.gradients = gather(trainer, Region::Gradients, world, loss_scale);
  }
  const bool fp32 = plan.workload.precision == DType::F32;
  result.weights = gather(trainer, fp32 ? Region::Weights : Region::MasterWeights, world);
  result.weights_hash =
      content_hash(read(trainer, Region::Weights,
                        program::flat_elements(trainer.program(), Region::Weights) *
                            size_of(plan.workload.precision)));
  return result;
}

}  // namespace

double scalar_error(const RunResult& run, const RunResult& reference) {
  double worst = 0;
  for (const auto series : {&RunResult::losses, &RunResult::gradient_norms,
                            &RunResult::balance_losses, &RunResult::z_losses}) {
    const std::vector<double>& expected = reference.*series;
    for (std::size_t step = 0; step < expected.size(); ++step) {
      const double value = (run.*series).at(step);
      worst = std::max(
          worst, expected[step] == 0 ? std::abs(value) : std::abs(value / expected[step] - 1));
    }
  }
  return worst;
}

GradientError compare_gradients(const RunResult& run, const RunResult& reference,
                                double small_fraction) {
  return compare_gradients(run.gradients, reference.gradients, small_fraction);
}

GradientError compare_gradients(const std::map<std::string, std::vector<double>>& run,
                                const std::map<std::string, std::vector<double>>& reference,
                                double small_fraction) {
  double total = 0;
  for (const auto& [name, values] : reference) total += norm(values) * norm(values);
  const double global = std::sqrt(total);
  GradientError error;
  for (const auto& [name, expected] : reference) {
    std::vector<double> difference = run.at(name);
    for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= expected[i];
    const double size = norm(expected);
    if (size < small_fraction * global) {
      error.small_absolute = std::max(error.small_absolute, norm(difference) / global);
    } else if (!(norm(difference) / size <= error.relative)) {  // also true for NaN
      error.relative = norm(difference) / size;
      error.worst = name;
    }
  }
  return error;
}

}  // namespace meshplan::test
