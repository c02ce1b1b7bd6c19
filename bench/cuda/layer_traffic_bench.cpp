// Kernel launches and bytes of memory traffic of one layer and micro-batch, operation by operation,
// beside the fewest bytes (docs/cuda.md). Needs no GPU.
//   cuda_layer_traffic_bench [MODEL [SEQ_LEN [TP]]]     default: llama3.2-1b 4096 1, gpt2-124m 1024
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <string>
#include <vector>

#include "layer_traffic.hpp"
#include "program/lower/lower.hpp"
#include "reports/table.hpp"

namespace {

using namespace meshplan;

struct Case {
  std::string model;
  std::int64_t seq_len = 4096;
  int tp = 1;
  program::Precision precision = program::Precision::BF16;
  bool deterministic = true;
};

program::Plan plan_of(const Case& one) {
  program::Plan plan;
  plan.model = models::load_preset(one.model);
  plan.workload.seq_len = one.seq_len;
  plan.workload.global_batch_size = 2;
  program::set_precision(plan.workload, one.precision);
  plan.parallel.tp = one.tp;
  plan.deterministic = one.deterministic;
  return plan;
}

std::string per_token(std::int64_t bytes, std::int64_t tokens) {
  return reports::grouped((bytes + tokens / 2) / tokens);
}

void print(const Case& one) {
  const program::Plan plan = plan_of(one);
  const bench::LayerTraffic traffic =
      bench::layer_traffic(program::lower(plan, 0), bench::AttentionKernels::Cudnn);
  reports::Table table{
      .columns = {{"operation", reports::Align::Left}, {"kernels"}, {"bytes/token"}, {"least"}}};
  std::int64_t bytes = 0;
  std::int64_t least = 0;
  for (const bench::OperationTraffic& operation : traffic.operations) {
    bytes += operation.bytes;
    least += operation.least_bytes;
    table.rows.push_back({operation.name, std::to_string(operation.launches),
                          per_token(operation.bytes, traffic.tokens),
                          per_token(operation.least_bytes, traffic.tokens)});
  }
  table.rows.push_back({"sum", std::to_string(traffic.launches()), per_token(bytes, traffic.tokens),
                        per_token(least, traffic.tokens)});
  fmt::print("{}, sequence {}, {}, tp {}{}: a layer and micro-batch\n{}", one.model, one.seq_len,
             program::precision_name(plan.workload), one.tp,
             one.deterministic ? "" : ", in any order", reports::to_text(table, 2));
  fmt::print("  bytes over the least: {:.3f}; of passes without products and attention: {:.3f}\n\n",
             traffic.ratio(), traffic.ratio_of_passes());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<Case> cases = {{.model = "llama3.2-1b"}, {.model = "gpt2-124m", .seq_len = 1024}};
    if (argc > 1) cases = {{.model = argv[1]}};
    if (argc > 2) cases.front().seq_len = std::atoll(argv[2]);
    if (argc > 3) cases.front().tp = std::atoi(argv[3]);
    for (Case one : cases)
      for (const auto precision : {program::Precision::BF16, program::Precision::Fp8})
        for (const bool deterministic : {true, false}) {
          one.precision = precision;
          one.deterministic = deterministic;
          print(one);
        }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
