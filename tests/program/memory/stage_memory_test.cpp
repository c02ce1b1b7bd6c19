#include <algorithm>
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <span>

#include "models/counts.hpp"
#include "program/cost/step_cost.hpp"
#include "program/inspect.hpp"
#include "program/memory/address.hpp"
#include "program/memory/offloaded_activations.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using test::block_named;
using test::make_plan;
using test::region_bytes;

/// GPT-2's shape: F = 4 D, H heads, no grouped keys. T tokens with T * 4 / tp a multiple of 64, so
/// that no value needs padding.
Plan gpt2_shape(const ParallelConfig& parallel, RecomputeKind recompute) {
  Plan plan = make_plan(test::gpt2_style(), parallel);
  plan.model.hidden_size = 128;
  plan.model.ffn_size = 512;
  plan.model.head_size = 16;
  plan.workload.seq_len = 64;
  plan.workload.precision = DType::BF16;
  plan.recompute.kind = recompute;
  return plan;
}

constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kWidth = 128;
constexpr std::int64_t kStream = kTokens * kWidth;  // s b h of the paper
constexpr std::int64_t kLogSumExp = kTokens * 8 * 4;
constexpr std::int64_t kNormStatistics = 2 * 2 * kTokens * 4;  // two norms, mean and inverse std

std::int64_t saved_bytes(const ParallelConfig& parallel, RecomputeKind recompute) {
  return block_named(lower(gpt2_shape(parallel, recompute), 0), "dense").saved_bytes;
}

/// What the bytes of a value are, whichever operation asks: the one that writes them and all that
/// read them say the same.
struct Content {
  enum class Kind { Nothing, LayerInput, Output, Gradient, Value } kind = Kind::Nothing;
  int microbatch = -1;
  int layer = -1;
  ValueId value = -1;
  bool operator==(const Content&) const = default;

  std::string text() const {
    static constexpr const char* kNames[] = {"nothing", "input", "output", "gradient", "value"};
    return fmt::format("{} {} of layer {}, micro-batch {}", kNames[static_cast<int>(kind)], value,
                       layer, microbatch);
  }
};

/// The gradient at the output of a layer; without kept gradients it is one stream of the task.
Content gradient_content(const Program& program, int microbatch, int layer) {
  const Block& block =
      program
          .blocks[static_cast<std::size_t>(program.layers[static_cast<std::size_t>(layer)].block)];
  const bool kept = std::ranges::any_of(block.values, [](const Value& value) {
    return value.storage == Storage::LayerOutputGrad && value.keep == Keep::BetweenGrads;
  });
  return {Content::Kind::Gradient, microbatch, kept ? layer : -1};
}

const Chunk& chunk_of(const Program& program, int chunk) {
  return program.chunks[static_cast<std::size_t>(chunk)];
}

Content output_content(const Program& program, int microbatch, int layer) {
  const int chunk = program.layers[static_cast<std::size_t>(layer)].chunk;
  if (layer + 1 < chunk_of(program, chunk).end_layer)
    return {Content::Kind::LayerInput, microbatch, layer + 1};
  if (const auto next = chunk_after(program, chunk))
    return {Content::Kind::LayerInput, microbatch, chunk_of(program, *next).first_layer};
  return {Content::Kind::Output, microbatch, chunk};
}

/// A gradient that leaves the rank is in no layer.
Content input_gradient_content(const Program& program, int microbatch, int layer) {
  const int chunk = program.layers[static_cast<std::size_t>(layer)].chunk;
  if (layer > chunk_of(program, chunk).first_layer)
    return gradient_content(program, microbatch, layer - 1);
  if (const auto previous = chunk_before(program, chunk))
    return gradient_content(program, microbatch, chunk_of(program, *previous).end_layer - 1);
  return {Content::Kind::Gradient, microbatch};
}

Content content_of(const Program& program, const OperationInstance& instance, ValueId id) {
  const LayerInstance& layer = layer_of(program, instance);
  const Block& block = program.blocks[static_cast<std::size_t>(layer.block)];
  while (block.values[static_cast<std::size_t>(id)].alias)
    id = *block.values[static_cast<std::size_t>(id)].alias;
  const int microbatch = *instance.microbatch;
  switch (block.values[static_cast<std::size_t>(id)].storage) {
    case Storage::LayerInput:
      return {Content::Kind::LayerInput, microbatch, *instance.layer};
    case Storage::LayerOutput:
      return output_content(program, microbatch, *instance.layer);
    case Storage::LayerOutputGrad:
      return gradient_content(program, microbatch, *instance.layer);
    case Storage::LayerInputGrad:
      return input_gradient_content(program, microbatch, *instance.layer);
    default:
      return {Content::Kind::Value, microbatch, *instance.layer, id};
  }
}

