// Lines as the stacks print them; their times are what the lines say.
#include "planner/runs/training_log.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "program/trace/step_report.hpp"

namespace meshplan::planner {
namespace {

using Catch::Matchers::Contains;
using Times = std::vector<double>;

program::Plan logged_plan() {
  program::Plan plan;
  plan.parallel = {.tp = 2, .pp = 2, .dp = 2};
  plan.workload.seq_len = 4096;
  plan.workload.global_batch_size = 768;
  return plan;
}

LoggedRun parse(const std::string& text) {
  return parse_training_log(text, "train.log", logged_plan());
}

std::string log_refusal(const std::string& text) {
  try {
    parse(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

const std::string kMegatron =
    "done with setup ...\n"
    " [2025-04-13 23:41:12] iteration       10/    1000 | consumed samples:         7680 | elapsed "
    "time per iteration (ms): 1147.6 | learning rate: 0.000000E+00 | global batch size:   768 | "
    "loss scale: 1.0 | number of nan iterations:   0 |\n"
    "Number of parameters in transformer block in billions:  0.08\n"
    "7:  iteration       20/    1000 | consumed samples:        15360 | elapsed time per iteration "
    "(ms): 1100.5 | throughput per GPU (TFLOP/s/GPU): 412.3 | global batch size:   768 |\n"
    " validation loss at iteration 20 | lm loss value: 5.905366E+00 |\n";

}  // namespace

TEST_CASE("Megatron-LM logs the time of an iteration", "[planner][logs]") {
  const LoggedRun run = parse(kMegatron);
  CHECK(run.format == "Megatron-LM");
  CHECK(run.step_times_s == Times{1.1476, 1.1005});
  CHECK(run.first_line == 2);
  CHECK(run.step_lines == 2);
  CHECK(run.other_lines == 3);
}

TEST_CASE("torchtitan logs tokens per second of a device, on every rank", "[planner][logs]") {
  // 768 * 4096 tokens over 8 ranks: 393,216 a rank
  const LoggedRun run = parse(
      "[rank0]:\x1b[31m[titan] 2026-02-24 19:46:17,508 - root - INFO - step:  1  loss:  7.62585  "
      "grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 65,536  tflops: 314.71  mfu: "
      "13.99%\x1b[39m\n"
      "[rank1]:[titan] 2026-02-24 19:46:17,508 - root - INFO - \x1b[31mstep:  1\x1b[32m  loss:  "
      "7.62585  memory: 66.91GiB(37.51%)  tps: 32,768  tflops: 314.71  mfu: 13.99%\n"
      "[titan] step:  2  loss:  7.1  memory: 66.91GiB(37.51%)  wps: 393,216  mfu: 13.99%\n");
  CHECK(run.format == "torchtitan");
  CHECK(run.step_times_s == Times{12, 1});  // of step 1 the slower rank
  CHECK(run.step_lines == 3);
}

TEST_CASE("nanotron rounds to three digits and a letter", "[planner][logs]") {
  const LoggedRun run = parse(
      "[default7]:07/02/2024 18:00:42 [INFO|DP=0|PP=1|TP=1|node-1]: iteration: 2 / 20 | "
      "consumed_tokens: 8.39M | elapsed_time_per_iteration_ms: 6.66K | tokens_per_sec: 630K | "
      "tokens_per_sec_per_gpu: 9.84K | global_batch_size: 768 | lm_loss: 11.3 | lr: 9.53e-05 | "
      "model_tflops_per_gpu: 89.3 | grad_norm: 11.2\n"
      "iteration: 3 / 20 | elapsed_time_per_iteration_ms: 990 | global_batch_size: 0.77K |\n");
  CHECK(run.format == "nanotron");
  CHECK(run.step_times_s == Times{6.66, 0.99});
}

TEST_CASE("DeepSpeed's timer logs samples per second", "[planner][logs]") {
  const std::string line =
      "[2024-03-07 15:27:02,646] [INFO] [timer.py:260:stop] "
      "epoch=0/micro_step=199/global_step=199, "
      "RunningAvgSamplesPerSec=58.73, CurrSamplesPerSec=384.0, MemAllocated=6.01GB\n";
  CHECK(parse(line).step_times_s == Times{2});
  CHECK(parse(line).format == "DeepSpeed");
  // Megatron-DeepSpeed prints both: the time itself counts.
  CHECK(parse(line + kMegatron).format == "Megatron-LM");
}

TEST_CASE("DeepSpeed's pipelines log the time of a step", "[planner][logs]") {
  const LoggedRun run = parse(
      "steps: 10 loss: 2.3456 iter time (s): 1.234 samples/sec: 622.366\n"
      "steps: 20 loss: 2.3456 iter time (s): 1.200 samples/sec: 640.000\n");
  CHECK(run.step_times_s == Times{1.234, 1.2});
  CHECK_THAT(log_refusal("steps: 10 loss: 2.3 iter time (s): fast samples/sec: 1\n"),
             Contains("train.log:1") && Contains("iter time (s): 'fast'"));
}

TEST_CASE("the log of our own runs is read, too", "[planner][logs]") {
  program::StepReport report{.step = 1, .loss = 2.5, .seconds = 0.25};
  const std::string first = program::to_json_line(report);
  report.step = 2;
  report.seconds = 0.5;
  const LoggedRun run =
      parse("{\"kind\":\"run\"}\n" + first + "\n" + program::to_json_line(report) + "\n");
  CHECK(run.step_times_s == Times{0.25, 0.5});
}

TEST_CASE("the summary of our own log says what saving cost", "[planner][logs]") {
  const std::string step =
      program::to_json_line(program::StepReport{.step = 1, .loss = 2.5, .seconds = 0.25}) + "\n";
  CHECK_FALSE(parse(step).saving);
  const std::string none =
      R"("disk":{"saves":0,"skipped":0,"stall_s":0,"stall_share":0,"bytes_per_rank":0})";
  const auto summary = [&](const std::string& memory) {
    return step + R"({"kind":"summary","schema_version":1,"saving":{)" + none + R"(,"memory":)" +
           memory + "}}\n";
  };
  const std::string measured =
      R"("saves":5,"skipped":1,"stall_s":1.5,"stall_share":0.01,"bytes_per_rank":2048)";
  const LoggedRun run = parse(summary("{" + measured + "}"));
  REQUIRE(run.saving);
  CHECK(run.saving->memory ==
        program::SavingTimes{
            .saves = 5, .skipped = 1, .stall_s = 1.5, .stall_share = 0.01, .bytes = 2048});
  CHECK(run.saving->memory.stall_of_save_s() == Approx(0.3));
  const LoggedRun later =
      parse(summary("{" + measured + R"(,"predicted":{"stall_s":0.2,"bytes_per_rank":2048}})"));
  CHECK(later.saving->memory.predicted == program::PredictedSave{0.2, 2048});
  CHECK_THAT(log_refusal(summary(R"({"saves":5})")), Contains("train.log:2: saving"));
  CHECK_FALSE(parse(step + R"({"kind":"summary","schema_version":1})" + "\n").saving);
}

TEST_CASE("logs state what the allocator held at most", "[planner][logs]") {
  const LoggedRun megatron = parse(
      "[Rank 0] (after 10 iterations) memory (MB) | allocated: 1000.0 | max allocated: 6144.5 | "
      "reserved: 7000.0 | max reserved: 7168.0\n[Rank 8] (after 10 iterations) memory (MB) | "
      "allocated: 1000.0 | max allocated: 5000.0 | reserved: 8192.0 | max reserved: 8192.0\n" +
      kMegatron);
  CHECK(megatron.allocated_bytes == 6144.5 * (1 << 20));
  CHECK(megatron.reserved_bytes == 8192.0 * (1 << 20));
  const LoggedRun titan = parse(
      "step:  1  loss:  7.6  memory: 70.00GiB(88.0%)  tps: 7,000  mfu: 40%\n"
      "step:  2  loss:  7.5  memory: 71.25GiB(89.5%)  tps: 7,000  mfu: 40%\n");
  CHECK(titan.allocated_bytes == 0);
  CHECK(titan.reserved_bytes == 71.25 * (1 << 30));
  const LoggedRun deepspeed = parse(
      "MA 22.5 GB         Max_MA 45.5 GB         CA 50.0 GB         Max_CA 50 GB\n"
      "global_step=10, RunningAvgSamplesPerSec=8.5, CurrSamplesPerSec=8.0\n");
  CHECK(deepspeed.allocated_bytes == 45.5 * (1 << 30));
  CHECK(deepspeed.reserved_bytes == 50.0 * (1 << 30));
  const LoggedRun nanotron = parse(
      "Memory usage: 1234.56MiB. Peak allocated 4567.50MiB. Peak reserved: 5000.00MiB\n"
      "iteration: 10 / 100 | elapsed_time_per_iteration_ms: 1.2K | global_batch_size: 768\n");
  CHECK(nanotron.allocated_bytes == 4567.5 * (1 << 20));
  CHECK(nanotron.reserved_bytes == 5000.0 * (1 << 20));
  CHECK(parse(kMegatron).reserved_bytes == 0);
}

TEST_CASE("what cannot be read is refused with its line", "[planner][logs]") {
  const auto changed = [](const std::string& from, const std::string& to) {
    std::string text = kMegatron;
    return text.replace(text.find(from), from.size(), to);
  };
  CHECK_THAT(log_refusal(changed("1100.5", "fast")),
             Contains("train.log:4: elapsed time per iteration (ms): 'fast', expected a number"));
  CHECK_THAT(log_refusal(changed("1100.5", "0")), Contains("train.log:4: "));
  CHECK_THAT(log_refusal(changed("20/    1000", "x/ 1000")),
             Contains("train.log:4: iteration 'x', expected the number of a step"));
  CHECK_THAT(log_refusal(changed("batch size:   768", "batch size:   512")),
             Contains("train.log:2: global batch size: '512', expected 768 as in the plan"));
  CHECK_THAT(log_refusal(kMegatron.substr(0, kMegatron.find("1100.5"))), Contains("train.log:4: "));
  CHECK_THAT(log_refusal("epoch 1 loss 2\nepoch 2 loss 1\n"),
             Contains("train.log:1: none of 2 lines") && Contains("Megatron-LM, nanotron") &&
                 Contains("--step-time"));
  CHECK_THAT(log_refusal(""), Contains("train.log:1: none of 0 lines"));
  // Nothing behind the last label.
  CHECK_THAT(log_refusal("step: 1  loss: 7  tps:"), Contains("train.log:1: tps: '', expected"));
  CHECK_THAT(log_refusal("step:loss:tps:"), Contains("train.log:1: "));
}

}  // namespace meshplan::planner
