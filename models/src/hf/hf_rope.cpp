// Rotary positions of Hugging Face configs: `rope_theta` and `rope_scaling` of transformers 4,
// `rope_parameters` of transformers 5, flat or one object per kind of layer.
#include <cmath>
#include <fmt/format.h>

#include "hf/family_parts.hpp"
#include "hf/sizes.hpp"

namespace meshplan::models {
namespace {

struct RopeKeys {
  std::optional<double> base;
  std::optional<double> partial_factor;
  std::optional<RopeScaling> scaling;
};

void read_llama3(HfConfig& rope, RopeScaling& scaling) {
  scaling.factor = rope.number({"factor"});
  scaling.low_frequency_factor = rope.number({"low_freq_factor"});
  scaling.high_frequency_factor = rope.number({"high_freq_factor"});
  scaling.original_max_positions = rope.positive({"original_max_position_embeddings"});
}

void read_yarn(HfConfig& rope, const ModelSpec& spec, RopeScaling& scaling) {
  if (rope.has("original_max_position_embeddings")) {
    scaling.original_max_positions = rope.positive({"original_max_position_embeddings"});
  } else {
    scaling.original_max_positions = spec.max_positions;
    rope.assume(fmt::format("original_max_position_embeddings = {} (max_position_embeddings)",
                            spec.max_positions));
  }
  const double quotient = static_cast<double>(spec.max_positions) / *scaling.original_max_positions;
  scaling.factor = rope.own_number("factor").value_or(quotient);
  if (std::abs(scaling.factor - quotient) > 0.01 * quotient)
    rope.assume(
        fmt::format("rope factor = {} as given; transformers 4 takes max_position_embeddings / "
                    "original_max_position_embeddings = {} instead",
                    scaling.factor, quotient));
  scaling.attention_factor = rope.own_number("attention_factor");
  scaling.mscale = rope.own_number("mscale");
  scaling.mscale_all_dim = rope.own_number("mscale_all_dim");
  // As in transformers, where 0 means the default, too.
  if (const double fast = rope.own_number("beta_fast").value_or(0.0); fast != 0.0)
    scaling.beta_fast = fast;
  if (const double slow = rope.own_number("beta_slow").value_or(0.0); slow != 0.0)
    scaling.beta_slow = slow;
  scaling.truncate = rope.flag_or({"truncate"}, true);
}

std::optional<RopeScaling> read_scaling(HfConfig& rope, ModelSpec& spec) {
  const std::string_view key = rope.has("rope_type") ? "rope_type" : "type";
  rope.ignore(key == "rope_type" ? "type" : "rope_type", "said by " + std::string(key));
  const std::string type = rope.own_text(key).value_or("default");
  for (const char* parts : {"mrope_section", "mrope_interleaved"})
    rope.ignore(parts, "of images: text has the same position in every part");
  const auto ignore_original = [&] {
    rope.ignore("original_max_position_embeddings",
                fmt::format("transformers does not read it for type '{}'", type));
  };
  RopeScaling scaling;
  if (type == "default" || type == "mrope" || type == "proportional") {
    ignore_original();
    rope.ignore("factor", "type is 'default'");
    return std::nullopt;
  }
  if (type == "linear" || type == "dynamic") {
    scaling.kind = type == "linear" ? RopeScalingKind::Linear : RopeScalingKind::Dynamic;
    scaling.factor = rope.number({"factor"});
    ignore_original();
  } else if (type == "yarn") {
    scaling.kind = RopeScalingKind::Yarn;
    read_yarn(rope, spec, scaling);
  } else if (type == "llama3") {
    scaling.kind = RopeScalingKind::Llama3;
    read_llama3(rope, scaling);
  } else if (type == "longrope" || type == "su") {
    predict_only(spec,
                 "rotary frequencies whose factors change with the length of each sequence "
                 "(longrope)");
    for (const char* factors : {"short_factor", "long_factor", "factor", "attention_factor",
                                "short_mscale", "long_mscale"})
      rope.ignore(factors, "longrope: the products are the same");
    ignore_original();
    return std::nullopt;
  } else {
    rope.fail(key,
              unknown_name_message("rope type", type,
                                   {"default", "linear", "dynamic", "yarn", "llama3", "longrope"}));
  }
  return scaling;
}

RopeKeys read_rope_object(HfConfig& rope, ModelSpec& spec) {
  return {.base = rope.own_number("rope_theta"),
          .partial_factor = rope.own_number("partial_rotary_factor"),
          .scaling = read_scaling(rope, spec)};
}

/// Sliding layers rotate like the full ones, or by a base of their own without scaling.
std::optional<double> local_base(const HfConfig& sliding, const RopeKeys& local,
                                 const RopeKeys& full, RotatedParts parts) {
  const bool own_part = parts == RotatedParts::OfEachKind;
  if (local.base == full.base && local.scaling == full.scaling &&
      (own_part || local.partial_factor == full.partial_factor))
    return std::nullopt;
  if (local.scaling)
    sliding.fail("rope_type",
                 "a scaling of the sliding layers that the full layers do not share is not "
                 "supported; expected 'default' or what full_attention has");
  if (!own_part && local.partial_factor.value_or(1.0) != full.partial_factor.value_or(1.0))
    sliding.fail(
        "partial_rotary_factor",
        fmt::format("{}, but {} of the full layers: one rotated part for all layers is "
                    "supported",
                    local.partial_factor.value_or(1.0), full.partial_factor.value_or(1.0)));
  if (!local.base) sliding.fail("rope_theta", "required key is missing");
  return local.base;
}

RopeKeys read_rope(const HfConfig& config, ModelSpec& spec, RotatedParts parts) {
  auto rope = config.object("rope_parameters");
  if (!rope) {
    auto scaling = config.object("rope_scaling");
    return scaling ? read_rope_object(*scaling, spec) : RopeKeys{};
  }
  config.ignore("rope_scaling", "said by rope_parameters");
  auto full = rope->object("full_attention");
  if (!full) return read_rope_object(*rope, spec);
  RopeKeys keys = read_rope_object(*full, spec);
  if (auto sliding = rope->object("sliding_attention"))
    spec.local_rope_base = local_base(*sliding, read_rope_object(*sliding, spec), keys, parts);
  return keys;
}

}  // namespace

void fill_rope(HfConfig& config, ModelSpec& spec, RotatedParts parts) {
  const RopeKeys keys = read_rope(config, spec, parts);
  spec.positions = Positions::Rope;
  if (keys.base) config.ignore("rope_theta", "said by rope_parameters");
  spec.rope_base = keys.base ? *keys.base : config.number({"rope_theta"});
  const auto partial =
      keys.partial_factor ? keys.partial_factor : config.optional_number({"partial_rotary_factor"});
  if (partial && *partial != 1.0) spec.rope_size = as_size(spec.head_size * *partial);
  spec.rope_scaling = keys.scaling;
}

}  // namespace meshplan::models
