// JSON of what changed with a stack's releases, a part of its profile.
#pragma once

#include <fmt/format.h>
#include <optional>
#include <string>

#include "clusters/architecture_names.hpp"
#include "core/error.hpp"
#include "core/json_fields.hpp"
#include "program/plan_file/stack_fields.hpp"
#include "sim/stacks/release.hpp"

namespace meshplan {

template <>
struct EnumNames<sim::FlashGeneration> {
  static constexpr std::array<std::pair<sim::FlashGeneration, std::string_view>, 3> value = {
      {{sim::FlashGeneration::One, "flash-1"},
       {sim::FlashGeneration::Two, "flash-2"},
       {sim::FlashGeneration::Three, "flash-3"}}};
};

template <>
struct EnumNames<sim::RunPrecision> {
  static constexpr std::array<std::pair<sim::RunPrecision, std::string_view>, 6> value = {
      {{sim::RunPrecision::Bf16, "bf16"},
       {sim::RunPrecision::Fp16, "fp16"},
       {sim::RunPrecision::Fp8, "fp8"},
       {sim::RunPrecision::MxFp8, "mxfp8"},
       {sim::RunPrecision::Fp8Block, "fp8-block"},
       {sim::RunPrecision::NvFp4, "nvfp4"}}};
};

}  // namespace meshplan

namespace meshplan::sim {

template <class Visitor>
void fields(Visitor& v, ReleaseChange& c) {
  RawJson profile{c.profile.empty() ? Json::object() : Json::parse(c.profile)};
  v.required("since", c.since, "the first release that has it");
  v.required("source", c.source, "where it is public");
  v.required("profile", profile, "fields of the profile as they are from then on");
  v.optional("dated", c.dated, "not of runs whose release nobody knows");
  c.profile = profile.value.dump();
}

template <class Visitor>
void fields(Visitor& v, RecipePlace& p) {
  v.optional("architecture", p.architecture, "of the devices");
  v.optional("racks", p.racks, "NVLink joins the devices of several nodes");
  v.optional("experts", p.experts, "models with them, or without");
  v.optional("fused_dispatch", p.fused_dispatch,
             "runs that state a fused dispatcher without its name, or others");
  v.optional("precisions", p.precisions, "none: any");
}

template <class Visitor>
void fields(Visitor& v, ReleaseRecipe& r) {
  v.required("since", r.since, "the first release whose recipes choose it");
  v.required("source", r.source, "where it is public");
  v.required("where", r.where, "for which runs");
  v.optional("settings", r.settings, "that it chooses");
  v.optional("flash", r.flash, "generation of fused attention");
}

template <class Visitor>
void fields(Visitor& v, Releases& r) {
  v.required("named_by", r.named_by, "what the numbers are of");
  v.required("oldest", r.oldest, "that the profile describes");
  v.optional("changes", r.changes, "of the software, oldest first");
  v.optional("recipes", r.recipes, "oldest first");
}

/// @throws ConfigError for a release that is no list of numbers, or older than one before it
inline void require_in_order(const Releases& releases, const std::string& file) {
  std::optional<Release> last;
  const auto require = [&](const std::string& since, const std::string& path) {
    const std::optional<Release> release = Release::parse(since);
    if (release && (!last || *release >= *last)) {
      last = release;
      return;
    }
    throw ConfigError(
        fmt::format("{}: {}: '{}': expected numbers joined by dots, not before those above", file,
                    path, since));
  };
  if (!releases.oldest.empty()) require(releases.oldest, "releases.oldest");
  const std::optional<Release> oldest = last;
  for (std::size_t i = 0; i < releases.changes.size(); ++i)
    require(releases.changes[i].since, fmt::format("releases.changes[{}].since", i));
  last = oldest;
  for (std::size_t i = 0; i < releases.recipes.size(); ++i)
    require(releases.recipes[i].since, fmt::format("releases.recipes[{}].since", i));
}

}  // namespace meshplan::sim
