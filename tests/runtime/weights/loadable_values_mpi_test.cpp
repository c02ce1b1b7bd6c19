// Weights that are not finite are found by name before the first step, on whichever rank they lie.
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "runtime/job/run_rank.hpp"
#include "runtime/weights/checkpoint_job.hpp"
#include "runtime/weights/hugging_face_weights.hpp"
#include "runtime/weights/marked_model.hpp"
#include "train/run_checkpoints.hpp"
#include "weights/loadable_values.hpp"

namespace meshplan::test {
namespace {

using Catch::Matchers::Contains;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A Hugging Face folder in which values of one tensor are replaced.
void write_model(const std::string& folder, const models::ModelSpec& spec, DType dtype,
                 const std::string& tensor, const std::vector<std::int64_t>& places, float value) {
  MarkedModel model(spec);
  runtime::export_hugging_face(model, spec, {}, {.folder = folder, .dtype = dtype});
  const std::string path = folder + "/model.safetensors";
  std::int64_t begin = 0;
  {
    const runtime::SafetensorsFile file(path);
    begin = file.at(tensor).data.data() - file.header().data();
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(size_of(dtype)));
  runtime::convert_from_float(std::span(&value, 1), dtype, bytes.data());
  std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
  for (const std::int64_t place : places) {
    out.seekp(begin + place * size_of(dtype));
    out.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }
}

/// What every rank of `group` says who starts from `options`; empty if they start.
std::string refusal(runtime::Communicator& group, const Plan& plan,
                    const runtime::CheckpointOptions& options) {
  const auto backend = kernels::make_cpu_backend(1);
  runtime::HostDevice device(*backend);
  Trainer trainer(program::lower(plan, runtime::stage_of(plan, group.rank())), std::nullopt, group,
                  device, 5, nullptr);
  std::string said;
  try {
    const runtime::RunCheckpoints start(plan, options, trainer, group, {}, nullptr);
  } catch (const runtime::SharedConfigError& error) {
    said = error.what();
  }
  auto hash = static_cast<std::int64_t>(content_hash(said));
  std::vector<std::int64_t> hashes(static_cast<std::size_t>(group.size()));
  group.all_gather({&hash, 1, DType::I64}, {hashes.data(), group.size(), DType::I64}).wait();
  CHECK(std::ranges::count(hashes, hash) == group.size());
  return said;
}

struct Broken {
  models::ModelSpec spec;
  ParallelConfig parallel;
  DType in_file;
  DType in_run;
  std::string tensor;
  std::vector<std::int64_t> places;
  float value;
  std::string said;  // empty: the run starts
  std::vector<std::string> frozen = {};
};

}  // namespace

TEST_CASE("weights of a Hugging Face model that are not finite are named before the first step",
          "[checkpoint][loadable_values]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to divide
  const models::ModelSpec llama = llama_style(), mixtral = mixtral_style();
  const ParallelConfig divided{.tp = 2, .pp = 2};
  const std::string norm = "model.layers.1.input_layernorm.weight";
  const std::string last =
      "model.layers." + std::to_string(llama.num_layers - 1) + ".post_attention_layernorm.weight";
  const std::string embedding = "model.embed_tokens.weight";
  const std::string expert = "model.layers.1.block_sparse_moe.experts.5.w2.weight";
  const std::int64_t row = 7 * 64;  // of the embedding
  const std::vector<Broken> cases = {
      {llama,
       divided,
       DType::F32,
       DType::F32,
       norm,
       {3, 9},
       kNan,
       norm + ": 2 of 64 values are not finite in fp32, the first at [3]: nan"},
      {llama,
       divided,
       DType::BF16,
       DType::F32,
       last,
       {63},
       kNan,
       last + ": 1 of 64 values is not finite in fp32, the first at [63]: nan"},
      {llama,
       divided,
       DType::F16,
       DType::BF16,
       embedding,
       {row, row + 1, row + 63},
       kInfinity,
       embedding + ": 3 of "},
      {llama,
       {.dp = 4},
       DType::F32,
       DType::BF16,
       embedding,
       {row + 2},
       kNan,
       "not finite in bf16, the first at [7, 2]: nan"},
      {mixtral,
       {.pp = 2, .dp = 2, .ep = 2},
       DType::BF16,
       DType::BF16,
       expert,
       {33},
       -kInfinity,
       expert + ": 1 of 2048 values is not finite in bf16, the first at [1, 1]: -inf"},
      // Finite in the file, but not where they come to lie.
      {llama,
       divided,
       DType::F32,
       DType::BF16,
       norm,
       {5},
       3.4e38F,
       norm + ": 1 of 64 values is not finite in bf16, the first at [5]: 3.4e+38"},
      {llama,
       divided,
       DType::BF16,
       DType::F16,
       norm,
       {5},
       -1e5F,
       norm + ": 1 of 64 values is not finite in fp16, the first at [5]: -99840"},
      {llama, divided, DType::F32, DType::F16, norm, {5}, 65519, ""},
      {llama, divided, DType::F32, DType::F32, norm, {5}, 3.4e38F, ""},
      // Frozen weights lie in the run's format alone.
      {llama,
       divided,
       DType::F32,
       DType::BF16,
       norm,
       {5},
       kNan,
       norm + ": 1 of 64 values is not finite in bf16, the first at [5]: nan",
       {"embedding", "layers.0-1"}}};
  for (const Broken& broken : cases) {
    const SharedFolder folder(*world);
    CAPTURE(broken.tensor, broken.said, program::to_string(broken.parallel));
    const std::string model = folder.path() + "/model";
    if (world->rank() == 0)
      write_model(model, broken.spec, broken.in_file, broken.tensor, broken.places, broken.value);
    world->barrier().wait();
    Plan plan = checkpoint_plan(broken.spec, broken.parallel, broken.in_run);
    plan.frozen = broken.frozen;
    const std::string said = refusal(*world, plan, {.init_from = model});
    if (broken.said.empty())
      CHECK(said.empty());
    else
      CHECK_THAT(said, Contains("/model/model.safetensors: ") && Contains(broken.said));
  }
}

TEST_CASE("weights and moments of a checkpoint that are not finite are named before the first step",
          "[checkpoint][loadable_values]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  if (world->size() < 4) return;  // nothing to divide
  const Plan plan = checkpoint_plan(llama_style(), {.tp = 2, .pp = 2});
  for (const auto& [region, state] : {std::pair{Region::Weights, "weights"},
                                      {Region::Moment1, "moment1"},
                                      {Region::Moment2, "moment2"}}) {
    const SharedFolder folder(*world);
    {
      CheckpointJob job(plan, *world, folder.path());
      job.save(1);
      job.step(1);
      if (world->rank() == 2) job.set_first(region, kNan);
      job.save(2);
      job.wait();
    }
    const std::string damaged = folder.path() + "/step-2";
    const Plan other = checkpoint_plan(llama_style(), {.dp = 4});
    for (const Plan& then : {plan, other}) {
      const std::string said = refusal(*world, then, {.resume = damaged});
      CHECK_THAT(said,
                 Contains(damaged + "/rank-00002.safetensors: " + state + ".") &&
                     Contains("not finite in fp32, the first at [0") &&
                     Contains("]: nan; the newest intact one is " + folder.path() + "/step-1"));
    }
    // A new run from its weights does not ask for moments.
    CHECK(refusal(*world, plan, {.init_from = damaged}).empty() == (region != Region::Weights));
  }
}

TEST_CASE("values of fp64 that fp32 does not hold are said as they are", "[loadable_values]") {
  const double values[] = {1, 1e39, 2, 3, 4, -1e300};
  const runtime::SafeTensor tensor{
      .dtype_name = "F64", .shape = {2, 3}, .data = std::as_bytes(std::span(values))};
  CHECK(runtime::describe_not_finite("file", "tensor", tensor, DType::F32) ==
        "file: tensor: 2 of 6 values are not finite in fp32, the first at [0, 1]: 1e+39");
  const double finite[] = {1, 3e38};
  const runtime::SafeTensor good{
      .dtype_name = "F64", .shape = {2}, .data = std::as_bytes(std::span(finite))};
  CHECK(!runtime::describe_not_finite("file", "tensor", good, DType::F32));
}

TEST_CASE("exactly what rounds to infinity is too large", "[loadable_values]") {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    const float largest = dtype == DType::F16 ? 65519.99F
                          : dtype == DType::BF16
                              ? std::nextafter(std::ldexp(511.0F, 119), 0.0F)  // half a unit above
                              : std::numeric_limits<float>::max();
    for (const float value : {largest, -largest, std::nextafter(largest, kInfinity), kNan, 0.0F}) {
      std::vector<std::byte> bytes(4);
      runtime::convert_from_float(std::span(&value, 1), dtype, bytes.data());
      float back = 0;
      const runtime::TensorBox one{{0}, {1}};
      runtime::copy_overlap({.data = bytes.data(), .dtype = dtype, .box = one, .strides = {1}},
                            {.data = &back, .box = one, .strides = {1}});
      CAPTURE(name_of(dtype), value);
      CHECK(runtime::all_finite(std::span(&value, 1), dtype) == std::isfinite(back));
    }
    CHECK(runtime::all_finite(std::span(&largest, 1), dtype));
  }
}

}  // namespace meshplan::test
