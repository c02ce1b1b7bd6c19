#include <fmt/format.h>

#include "core/error.hpp"
#include "formats/megatron_bridge/collector.hpp"
#include "formats/megatron_bridge/field_values.hpp"
#include "formats/megatron_bridge/precision.hpp"
#include "python/tree.hpp"

namespace meshplan::planner::bridge {

void Collector::experts() {
  const Json& etp = at("model", "expert_tensor_parallel_size");
  const std::string flag = "--expert-tensor-parallel-size";
  if (etp.is_number_integer())
    add(flag, {etp.dump()}, "model.expert_tensor_parallel_size = " + etp.dump());
  else if (!etp.is_null())
    fail("model", "expert_tensor_parallel_size", etp, "a whole number");
  else if (degree("expert_model_parallel_size") > 1)
    add(flag, {"1"}, "model.expert_tensor_parallel_size = None");
}

void Collector::precision() {
  const Json& given = at_root("mixed_precision");
  if (given.is_null()) {
    if (!recipe_.tree.contains("mixed_precision") && !has("--bf16") && !has("--fp16")) {
      assume(
          "mixed_precision = bf16_mixed (the recipe does not say, and what it starts from is "
          "not among the files)");
      add("--bf16", {}, "mixed_precision = bf16_mixed");
    }
    const Json& reduce = at("ddp", "grad_reduce_in_fp32");
    return switch_to(reduce.is_boolean() && !reduce.get<bool>(), "--grad-reduce-in-bf16",
                     "ddp.grad_reduce_in_fp32");
  }
  const auto fields = precision_fields(given);
  if (!fields)
    throw ConfigError(
        fmt::format("{}: mixed_precision: '{}' is not understood; nearest: bf16_mixed",
                    recipe_.file, shown(given)));
  for (const auto& [field, value] : fields->items()) {
    if (field == "grad_reduce_in_fp32") {
      switch_to(value.is_boolean() && !value.get<bool>(), "--grad-reduce-in-bf16",
                fmt::format("mixed_precision.{} = {}", field, shown(value)));
      continue;
    }
    for (const megatron::FieldFlag& each : megatron::flags_of_field("mixed_precision", field))
      take_field("mixed_precision", field, value, each);
  }
  const auto is_on = [&](const char* field) {
    const Json value = fields->value(field, Json());
    return value.is_boolean() && value.get<bool>();
  };
  result_.fp8_attention = has("--fp8-format") && is_on("fp8_dot_product_attention");
}

bool Collector::distributes() const {
  return is_true("ddp", "use_distributed_optimizer") ||
         is_true("optimizer", "use_distributed_optimizer") || has("--use-megatron-fsdp");
}

void Collector::distribution() {
  const char* flag = "--use-distributed-optimizer";
  bool on = distributes();
  const bool says = !at("ddp", "use_distributed_optimizer").is_null() ||
                    !at("optimizer", "use_distributed_optimizer").is_null();
  if (!on && !says && !recipe_.is_whole()) {
    on = true;
    assume(
        "ddp.use_distributed_optimizer = True (the recipe does not say, and what it starts "
        "from is not among the files)");
  }
  switch_to(on, flag, "ddp.use_distributed_optimizer = True");
  // Owners of matrices without buffers to match (training/optim.py,
  // layer_wise_distributed_optimizer).
  if (!on && last_word(at("optimizer", "optimizer")).starts_with("dist_"))
    add("--no-use-layer-wise-param-layout", {}, "ddp.use_distributed_optimizer = False");
  if (has("--use-megatron-fsdp") && at("ddp", "data_parallel_sharding_strategy").is_null())
    add("--data-parallel-sharding-strategy", {"no_shard"},
        "ddp.data_parallel_sharding_strategy (its default)");
  const Json& start = at("scheduler", "start_weight_decay");
  if (start.is_number() && start == at("scheduler", "end_weight_decay"))
    add("--weight-decay", {start.dump()}, "scheduler.start_weight_decay = " + start.dump());
}

void Collector::overlap() {
  const Json& overlap = at_root("comm_overlap");
  if (python::is_unknown(overlap))
    throw ConfigError(fmt::format("{}: comm_overlap: '{}' is not understood",
                                  overlap.value(python::kPlace, recipe_.file), shown(overlap)));
  const bool given = overlap.is_object();
  const auto of = [&](const char* field, bool otherwise) {
    const Json& value = at("comm_overlap", field);
    if (python::is_unknown(value)) fail("comm_overlap", field, value, "True or False");
    return value.is_boolean() ? value.get<bool>() : otherwise;
  };
  for (const char* field : {"overlap_grad_reduce", "overlap_param_gather"}) {
    const bool own = is_true("ddp", field);
    const bool on = given && is_true("ddp", "use_distributed_optimizer") ? of(field, true) : own;
    switch_to(on, megatron::flags_of_field("ddp", field).at(0).flag,
              fmt::format("{}.{}", given ? "comm_overlap" : "ddp", field));
  }
  const bool own_tp = is_true("model", "tp_comm_overlap");
  switch_to(given ? of("tp_comm_overlap", false) : own_tp, "--tp-comm-overlap",
            "comm_overlap.tp_comm_overlap");
  if (given)
    switch_to(of("overlap_moe_expert_parallel_comm", false), "--overlap-moe-expert-parallel-comm",
              "comm_overlap.overlap_moe_expert_parallel_comm");
  const bool interleaved = degree("virtual_pipeline_model_parallel_size") > 1 &&
                           degree("pipeline_model_parallel_size") > 1;
  const bool p2p =
      given ? of("overlap_p2p_comm", interleaved) : is_true("model", "overlap_p2p_comm");
  switch_to(interleaved && !p2p, "--no-overlap-p2p-communication",
            "comm_overlap.overlap_p2p_comm = False");
}

void Collector::learning_rate() {
  const Json& warmup = at("scheduler", "lr_warmup_iters");
  const Json& decay = at("scheduler", "lr_decay_iters");
  if (!warmup.is_number_integer() || !decay.is_number_integer()) return;
  if (decay.get<std::int64_t>() == 0 || warmup.get<std::int64_t>() < decay.get<std::int64_t>())
    return;
  remove("--lr-decay-iters");
  assume(
      fmt::format("the learning rate does not fall (scheduler.lr_warmup_iters = {} is not below "
                  "lr_decay_iters = {})",
                  warmup.dump(), decay.dump()));
}

void Collector::kept_elsewhere() {
  if (is_true("model", "fine_grained_activation_offloading"))
    assume(
        fmt::format("activations stay on the devices (model.offload_modules = {}: the recipe "
                    "moves those to the host)",
                    shown(at("model", "offload_modules"))));
  if (is_true("model", "cpu_offloading"))
    assume(
        fmt::format("activations stay on the devices (model.cpu_offloading: the recipe moves those "
                    "of {} layers to the host)",
                    shown(at("model", "cpu_offloading_num_layers"))));
  const Json& part = at("optimizer", "optimizer_offload_fraction");
  if (has("--optimizer-cpu-offload") && part.is_number() && part.get<double>() < 1)
    assume(
        fmt::format("all of the optimizer's state is on the host "
                    "(optimizer.optimizer_offload_fraction = {})",
                    part.dump()));
}

}  // namespace meshplan::planner::bridge
