#include "measure/operator_bench.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "bind/operator_binding.hpp"
#include "core/error.hpp"
#include "core/index.hpp"
#include "measure/balanced_routing.hpp"
#include "measure/cold_memory.hpp"
#include "program/capture.hpp"
#include "program/context/document_context.hpp"
#include "program/context/packing.hpp"
#include "program/cost/cost.hpp"
#include "program/cost/step_cost.hpp"
#include "program/lower/lower.hpp"

namespace meshplan::runtime {
namespace {

using program::OperationInstance;
using program::Program;
using program::Storage;
using program::ValueId;

/// Sizes at which the optimizer and the norm are timed; all others follow from bytes.
constexpr std::int64_t kFlatSizes[] = {1 << 12, 1 << 15, 1 << 18, 1 << 20, 1 << 22};
/// Copies of the operands that a timing goes round: weights leave the caches, activations stay in
/// the last level.
constexpr std::int64_t kWarmCopies = 3;
constexpr std::int64_t kMostCopies = 64;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + program::kAlignment - 1) / program::kAlignment * program::kAlignment;
}

}  // namespace

OperandPool::~OperandPool() {
  if (memory_ != nullptr) backend_.free(memory_);
}

std::byte* OperandPool::reserve(std::int64_t bytes) {
  if (bytes <= bytes_) return memory_;
  if (memory_ != nullptr) backend_.free(memory_);
  memory_ = nullptr;  // allocate may throw
  bytes_ = 0;
  memory_ = static_cast<std::byte*>(backend_.allocate(bytes));
  bytes_ = bytes;
  backend_.run(kernels::RandomNormal{.rows = 1,
                                     .columns = bytes / 4,
                                     .global_columns = bytes / 4,
                                     .stddev = 0.1F,
                                     .out = reinterpret_cast<float*>(memory_),
                                     .out_stride = bytes / 4});
  return memory_;
}

std::vector<OperatorJob> distinct_jobs(std::span<const Program> programs) {
  std::vector<OperatorJob> jobs;
  std::map<std::string, bool> seen;
  for (const Program& program : programs) {
    for (const OperationInstance& instance : program.instances) {
      const program::Operation& operation = program::operation_of(program, instance);
      if (!std::holds_alternative<program::ComputeOp>(operation.work)) continue;
      std::string key = program::signature(program, instance);
      if (seen.try_emplace(key, true).second)
        jobs.push_back({.signature = std::move(key), .program = &program, .instance = &instance});
    }
    for (const OperationInstance& instance : program.instances) {
      const program::Operation& operation = program::operation_of(program, instance);
      const auto* step = std::get_if<program::StepOp>(&operation.work);
      if (step == nullptr || (step->work != program::StepWork::SquaredNorm &&
                              step->work != program::StepWork::OptimizerUpdate))
        continue;
      for (const std::int64_t size : kFlatSizes) {
        program::StepOp work = *step;
        work.bucket.reset();
        work.range = {0, size};
        std::string key = program::step_signature(program.plan, work);
        if (seen.try_emplace(key, true).second)
          jobs.push_back({.signature = std::move(key),
                          .program = &program,
                          .instance = &instance,
                          .step = work});
      }
    }
  }
  return jobs;
}

