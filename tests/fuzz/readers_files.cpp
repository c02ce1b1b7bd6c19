// Files of the runtime: those that are mapped are written to memory first.
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <span>
#include <unistd.h>

#include "core/hash.hpp"
#include "core/json_fields.hpp"
#include "fuzz/reader.hpp"
#include "fuzz/samples.hpp"
#include "program/plan_file/plan_file.hpp"
#include "runtime/data/data.hpp"
#include "runtime/data/tokenizer.hpp"
#include "runtime/launch/launch.hpp"
#include "runtime/weights/checkpoint.hpp"
#include "weights/safetensors.hpp"

namespace meshplan::fuzz {
namespace {

namespace fs = std::filesystem;

/// A folder of this process; its name is part of every path below it.
const std::string& folder() {
  static pid_t owner = 0;
  static std::string path;
  if (owner != getpid()) {
    owner = getpid();
    path = fmt::format("/dev/shm/{}-{}", kFile, owner);
    fs::create_directories(path);
    std::atexit([] { fs::remove_all(path); });
  }
  return path;
}

std::string written(const std::string& name, const std::string& bytes) {
  const std::string path = folder() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Consumer read_tokenizer(const std::string& text) {
  const auto tokenizer = std::make_shared<runtime::Tokenizer>(text, kFile);
  return [tokenizer] {
    for (const char* document : {"hello  world!\n", "\xc3\xa9\xf0\x9f\x98\x80 <|end|> a b",
                                 "aaaaaaaaaaaaaaaaaaaaaaaaaaaa!"})
      try {
        tokenizer->decode(tokenizer->encode(document));
      } catch (const ConfigError&) {
        continue;  // a vocabulary need not hold every character
      }
    tokenizer->end_token();
  };
}

Consumer read_hosts(const std::string& text) {
  runtime::parse_hostfile(text, kFile);
  return {};
}

Consumer read_safetensors(const std::string& text) {
  const runtime::SafetensorsFile file(written("tensors.safetensors", text));
  for (const auto& [name, tensor] : file.tensors()) runtime::data_hash(tensor.data);
  return {};
}

Consumer read_tokens(const std::string& text) {
  const char* extension = text.size() % 2 == 0 ? ".u16" : ".bin";
  const runtime::TokenFile file(written(std::string("tokens") + extension, text));
  program::Plan plan = sample_plan({}, 1);
  plan.workload.seq_len = 8;
  if (text.front() % 2 != 0) {
    plan.workload.documents.packed = true;
    plan.workload.documents.end_of_document = 3;
  }
  const runtime::Sampler sampler(file, {0, file.size()}, plan, 1);
  runtime::StepBatch batch;
  for (int step = 0; step < 2; ++step) sampler.load(step, {}, batch);
  return {};
}

/// An index whose own hash is right, so that what lies behind that check is reached.
std::string with_hash(const std::string& text) {
  Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object() || !root.contains("index_hash")) return text;
  Json bare = root;
  bare.erase("index_hash");
  root["index_hash"] = hex(content_hash(bare.dump(-1, ' ', false, Json::error_handler_t::replace)));
  return root.dump(1, ' ', false, Json::error_handler_t::replace);
}

std::string tensor_file() {
  std::vector<float> data(6);
  std::iota(data.begin(), data.end(), 0.0F);
  const std::vector<runtime::SafeTensorSpec> specs{{.name = "w", .shape = {2, 3}}};
  const std::string path = folder() + "/made.safetensors";
  runtime::SafetensorsWriter writer(path, specs, {{"format", "pt"}});
  writer.append(std::as_bytes(std::span(data)));
  writer.finish();
  return text_of(path);
}

Consumer read_checkpoint(const std::string& text) {
  static const std::string tensors = tensor_file();
  written("rank-0.safetensors", tensors);
  written(runtime::kIndexFile, with_hash(text));
  runtime::Checkpoint checkpoint(folder());
  checkpoint.verify();
  const program::Plan plan = sample_plan();
  runtime::check_fits(checkpoint.index(), kFile, plan, runtime::ResumeKind::Continue);
  return {};
}

Consumer read_manifest(const std::string& text) {
  runtime::parse_manifest(text, kFile);
  return {};
}

runtime::CheckpointManifest sample_manifest() {
  const std::string tensors = tensor_file();
  const std::string data = tensors.substr(tensors.size() - 6 * sizeof(float));
  const std::string hash = runtime::data_hash(std::as_bytes(std::span(data)));
  return {.files = {{.name = "rank-0.safetensors", .bytes = std::ssize(tensors)}},
          .tensors = {{.state = "weights",
                       .parameter = "embedding.embed_tokens.weight",
                       .shape = {2, 3},
                       .pieces = {{.file = "rank-0.safetensors",
                                   .tensor = "w",
                                   .begin = {0, 0},
                                   .size = {2, 3},
                                   .hash = hash}}}}};
}

std::vector<std::string> checkpoint_seeds() {
  runtime::CheckpointIndex index;
  index.run.step = 3;
  index.run.next_sequence = 24;
  index.run.data.file = "book.u16";
  index.run.data.tokens = 1000;
  index.run.losses = {2.5, 2.25};
  index.plan_json = program::to_json(sample_plan());
  index.manifest = sample_manifest();
  return {runtime::to_json(index)};
}

std::vector<std::string> tokenizer_seeds() {
  const std::string model = R"json("model": {"type": "BPE", "byte_fallback": true, "unk_token": "h",
    "vocab": {"h": 0, "e": 1, "l": 2, "o": 3, "\u0120": 4, "w": 5, "a": 6, "ll": 7, "he": 8,
              "aa": 9, "<0x0A>": 10, "\u2581": 11},
    "merges": ["l l", "h e", ["a", "a"]]})json";
  const std::string bytes =
      R"json(, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false})json";
  const std::string normalized =
      R"json(, "added_tokens": [{"id": 20, "content": "<|end|>", "lstrip": true, "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, {"type": "NFKC"}]})json";
  const std::string split = R"json(, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "behavior": "MergedWithNext", "invert": false,
       "pattern": {"Regex": "[^\\r\\n\\p{L}]?\\p{L}+|\\p{N}{1,3}|\\s+(?!\\S)"}},
      {"type": "Digits"}, {"type": "Metaspace", "prepend_scheme": "first"}]})json";
  return {"{" + model + bytes + "}", "{" + model + normalized + "}", "{" + model + split + "}"};
}

}  // namespace

std::vector<Reader> file_readers() {
  std::string tokens;
  for (int i = 0; i < 64; ++i) tokens += {static_cast<char>(i % 7), '\0'};
  return {{"tokenizer", 10, 2, true, read_tokenizer, tokenizer_seeds()},
          {"hostfile",
           20,
           2,
           true,
           read_hosts,
           {"node1 slots=4\nnode2:2 # comment\n\nlocalhost\n", "a\nb\nc\n"}},
          {"safetensors", 10, 2, true, read_safetensors, {tensor_file()}},
          {"tokens", 6, 2, true, read_tokens, {tokens}},
          {"checkpoint", 3, 2, true, read_checkpoint, checkpoint_seeds()},
          {"manifest", 8, 2, true, read_manifest, {runtime::to_json(sample_manifest())}}};
}

}  // namespace meshplan::fuzz
