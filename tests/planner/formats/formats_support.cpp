#include "planner/formats/formats_support.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace meshplan::planner::format_tests {

using program::Plan;

Plan plan_of(const std::string& preset, int dp) {
  Plan plan;
  plan.model = models::load_preset(preset);
  plan.model.mtp_layers = 0;
  plan.parallel.dp = dp;
  plan.workload.seq_len = 4096;
  plan.workload.global_batch_size = std::int64_t{8} * dp;
  plan.workload.precision = DType::BF16;
  return plan;
}

ImportRequest request_of(const std::vector<ExportedFile>& files, const std::string& main,
                         const Plan& plan) {
  ImportRequest request{.main = main, .model = plan.model};
  for (const ExportedFile& file : files) request.files[file.name] = file.text;
  return request;
}

ImportRequest request_of(const std::string& main, const std::string& text,
                         const std::string& preset, std::optional<int> ranks) {
  ImportRequest request{.files = {{main, text}}, .main = main, .ranks = ranks};
  if (!preset.empty()) request.model = models::load_preset(preset);
  return request;
}

Plan canonical(Plan plan) {
  const program::ParallelConfig& p = plan.parallel;
  const Plan initial;
  plan.layers_per_stage = program::resolved_layers_per_stage(plan);
  plan.count_ends_as_layers = false;
  if (p.pp == 1) plan.schedule = initial.schedule;
  if (p.cp == 1) plan.context_parallel = initial.context_parallel;
  plan.rank_order = initial.rank_order;
  if (plan.zero_stage == 0 || plan.zero_shard_group == p.dp * p.cp) plan.zero_shard_group = 0;
  if (plan.recompute.kind == program::RecomputeKind::None) plan.recompute = {};
  program::OptimizerConfig& optimizer = plan.workload.optimizer;
  if (optimizer.kind != program::OptimizerKind::Sgd) {
    optimizer.momentum = initial.workload.optimizer.momentum;
  } else {
    optimizer.beta1 = initial.workload.optimizer.beta1;
    optimizer.beta2 = initial.workload.optimizer.beta2;
    optimizer.epsilon = initial.workload.optimizer.epsilon;
  }
  plan.expert_imbalance = initial.expert_imbalance;
  plan.expert_node_ranks = initial.expert_node_ranks;
  plan.expert_dispatch_fp8 = initial.expert_dispatch_fp8;
  plan.expected_expert_imbalance = initial.expected_expert_imbalance;
  plan.attention = initial.attention;
  plan.attention_workspace_bytes = initial.attention_workspace_bytes;
  plan.deterministic = initial.deterministic;
  plan.progress_thread = initial.progress_thread;
  plan.model_hash.clear();
  plan.cluster_name.clear();
  plan.cluster_hash.clear();
  plan.cluster_json.clear();
  plan.prediction.reset();
  return plan;
}

std::string text_of(const std::vector<ExportedFile>& files, const std::string& name) {
  const auto found = std::ranges::find(files, name, &ExportedFile::name);
  return found == files.end() ? std::string() : found->text;
}

ImportedPlan read_as(const std::string& format, const ImportRequest& request) {
  return format_of(format).read(request);
}

std::string read_error(const std::string& format, const ImportRequest& request) {
  try {
    read_as(format, request);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string write_error(const std::string& format, const Plan& plan) {
  try {
    format_of(format).write({.plan = plan});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw InvariantError("not in the text: " + from);
  return text.replace(at, from.size(), to);
}

bool mentions(const std::vector<std::string>& lines, const std::string& text) {
  return std::ranges::any_of(lines,
                             [&](const std::string& line) { return line.find(text) != line.npos; });
}

}  // namespace meshplan::planner::format_tests