Content peer_content(const Program& program, const Operation& operation,
                     const OperationInstance& instance) {
  const Chunk& chunk = chunk_of(program, instance.chunk);
  const int microbatch = *instance.microbatch;
  if (operation.name == "recv_forward")
    return {Content::Kind::LayerInput, microbatch, chunk.first_layer};
  if (operation.name == "send_forward") return {Content::Kind::Output, microbatch, instance.chunk};
  if (operation.name == "send_backward")
    return input_gradient_content(program, microbatch, chunk.first_layer);
  return gradient_content(program, microbatch, chunk.end_layer - 1);
}

/// Plays a program's reads and writes of activations in issue order (which link() makes the order
/// of all conflicting accesses) and reports the first read that finds something else.
class ContentCheck {
 public:
  explicit ContentCheck(const Program& program) : program_(program) {
    for (const RegionPlan& region : program.memory.regions)
      held_.emplace_back(static_cast<std::size_t>(region.bytes() / kAlignment));
  }

  std::string first_wrong_read() {
    for (const OperationInstance& instance : program_.instances) {
      const Operation& operation = operation_of(program_, instance);
      if (const auto* peer = std::get_if<PeerOp>(&operation.work)) {
        const Address address = peer_address(program_, instance);
        const Content content = peer_content(program_, operation, instance);
        if (peer->send) read(address, content, operation);
        if (!peer->send) write(address, content);
      }
      if (const auto* step = std::get_if<StepOp>(&operation.work); step && instance.layer)
        copy(activation_copy(program_, instance, *step), step->work);
      if (!instance.layer) continue;
      for (const ValueId id : operation.inputs)
        read(address_of(program_, instance, id), content_of(program_, instance, id), operation);
      for (const ValueId id : operation.outputs)
        write(address_of(program_, instance, id), content_of(program_, instance, id));
    }
    return wrong_;
  }

 private:
  static bool holds_activations(Region region) {
    return region == Region::Saved || region == Region::Transient || region == Region::Boundary ||
           region == Region::StagedActivations || region == Region::OffloadedActivations;
  }
  /// Lines of kAlignment bytes, which no two values share.
  std::span<Content> lines(const Address& address) {
    if (!holds_activations(address.region)) return {};
    const auto region = static_cast<std::size_t>(address.region);
    const std::int64_t begin =
        address.slot * program_.memory.regions[region].stride_bytes + address.offset;
    return std::span(held_[region])
        .subspan(static_cast<std::size_t>(begin / kAlignment),
                 static_cast<std::size_t>(address.bytes / kAlignment));
  }
  void write(const Address& address, const Content& content) {
    std::ranges::fill(lines(address), content);
  }
  /// What lies at one end lies at the other, too.
  void copy(const ActivationCopy& ends, StepWork work) {
    const bool fetch = work == StepWork::FetchActivations;
    std::ranges::copy(lines(fetch ? ends.on_host : ends.on_device),
                      lines(fetch ? ends.on_device : ends.on_host).begin());
  }
  void read(const Address& address, const Content& content, const Operation& operation) {
    for (const Content& found : lines(address))
      if (found != content && wrong_.empty())
        wrong_ = fmt::format("{} wants {}, finds {}", operation.name, content.text(), found.text());
  }

  const Program& program_;
  std::vector<std::vector<Content>> held_;  // by region
  std::string wrong_;
};

}  // namespace

TEST_CASE("Saved activations of a layer are those of Korthikanti et al.", "[program][memory]") {
  // Equation 1 counts 34 s b h bytes of 16-bit activations (and scores, which our attention does
  // not keep). Without its two dropout masks (2 s b h): 32. Ours adds fp32 statistics.
  CHECK(saved_bytes({}, RecomputeKind::None) == 32 * kStream + kLogSumExp + kNormStatistics);
}

TEST_CASE("Tensor parallelism divides what lies inside its regions", "[program][memory]") {
  // Equation 2: s b h (10 + 24 / t); 8 without the masks. The inputs of both norms and of both
  // column-parallel linears stay whole.
  for (const int t : {2, 4})
    CHECK(saved_bytes({.tp = t}, RecomputeKind::None) ==
          (8 + 24 / t) * kStream + kLogSumExp / t + kNormStatistics);
}

TEST_CASE("Sequence parallelism divides everything", "[program][memory]") {
  // Equation 4: s b h 34 / t; only the shard of a gathered input is kept.
  for (const int t : {2, 4})
    CHECK(saved_bytes({.tp = t, .sp = true}, RecomputeKind::None) ==
          (32 * kStream + kLogSumExp + kNormStatistics) / t);
}

