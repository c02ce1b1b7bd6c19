// Checkpoints that a plan cannot go on from are refused with both values.
#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "program/plan_file/plan_file.hpp"
#include "runtime/train/kept_settings.hpp"
#include "runtime/weights/checkpoint_job.hpp"

namespace meshplan::test {
namespace {

using Catch::Matchers::Contains;
using program::Documents;
using runtime::CheckpointIndex;
using runtime::ResumeKind;

CheckpointIndex index_of_saved(const Plan& plan) {
  const auto world = runtime::make_host_world(mpi_session(), {});
  const SharedFolder folder(*world);
  CheckpointJob job(plan, *world, folder.path());
  job.save(1);
  job.wait();
  return Checkpoint(folder.path() + "/step-1").index();
}

/// Why `plan` cannot use it; empty = it can.
std::string refusal(const CheckpointIndex& saved, const Plan& plan, ResumeKind kind) {
  try {
    runtime::check_fits(saved, "folder", plan, kind);
    const Plan before = program::parse_plan(saved.plan_json, "index.json: plan");
    if (kind == ResumeKind::Continue)
      runtime::check_settings({before, 5, saved.run.settings}, {plan, 5, {}}, "folder", {});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a checkpoint that does not fit the plan is refused with both values", "[checkpoint]") {
  const Plan plan = checkpoint_plan(llama_style(), {});
  const CheckpointIndex saved = index_of_saved(plan);
  Plan other = plan;
  other.workload.optimizer.kind = program::OptimizerKind::Sgd;
  CHECK_THAT(refusal(saved, other, ResumeKind::Continue),
             Contains("optimizer is adamw so far, but sgd now"));
  CHECK(refusal(saved, other, ResumeKind::WeightsOnly).empty());
  other = plan;
  other.workload.seq_len = 8;
  CHECK_THAT(refusal(saved, other, ResumeKind::Continue),
             Contains("seq_len is 16 so far, but 8 now"));
  other = plan;
  other.workload.global_batch_size = 8;
  CHECK_THAT(refusal(saved, other, ResumeKind::Continue),
             Contains("global_batch_size is 4 so far, but 8 now"));
}

TEST_CASE("a checkpoint of another architecture is refused, of another mesh or name it is not",
          "[checkpoint]") {
  const Plan plan = checkpoint_plan(llama_style(), {});
  const CheckpointIndex saved = index_of_saved(plan);
  Plan other = plan;
  other.model.hidden_size = 128;
  other.model.rope_base = 5000;
  for (const ResumeKind kind : {ResumeKind::Continue, ResumeKind::WeightsOnly})
    CHECK_THAT(refusal(saved, other, kind), Contains("hidden_size is 64, but 128 in the plan") &&
                                                Contains("rope_base is 10000.0, but 5000.0"));
  other = plan;
  other.model.name = "another name";
  other.model.max_positions = 4096;
  other.parallel = {.tp = 2, .pp = 2};
  CHECK(refusal(saved, other, ResumeKind::Continue).empty());
}

TEST_CASE("what a packed sequence holds must stay the same", "[checkpoint]") {
  const Plan plain = checkpoint_plan(llama_style(), {});
  Plan packed = plain;
  packed.workload.documents = {.packed = true, .end_of_document = 10, .pad_multiple = 4};
  const CheckpointIndex of_plain = index_of_saved(plain);
  CHECK_THAT(refusal(of_plain, packed, ResumeKind::Continue),
             Contains("packed is off so far, but on now") && Contains("--init-from"));
  CHECK(refusal(of_plain, packed, ResumeKind::WeightsOnly).empty());

  const CheckpointIndex of_packed = index_of_saved(packed);
  const auto refused = [&](const Documents& documents) {
    Plan other = plain;
    other.workload.documents = documents;
    return refusal(of_packed, other, ResumeKind::Continue);
  };
  CHECK(refused(packed.workload.documents).empty());
  CHECK_THAT(refused({.packed = true, .end_of_document = 11, .pad_multiple = 4}),
             Contains("end_of_document is 10 so far, but 11 now"));
  CHECK_THAT(refused({.packed = true, .end_of_document = 10, .pad_multiple = 2}),
             Contains("pad_multiple is 4 so far, but 2 now"));
  CHECK_THAT(refused({}), Contains("packed is on so far, but off now"));
  Plan other = plain;
  other.workload.documents.expected_lengths = {3, 5};  // only predicts
  CHECK(refusal(of_plain, other, ResumeKind::Continue).empty());
}

}  // namespace meshplan::test