class OperatorBench::Operands {
 public:
  Operands(const OperatorJob& job, OperandPool& pool, Device& device) : job_(job) {
    kernels::Backend& backend = device.backend();
    const std::vector<Operand> operands = job.step ? flat_operands() : block_operands();
    std::int64_t cold = 0;
    std::int64_t warm = 0;
    for (const Operand& operand : operands) (operand.cold ? cold : warm) += operand.bytes;
    const std::int64_t cold_copies =
        cold == 0 ? 1 : std::clamp<std::int64_t>(cold_bytes(&device) / cold, 2, kMostCopies);
    const std::int64_t copies = std::max(cold_copies, kWarmCopies);
    std::byte* base =
        pool.reserve(kRandomBytes + cold * cold_copies + warm * kWarmCopies + kScalarsBytes) +
        kRandomBytes;
    const auto* scale = reinterpret_cast<float*>(base);
    write_scalars(backend, base);
    binder_ = std::make_unique<OperatorBinder>(
        backend, *job.program, RankPlace{},
        [this](const OperationInstance&, ValueId id) { return addresses_.at(root(id)); }, scale);
    for (std::int64_t copy = 0; copy < copies; ++copy) {
      std::byte* cold_at = base + kScalarsBytes + copy % cold_copies * cold;
      std::byte* warm_at = base + kScalarsBytes + cold_copies * cold + copy % kWarmCopies * warm;
      for (const Operand& operand : operands) {
        std::byte*& at = operand.cold ? cold_at : warm_at;
        addresses_[operand.root] = at;
        if (operand.tokens)
          fill_tokens(backend, at, operand.bytes);
        else if (operand.documents)
          fill_documents(backend, at, operand);
        else if (operand.dtype == DType::I32)
          fill_routing(backend, at, operand);
        if (operand.dtype == DType::BF16) fill_bf16(backend, base, at, operand.bytes);
        if (operand.dtype == DType::U8) fill_fp8(backend, base, at, operand.bytes);
        at += operand.bytes;
      }
      calls_.push_back(job.step ? bind_flat(base) : binder_->bind(*job.instance));
    }
    if (binder_->scratch_bytes() > 0) {
      scratch_ = backend.allocate(binder_->scratch_bytes());
      backend.set_scratch(scratch_, binder_->scratch_bytes());
    }
    backend_ = &backend;
  }
  ~Operands() {
    if (scratch_ != nullptr) backend_->free(scratch_);
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  TimedCall timed() {
    const program::Operation& operation = program::operation_of(*job_.program, *job_.instance);
    return {.call = [this] { calls_[next_++ % calls_.size()](); },
            .distinct = static_cast<int>(calls_.size()),
            .capturable = program::is_static(operation, job_.program->plan.parallel.ep,
                                             program::CommunicationDriver::Device)};
  }

 private:
  static constexpr std::int64_t kRandomBytes = 1 << 20;  // fp32 before the operands: see fill_bf16
  static constexpr std::int64_t kScalarsBytes = 256;
  static constexpr std::int64_t kLearningRate = 136;
  static constexpr std::int64_t kOptimizerStep = 144;
  static constexpr std::int64_t kFillScale = 152;
  static constexpr std::int64_t kFillLargest = 156;

  /// A gradient scale (also the clip coefficient), a learning rate and a step as in training.
  static void write_scalars(kernels::Backend& backend, std::byte* base) {
    const float scale = 1e-3F;
    const float learning_rate = 1e-6F;
    const std::int64_t step = 10;
    const float largest = 0.4F;  // few random numbers are larger: four standard deviations
    backend.copy_to_device(base, &scale, sizeof scale);
    backend.copy_to_device(base + kFillLargest, &largest, sizeof largest);
    backend.copy_to_device(base + kLearningRate, &learning_rate, sizeof learning_rate);
    backend.copy_to_device(base + kOptimizerStep, &step, sizeof step);
  }

  struct Operand {
    ValueId root = 0;
    std::int64_t bytes = 0;
    bool cold = false;    // weights, gradients, optimizer state
    bool tokens = false;  // int32 ids or targets
    DType dtype = DType::F32;
    std::int64_t count = 0;
    std::string_view name = {};
    std::optional<Storage> documents = {};  // which array that says where they lie
    std::int64_t index = 0;                 // of a key range: step of the ring
  };

  const program::Block& block() const {
    const auto& layer = program::layer_of(*job_.program, *job_.instance);
    return job_.program->blocks[at(layer.block)];
  }
  ValueId root(ValueId id) const {
    while (block().values[at(id)].alias) id = *block().values[at(id)].alias;
    return id;
  }

  std::int64_t elements_of(const program::Value& value) const {
    std::int64_t count = 1;
    for (const std::int64_t size : program::local_shape(*job_.program, value)) count *= size;
    return count;
  }

  std::vector<Operand> block_operands() const {
    std::vector<Operand> operands;
    const program::Operation& operation = program::operation_of(*job_.program, *job_.instance);
    const auto add = [&](ValueId id) {
      const program::Value& value = block().values[at(root(id))];
      if (std::ranges::find(operands, root(id), &Operand::root) != operands.end()) return;
      const std::int64_t count = elements_of(value);
      operands.push_back(
          {.root = root(id),
           .bytes = aligned(count * size_of(value.dtype)),
           .cold = value.storage == Storage::Parameter || value.storage == Storage::Gradient ||
                   value.storage == Storage::QuantizedWeight,
           .tokens = value.storage == Storage::BatchIds || value.storage == Storage::BatchTargets,
           .dtype = value.dtype,
           .count = count,
           .name = value.name,
           .documents = says_documents(value.storage) ? std::optional(value.storage) : std::nullopt,
           .index = value.index});
    };
    for (const ValueId id : operation.inputs) add(id);
    for (const ValueId id : operation.outputs) add(id);
    return operands;
  }

  /// Master weights, compute copy, gradients and two moments, one after another.
  std::vector<Operand> flat_operands() const {
    std::vector<Operand> operands;
    for (int i = 0; i < 5; ++i)
      operands.push_back({.root = i, .bytes = aligned(job_.step->range.size() * 4), .cold = true});
    return operands;
  }

  std::function<void()> bind_flat(std::byte* scalars) {
    const auto flat = [&](ValueId id) { return reinterpret_cast<float*>(addresses_.at(id)); };
    const bool fp32 = job_.program->plan.workload.precision == DType::F32;
    return binder_->bind_step(
        *job_.step, {.master = flat(0),
                     .weights = fp32 ? nullptr : flat(1),
                     .gradients = flat(2),
                     .moment1 = flat(3),
                     .moment2 = flat(4),
                     .squared_norm = reinterpret_cast<double*>(scalars + 64),
                     .clip_coefficient = reinterpret_cast<float*>(scalars),
                     .gradient_norm = reinterpret_cast<float*>(scalars + 128),
                     .learning_rate = reinterpret_cast<float*>(scalars + kLearningRate),
                     .optimizer_step = reinterpret_cast<std::int64_t*>(scalars + kOptimizerStep)});
  }

  void fill_tokens(kernels::Backend& backend, std::byte* at, std::int64_t bytes) const {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(bytes / 4));
    constexpr std::int64_t kStride =
        7919;  // a prime: neighbouring tokens are far apart in the vocabulary
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) * kStride %
                                            job_.program->plan.model.vocab_size);
    backend.copy_to_device(at, tokens.data(), bytes);
  }

  static bool says_documents(Storage storage) {
    return storage == Storage::BatchPositions || storage == Storage::BatchKeyRanges ||
           storage == Storage::BatchOrder;
  }

  /// Writes what the first rank reads of documents as the workload expects them.
  void fill_documents(kernels::Backend& backend, std::byte* at, const Operand& operand) const {
    const program::Plan& plan = job_.program->plan;
    const program::Documents& documents = plan.workload.documents;
    std::vector<program::PackedSequence> sequences = program::expected_sequences(
        documents.expected_lengths, plan.workload.seq_len, documents.pad_multiple);
    for (std::size_t i = 0; std::ssize(sequences) < plan.micro_batch_size; ++i)
      sequences.push_back(sequences[i]);
    sequences.resize(static_cast<std::size_t>(plan.micro_batch_size));
    const program::BatchSizes sizes = program::batch_sizes(plan);
    const auto array = [](std::int64_t size) {
      return std::vector<std::int32_t>(static_cast<std::size_t>(size));
    };
    std::vector<std::int32_t> positions = array(sizes.positions), order = array(sizes.order),
                              ranges = array(sizes.key_ranges);
    program::fill_document_arrays(plan, 0, sequences,
                                  {.positions = positions, .key_ranges = ranges, .order = order});
    const std::vector<std::int32_t>& filled = operand.documents == Storage::BatchPositions
                                                  ? positions
                                              : operand.documents == Storage::BatchOrder ? order
                                                                                         : ranges;
    backend.copy_to_device(at, filled.data() + operand.index * operand.count,
                           operand.count * size_of(DType::I32));
  }

  void fill_routing(kernels::Backend& backend, std::byte* at, const Operand& operand) const {
    const auto map = std::ranges::find_if(block().values, [](const program::Value& value) {
      return value.name.ends_with("row_of_choice");
    });
    require_invariant(map != block().values.end(), "a router's integers without its choices");
    const auto values = balanced_routing(operand.name, operand.count, elements_of(*map),
                                         job_.program->plan.model.moe->num_experts);
    backend.copy_to_device(at, values.data(), operand.count * size_of(DType::I32));
  }

  /// Numbers as in training rather than the halves of fp32 ones, some of which are not numbers:
  /// what a GPU's products take depends on the bits that they switch.
  static void fill_bf16(kernels::Backend& backend, const std::byte* random, std::byte* at,
                        std::int64_t bytes) {
    constexpr std::int64_t kChunk = kRandomBytes / 4;
    for (std::int64_t done = 0; done < bytes / 2; done += kChunk)
      backend.run(kernels::Convert{.count = std::min(kChunk, bytes / 2 - done),
                                   .from_dtype = DType::F32,
                                   .from = random - kRandomBytes,
                                   .to_dtype = DType::BF16,
                                   .to = at + 2 * done});
  }

  /// The same, of codes. Their scale, between the random numbers and the scalars' end, is not read.
  /// With a largest number that is given, no scratch is needed, which is not there yet.
  static void fill_fp8(kernels::Backend& backend, std::byte* base, std::byte* at,
                       std::int64_t bytes) {
    constexpr std::int64_t kChunk = kRandomBytes / 4;
    for (std::int64_t done = 0; done < bytes; done += kChunk)
      backend.run(
          kernels::QuantizeFloat8{.rows = 4,
                                  .columns = std::min(kChunk, bytes - done) / 4,
                                  .dtype = DType::F32,
                                  .x = base - kRandomBytes,
                                  .quantized = reinterpret_cast<std::uint8_t*>(at) + done,
                                  .scale = reinterpret_cast<float*>(base + kFillScale),
                                  .largest = reinterpret_cast<float*>(base + kFillLargest)});
  }

  const OperatorJob& job_;
  std::map<ValueId, std::byte*> addresses_;
  std::unique_ptr<OperatorBinder> binder_;
  std::vector<std::function<void()>> calls_;
  std::size_t next_ = 0;
  kernels::Backend* backend_ = nullptr;
  void* scratch_ = nullptr;
};

OperatorBench::OperatorBench(const OperatorJob& job, OperandPool& pool, Device& device)
    : operands_(std::make_unique<Operands>(job, pool, device)) {}

OperatorBench::~OperatorBench() = default;

TimedCall OperatorBench::timed() {
  return operands_->timed();
}

}  // namespace meshplan::runtime