TEST_CASE("Selective recompute drops the outputs of norms and activations", "[program][memory]") {
  // Kept, in s b h elements: input 1, qkv 3, attention 1, sum 1, up 4; 2 bytes each.
  CHECK(saved_bytes({}, RecomputeKind::Selective) == 20 * kStream + kLogSumExp);
}

TEST_CASE("Full recompute keeps the input of a layer and nothing else", "[program][memory]") {
  CHECK(saved_bytes({}, RecomputeKind::Full) == 2 * kStream);
  CHECK(saved_bytes({.tp = 2}, RecomputeKind::Full) == 2 * kStream);
  CHECK(saved_bytes({.tp = 2, .sp = true}, RecomputeKind::Full) == kStream);
}

TEST_CASE("Saved activations of a gated layer add up by hand", "[program][memory]") {
  // Elements per token of the Llama-style layer: input 64, norm 64 + 1, qkv 128, attention 64 + 8,
  // sum 64, norm 64 + 1, gate and up 192, activation 96 = 746; 16 tokens of fp32.
  const Program program = lower(make_plan(test::llama_style()), 0);
  CHECK(block_named(program, "dense").saved_bytes == 746 * 16 * 4);
  CHECK(block_named(program, "embedding").saved_bytes == 0);
  // Head: input 64, norm 64 + 1, logits 384 (padded), log-sum-exp 1.
  CHECK(block_named(program, "head").saved_bytes == 514 * 16 * 4);
}

TEST_CASE("Adam in fp32 costs 16 bytes a parameter, in bf16 with fp32 masters 18",
          "[program][memory]") {
  // fp32: weight, gradient and two moments of 4. bf16: weight 2, master, gradient, two moments.
  const auto state_bytes = [](DType precision, OptimizerKind optimizer) {
    Plan plan = make_plan(test::llama_style());
    plan.workload.precision = precision;
    plan.workload.optimizer.kind = optimizer;
    const Program program = lower(plan, 0);
    std::int64_t bytes = 0;
    for (const Region region : {Region::Weights, Region::MasterWeights, Region::Gradients,
                                Region::Moment1, Region::Moment2})
      bytes += region_bytes(program, region);
    return static_cast<double>(bytes) / static_cast<double>(program.parameter_elements);
  };
  CHECK(state_bytes(DType::F32, OptimizerKind::AdamW) == 16);
  CHECK(state_bytes(DType::BF16, OptimizerKind::Adam) == 18);
  CHECK(state_bytes(DType::F32, OptimizerKind::Sgd) == 12);  // one moment: the momentum
  CHECK(state_bytes(DType::BF16, OptimizerKind::Sgd) == 14);
}

TEST_CASE("The flat regions hold the model's parameters and less than a line of padding each",
          "[program][memory]") {
  for (const auto& model : {test::llama_style(), test::gpt2_style()}) {
    const Program program = lower(make_plan(model), 0);
    const std::int64_t tables = model.tied_embeddings ? 1 : 2;
    const std::int64_t vocabulary_padding = tables * (384 - 300) * 64;
    std::int64_t elements = 0;
    for (const Parameter& parameter : program.parameters) {
      elements += parameter.elements();
      CHECK(parameter.offset * 2 % kAlignment == 0);  // of bf16, the narrowest weights
    }
    CHECK(elements - vocabulary_padding ==
          models::count_parameters(models::build_graph(model)).total);
    const std::int64_t gaps = program.parameter_elements - elements;
    CHECK(gaps >= 0);
    CHECK(gaps < kAlignment / 2 * static_cast<std::int64_t>(program.parameters.size()));
  }
}

// Bytes of the Llama-style model's input to a stage, fp32: 16 tokens of hidden size 64.
constexpr std::int64_t kInput = 16 * 64 * 4;

TEST_CASE("A stage has one slot of saved activations per micro-batch in flight",
          "[program][memory]") {
  for (const auto& [kind, slots] : {std::pair(ScheduleKind::OneFOneB, std::vector{4, 3, 2, 1}),
                                    std::pair(ScheduleKind::GPipe, std::vector{6, 6, 6, 6})}) {
    Plan plan = make_plan(test::llama_style(), {.pp = 4}, 6);
    plan.schedule = kind;
    for (const Program& program : lower_all(plan)) {
      std::int64_t of_microbatch = 0;
      for (const LayerInstance& layer : program.layers)
        of_microbatch += program.blocks[static_cast<std::size_t>(layer.block)].saved_bytes;
      // 1F1B receives the next input while the task before, a backward, holds all of these.
      const bool receives = kind == ScheduleKind::OneFOneB && program.role.stage > 0;
      const std::int64_t input = receives ? kInput : 0;
      CHECK(region_bytes(program, Region::Saved) ==
            slots[static_cast<std::size_t>(program.role.stage)] * of_microbatch + input);
    }
  }
}

