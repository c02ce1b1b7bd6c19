// The index of a checkpoint as JSON.
#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <xxhash.h>

#include "core/hash.hpp"
#include "core/json_fields.hpp"
#include "runtime/weights/checkpoint.hpp"
#include "weights/safetensors.hpp"

namespace meshplan::runtime {

// Found by argument-dependent lookup, hence not in the unnamed namespace.
template <class V>
void fields(V& v, CheckpointPiece& p) {
  v.required("file", p.file, "of this folder");
  v.required("tensor", p.tensor, "its name in that file");
  v.required("begin", p.begin, "first element in the parameter, by dimension");
  v.required("size", p.size, "elements by dimension");
  v.required("hash", p.hash, "XXH3 (64 bits) of its bytes");
}

template <class V>
void fields(V& v, CheckpointTensor& t) {
  v.required("state", t.state, "weights, moment1 or moment2");
  v.required("parameter", t.parameter, "name, unsharded");
  v.required("shape", t.shape, "unsharded, without padding");
  v.required("pieces", t.pieces, "disjoint parts that cover it");
}

template <class V>
void fields(V& v, CheckpointFile& f) {
  v.required("name", f.name, "in this folder");
  v.required("bytes", f.bytes, "its size", at_least(0));
  v.optional("hash", f.hash, "XXH3 of its header if it holds tensors, else of all of it");
}

template <class V>
void fields(V& v, CheckpointManifest& m) {
  v.required("files", m.files, "safetensors files");
  v.required("tensors", m.tensors, "what they hold");
}

template <class V>
void fields(V& v, DataIdentity& d) {
  v.required("file", d.file, "as it was named");
  v.required("tokens", d.tokens, "of the whole file", at_least(0));
  v.required("training_tokens", d.training_tokens, "without what is held out", at_least(0));
  v.required("fingerprint", d.fingerprint, "of its size and ends");
}

template <class V>
void fields(V& v, LossScaleState& s) {
  v.required("scale", s.scale, "of the next step", at_least(1));
  v.required("good_steps", s.good_steps, "since it changed last", at_least(0));
  v.required("skipped_steps", s.skipped_steps, "of the run", at_least(0));
}

template <class V>
void fields(V& v, LossScaling& s) {
  v.required("initial", s.initial, "scale of the first step", at_least(1));
  v.required("growth", s.growth, "factor after an interval without an overflow", at_least(1));
  v.required("backoff", s.backoff, "factor after an overflow", at_least(0));
  v.required("growth_interval", s.growth_interval, "steps", at_least(1));
}

template <class V>
void fields(V& v, RunSettings& s) {
  v.required("num_steps", s.num_steps, "of the whole run, as it was asked for", at_least(1));
  v.required("loss_scaling", s.loss_scaling, "fp16; not used in other precisions");
}

template <class V>
void fields(V& v, RunState& r) {
  v.optional("id", r.id, "of the run, kept when it is resumed");
  v.required("step", r.step, "optimizer steps that are done", at_least(0));
  v.required("next_sequence", r.next_sequence, "place in the order of all sequences", at_least(0));
  v.required("seed", r.seed, "of initial weights and data order");
  v.required("data", r.data, "what it is trained on");
  v.required("losses", r.losses, "of the last steps, oldest first");
  v.optional("loss_scale", r.loss_scale, "fp16; null in other precisions");
  v.optional("settings", r.settings, "what the run was started with beside its plan");
}

namespace {

constexpr int kSchemaVersion = 1;

/// The file as it is written.
struct IndexFile {
  int schema_version = kSchemaVersion;
  std::string index_hash;
  RunState run;
  std::string plan_hash;
  RawJson plan;
  CheckpointManifest manifest;
  std::vector<CheckpointFile> companions;
};

template <class V>
void fields(V& v, IndexFile& f) {
  v.required("schema_version", f.schema_version, "of this file");
  v.required("index_hash", f.index_hash, "of this file without this key");
  v.required("run", f.run, "where the run stands");
  v.required("plan_hash", f.plan_hash, "of the plan that saved it");
  v.required("plan", f.plan, "the plan that saved it");
  v.required("manifest", f.manifest, "where every parameter lies");
  v.optional("companions", f.companions, "Hugging Face files that travel along");
}

std::string hash_without_itself(Json root) {
  root.erase("index_hash");
  return hex(content_hash(root.dump()));
}

std::string index_text(const Json& root) {
  return root.dump(1) + "\n";
}

/// The hash is of what the text says. Its spaces and other spellings of the same value are covered
/// by there being one text for it, which all versions have written.
void require_as_written(const Json& root, std::string_view text, const std::string& file) {
  const std::string written = index_text(root);
  if (text == written) return;
  const auto differing = std::ranges::mismatch(text, written).in1 - text.begin();
  throw ConfigError(fmt::format("{}: byte {} is not as it was written: it is damaged or was edited",
                                file, differing));
}

}  // namespace

std::string data_hash(std::span<const std::byte> data) {
  return hex(XXH3_64bits(data.data(), data.size()));
}

std::string to_json(const CheckpointManifest& manifest) {
  return write_json(manifest).dump() + "\n";
}

CheckpointManifest parse_manifest(std::string_view text, const std::string& file) {
  return read_json<CheckpointManifest>(text, file);
}

std::string to_json(const CheckpointIndex& index) {
  Json root = write_json(IndexFile{.run = index.run,
                                   .plan_hash = index.plan_hash,
                                   .plan = {Json::parse(index.plan_json)},
                                   .manifest = index.manifest,
                                   .companions = index.companions});
  root["index_hash"] = hash_without_itself(root);
  return index_text(root);
}

CheckpointIndex parse_index(std::string_view text, const std::string& file) {
  const Json root = parse_json(text, file);
  const bool versioned = root.is_object() && root.contains("schema_version");
  if (versioned && root["schema_version"] != kSchemaVersion)
    throw ConfigError(fmt::format("{}: schema_version: {}; this program reads {}", file,
                                  root["schema_version"].dump(), kSchemaVersion));
  auto parsed = read_json<IndexFile>(text, file);
  const std::string actual = hash_without_itself(root);
  if (parsed.index_hash != actual)
    throw ConfigError(
        fmt::format("{}: index_hash: {} does not match the file, which hashes to {}: "
                    "it is damaged or was edited",
                    file, parsed.index_hash, actual));
  require_as_written(root, text, file);
  return {.run = std::move(parsed.run),
          .plan_hash = std::move(parsed.plan_hash),
          .plan_json = parsed.plan.value.dump(),
          .manifest = std::move(parsed.manifest),
          .companions = std::move(parsed.companions)};
}

}  // namespace meshplan::runtime
