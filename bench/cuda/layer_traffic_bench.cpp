// Kernel launches and bytes of memory traffic of one layer and micro-batch, operation by operation,
// beside the fewest bytes (docs/cuda.md). Needs no GPU.
//   cuda_layer_traffic_bench [MODEL [SEQ_LEN [TP]]]     default: llama3.2-1b 4096 1, gpt2-124m 1024
#include <cstdlib>
#include <exception>
#include <fmt/format.h>

#include "layer_traffic.hpp"
#include "program/lower/lower.hpp"
#include "reports/table.hpp"

namespace {

using namespace meshplan;

program::Plan plan_of(const std::string& model, std::int64_t seq_len, int tp) {
  program::Plan plan;
  plan.model = models::load_preset(model);
  plan.workload.seq_len = seq_len;
  plan.workload.global_batch_size = 2;
  plan.workload.precision = DType::BF16;
  plan.parallel.tp = tp;
  return plan;
}

std::string per_token(std::int64_t bytes, std::int64_t tokens) {
  return reports::grouped((bytes + tokens / 2) / tokens);
}

void print(const std::string& model, std::int64_t seq_len, int tp) {
  const bench::LayerTraffic traffic = bench::layer_traffic(
      program::lower(plan_of(model, seq_len, tp), 0), bench::AttentionKernels::Cudnn);
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
  fmt::print("{}, sequence {}, bf16, tp {}: a layer and micro-batch\n{}", model, seq_len, tp,
             reports::to_text(table, 2));
  fmt::print("  bytes over the least: {:.3f}; of passes without products and attention: {:.3f}\n\n",
             traffic.ratio(), traffic.ratio_of_passes());
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t seq_len = argc > 2 ? std::atoll(argv[2]) : 4096;
  try {
    if (argc > 1) {
      print(argv[1], seq_len, argc > 3 ? std::atoi(argv[3]) : 1);
    } else {
      print("llama3.2-1b", seq_len, 1);
      print("gpt2-124m", 1024, 1);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