TEST_CASE("Interleaved chunks share the memory of saved activations", "[program][memory]") {
  // Chunks of equal layers: as many parts as chunks are in flight at once, not as many as each one
  // holds by itself.
  Plan plan = make_plan(test::llama_style(), {.pp = 4, .vpp = 2}, 8);
  plan.model.num_layers = 16;
  plan.schedule = ScheduleKind::Interleaved;
  const Program inner = lower(plan, 1);
  const std::int64_t chunk = 2 * block_named(inner, "dense").saved_bytes;
  CHECK(region_bytes(inner, Region::Saved) == max_in_flight(schedule_of(plan), 1) * chunk + kInput);
}

TEST_CASE("An input gradient frees what no weight gradient reads", "[program][memory]") {
  // By hand, elements per token in the Llama-style layer: the weight gradients read the inputs of
  // the linears: norm 64, attention 64, norm 64, activation 96 = 288 of 746. Left between the two
  // tasks: the gradients at their outputs: qkv 128, attention out 64, gate and up 192, mlp down 64.
  Plan plan = make_plan(test::llama_style(), {.pp = 2}, 4);
  plan.schedule = ScheduleKind::ZbH1;
  const Block block = block_named(lower(plan, 0), "dense");
  CHECK(block.kept_bytes ==
        KeptBytes{(746 - 288) * 16 * 4, 288 * 16 * 4, 448 * 16 * 4, 0, kInput, kInput});
}

TEST_CASE("The batch region holds ids and targets of every micro-batch", "[program][memory]") {
  Plan plan = make_plan(test::llama_style(), {}, 4);
  CHECK(region_bytes(lower(plan, 0), Region::Batch) == 2 * 4 * 16 * 4);
}

TEST_CASE("The total is the sum of all regions", "[program][memory]") {
  MemoryPlan memory;
  memory.regions = {{.stride_bytes = 64, .slots = 3}, {.stride_bytes = 128}};
  CHECK(memory.total_bytes() == 320);
}

TEST_CASE("No value is overwritten before its last reader", "[program][memory]") {
  for (const Plan& plan : test::all_plans())
    for (const Pass pass : {Pass::Training, Pass::ForwardOnly})
      for (const Program& program : lower_all(plan, pass)) {
        INFO(test::describe(plan) << " stage " << program.role.stage);
        CHECK(ContentCheck(program).first_wrong_read() == "");
      }
}

TEST_CASE("Nor is one that goes to the host and comes back", "[program][memory][offload]") {
  for (Plan plan : test::all_plans()) {
    if (!has_whole_backwards(plan.schedule)) continue;
    const int most = std::ranges::max(resolved_layers_per_stage(plan));
    for (const int layers : {1, most}) {
      plan.offload_activations = layers;
      for (const Program& program : lower_all(plan)) {
        INFO(test::describe(plan) << " stage " << program.role.stage << ", " << layers
                                  << " layers");
        CHECK(ContentCheck(program).first_wrong_read() == "");
      }
    }
  }
}

TEST_CASE("The check of contents notices a copy that comes from another layer",
          "[program][memory][offload]") {
  Plan plan = make_plan(test::llama_style());
  plan.offload_activations = 4;
  Program program = lower(plan, 0);
  std::swap(program.host_places[1], program.host_places[2]);
  CHECK(ContentCheck(program).first_wrong_read() == "");  // stored and fetched alike
  for (OperationInstance& instance : program.instances)
    if (operation_of(program, instance).name == "activations.fetch" && instance.layer == 2)
      instance.layer = 3;
  CHECK(ContentCheck(program).first_wrong_read() != "");
}

TEST_CASE("Nor is one in FP8", "[program][memory][fp8]") {
  for (const Plan& plan : test::float8_plans())
    for (const Program& program : lower_all(plan)) {
      INFO(test::describe(plan) << " stage " << program.role.stage);
      CHECK(ContentCheck(program).first_wrong_read() == "");
    }
}

TEST_CASE("The check of contents notices one value moved onto another", "[program][memory]") {
  Program program = lower(make_plan(test::llama_style()), 0);
  for (Block& block : program.blocks)
    for (Value& value : block.values)
      if (block.name == "dense" && value.name == "mlp_norm" && value.storage == Storage::Saved)
        value.offset_bytes += kAlignment;
  CHECK(ContentCheck(program).first_wrong_read() != "");
}

}  // namespace meshplan::program
