#include "program/trace/program_json.hpp"

#include "core/json_fields.hpp"
#include "program/cost/cost.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/trace/lane_names.hpp"

namespace meshplan::program {
namespace {

constexpr std::array<std::string_view, kNumRegions> kRegionNames = {"weights",
                                                                    "master_weights",
                                                                    "gradients",
                                                                    "moment1",
                                                                    "moment2",
                                                                    "batch",
                                                                    "saved",
                                                                    "transient",
                                                                    "boundary",
                                                                    "scalars",
                                                                    "gathered_weights",
                                                                    "unreduced_buckets",
                                                                    "expert_load",
                                                                    "compression_errors",
                                                                    "sum_errors",
                                                                    "compressed_gradients",
                                                                    "quantized_weights",
                                                                    "optimizer_staging",
                                                                    "resident_weights",
                                                                    "offloaded_activations",
                                                                    "staged_activations"};

Json memory_json(const MemoryPlan& memory) {
  Json regions = Json::object();
  for (std::size_t i = 0; i < memory.regions.size(); ++i)
    regions[std::string(kRegionNames[i])] = {{"stride_bytes", memory.regions[i].stride_bytes},
                                             {"slots", memory.regions[i].slots},
                                             {"on_host", memory.regions[i].on_host}};
  return {{"total_bytes", memory.total_bytes()},
          {"host_bytes", memory.host_bytes()},
          {"workspace_bytes", memory.workspace_bytes},
          {"regions", std::move(regions)}};
}

Json parameter_json(const Parameter& parameter) {
  Json sections = Json::array();
  for (const ShardSection& section : parameter.sections)
    sections.push_back(
        {{"begin", section.begin}, {"size", section.size}, {"copies", section.copies}});
  return {{"name", parameter.name},
          {"global_shape", parameter.global_shape},
          {"local_shape", parameter.local_shape},
          {"shard_dim", parameter.shard_dim.value_or(-1)},
          {"sections", std::move(sections)},
          {"weight_decay", parameter.weight_decay},
          {"tp_partial", parameter.tp_partial},
          {"trained", parameter.trained},
          {"frozen", parameter.frozen},
          {"offset", parameter.offset}};
}

Json instance_json(const Program& program, const OperationInstance& instance) {
  const Operation& operation = operation_of(program, instance);
  const OperationCost cost = operation_cost(program, instance);
  Json object{{"id", instance.id},
              {"name", operation.name},
              {"phase", meshplan::name_of(operation.phase)},
              {"lane", meshplan::name_of(operation.lane)},
              {"task", instance.task.value_or(-1)},
              {"microbatch", instance.microbatch.value_or(-1)},
              {"layer", instance.layer.value_or(-1)},
              {"waits", waits_of(program, instance)},
              {"flops", cost.flops},
              {"bytes", cost.bytes}};
  if (std::string shape = signature(program, instance); !shape.empty())
    object["signature"] = std::move(shape);
  return object;
}

}  // namespace

std::string to_json(const Program& program) {
  Json parameters = Json::array();
  for (const Parameter& parameter : program.parameters)
    parameters.push_back(parameter_json(parameter));
  Json instances = Json::array();
  for (const OperationInstance& instance : program.instances)
    instances.push_back(instance_json(program, instance));
  const Json root{{"schema_version", 1},
                  {"stage", program.role.stage},
                  {"plan", Json::parse(to_json(program.plan))},
                  {"memory", memory_json(program.memory)},
                  {"parameters", std::move(parameters)},
                  {"instances", std::move(instances)}};
  return root.dump(1) + "\n";
}

}  // namespace meshplan::program
