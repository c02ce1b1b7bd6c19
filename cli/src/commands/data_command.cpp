// meshplan data: text to token files, what a token file holds, and the order a run reads it in.
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <unistd.h>
#include <vector>

#include "commands/commands.hpp"
#include "commands/data_order.hpp"
#include "core/json_fields.hpp"
#include "core/paths.hpp"
#include "output/output.hpp"
#include "output/progress.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "runtime/data/data.hpp"
#include "runtime/data/tokenizer.hpp"
#include "runtime/os/durable_file.hpp"

namespace meshplan::cli {
namespace {

struct DataOptions {
  std::optional<std::string> action;
  std::vector<std::string> inputs;
  std::optional<std::string> tokenizer;
  std::optional<std::string> out;
  std::optional<std::string> end_token;
  bool no_end_token = false;
  int sample = 40;
  DataOrderOptions order;
  bool json = false;
  Terminal terminal;
};

const std::vector<std::string> kDataActions = {"prepare", "inspect", "order"};

/// A folder means the tokenizer.json in it.
runtime::Tokenizer load_tokenizer(const std::string& given) {
  const std::string path = is_folder(given) ? given + "/tokenizer.json" : given;
  return runtime::Tokenizer(read_file(path), path);
}

/// Documents of a file: lines with a "text" of *.jsonl, else all of it.
class Documents {
 public:
  explicit Documents(const std::string& path)
      : path_(path), file_(path), lines_(std::filesystem::path(path).extension() == ".jsonl") {}

  /// Nothing when all were given.
  std::optional<std::string> next() {
    const auto bytes = file_.bytes();
    const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    while (at_ < all.size()) {
      if (!lines_) {
        at_ = all.size();
        return std::string(all);
      }
      const std::size_t end = std::min(all.find('\n', at_), all.size());
      const std::string_view line = all.substr(at_, end - at_);
      at_ = end + 1;
      ++line_;
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const std::string where = fmt::format("{}: line {}", path_, line_);
      const Json object = parse_json(line, where);
      if (!object.is_object() || !object.contains("text") || !object["text"].is_string())
        throw ConfigError(fmt::format("{}: expected an object with a string \"text\"", where));
      return object["text"].get<std::string>();
    }
    return std::nullopt;
  }
  std::string where() const { return lines_ ? fmt::format("{}: line {}", path_, line_) : path_; }

 private:
  std::string path_;
  runtime::MappedFile file_;
  bool lines_;
  std::size_t at_ = 0;
  std::int64_t line_ = 0;
};

/// Appends token ids of 16 or 32 bits; the file appears when it is complete.
class TokenWriter {
 public:
  TokenWriter(const std::string& path, bool wide)
      : path_(path),
        temporary_(fmt::format("{}.{}.tmp", path, getpid())),
        wide_(wide),
        unfinished_(temporary_),
        file_(temporary_) {}

  void append(const std::vector<std::uint32_t>& tokens) {
    if (wide_) {
      file_.append(std::as_bytes(std::span(tokens)));
    } else {
      std::vector<std::uint16_t> narrow;
      narrow.reserve(tokens.size());
      for (const std::uint32_t token : tokens) narrow.push_back(static_cast<std::uint16_t>(token));
      file_.append(std::as_bytes(std::span(narrow)));
    }
  }
  void finish() {
    file_.finish();
    std::filesystem::rename(temporary_, path_);
    UnfinishedFile::finished();
  }

 private:
  std::string path_;
  std::string temporary_;
  bool wide_;
  UnfinishedFile unfinished_;
  runtime::DurableFile file_;
};

std::optional<std::uint32_t> end_of_document(const DataOptions& options,
                                             const runtime::Tokenizer& tokenizer) {
  if (options.no_end_token) return std::nullopt;
  const auto name = options.end_token ? options.end_token : tokenizer.end_token();
  if (!name)
    throw ConfigError(
        "the tokenizer has no end-of-document token that is known; name it with "
        "--end-token, or use --no-end-token");
  const auto id = tokenizer.id_of(*name);
  if (!id) throw ConfigError(fmt::format("--end-token {}: the tokenizer has no such token", *name));
  return id;
}

/// The path with the extension of its width: what TokenFile tells the format from.
std::string output_path(const DataOptions& options, bool wide) {
  if (!options.out) throw ConfigError("--out is missing; for example --out book.u16");
  const std::string extension = wide ? ".u32" : ".u16";
  const std::string given = std::filesystem::path(*options.out).extension();
  if (given == extension) return *options.out;
  if (given == ".u16" || given == ".u32")
    throw ConfigError(fmt::format("--out {}: this vocabulary needs {}", *options.out, extension));
  return *options.out + extension;
}

int prepare(const DataOptions& options) {
  if (!options.tokenizer)
    throw ConfigError("--tokenizer is missing; for example --tokenizer llama/tokenizer.json");
  const runtime::Tokenizer tokenizer = load_tokenizer(*options.tokenizer);
  const bool wide = tokenizer.vocab_size() > std::numeric_limits<std::uint16_t>::max() + 1;
  const auto end = end_of_document(options, tokenizer);
  const std::string path = output_path(options, wide);
  std::size_t total = 0;
  for (const std::string& input : options.inputs)
    total += runtime::MappedFile(input).bytes().size();
  TokenWriter writer(path, wide);
  Progress progress("reading text", options.terminal);
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  std::size_t bytes = 0;
  for (const std::string& input : options.inputs) {
    Documents all(input);
    while (const auto document = all.next()) {
      std::vector<std::uint32_t> ids;
      try {
        ids = tokenizer.encode(*document);
      } catch (const ConfigError& error) {
        throw ConfigError(fmt::format("{}: {}", all.where(), error.what()));
      }
      if (end) ids.push_back(*end);
      writer.append(ids);
      tokens += std::ssize(ids);
      ++documents;
      bytes += document->size();
      progress.update(std::min(bytes, total), std::max<std::size_t>(total, 1));
    }
  }
  if (tokens == 0) throw ConfigError("the input holds no text");
  writer.finish();
  output("{}: {} tokens of {} documents, {:.2f} bytes a token, vocabulary {}\n", path, tokens,
         documents, static_cast<double>(bytes) / static_cast<double>(tokens),
         tokenizer.vocab_size());
  return kDone;
}

int inspect(const DataOptions& options) {
  for (const std::string& input : options.inputs) {
    const runtime::TokenFile file(input);
    std::int32_t largest = 0;
    std::vector<bool> seen;
    for (std::int64_t i = 0; i < file.size(); ++i) {
      const std::int32_t token = file[i];
      if (token < 0) throw ConfigError(fmt::format("{}: token {} is no token id", input, i));
      largest = std::max(largest, token);
      if (static_cast<std::size_t>(token) >= seen.size())
        seen.resize(static_cast<std::size_t>(token) + 1);
      seen[static_cast<std::size_t>(token)] = true;
    }
    const auto distinct = std::ranges::count(seen, true);
    std::vector<std::uint32_t> first;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(options.sample, file.size()); ++i)
      first.push_back(static_cast<std::uint32_t>(file[i]));
    std::optional<std::string> text;
    if (options.tokenizer) text = load_tokenizer(*options.tokenizer).decode(first);
    if (options.json) {
      Json root{{"schema_version", 1}, {"file", input},        {"tokens", file.size()},
                {"largest", largest},  {"distinct", distinct}, {"first", first}};
      if (text) root["text"] = *text;
      output("{}\n", root.dump(2, ' ', false, Json::error_handler_t::replace));
      continue;
    }
    output("{}: {} tokens, {} distinct, largest {} (vocab_size of a model: {} or more)\n", input,
           file.size(), distinct, largest, largest + 1);
    if (text)
      output("starts with: {}\n", Json(*text).dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return kDone;
}

int order(const DataOptions& options) {
  if (options.inputs.size() != 1)
    throw ConfigError(
        fmt::format("expected one plan, got {} files; usage: meshplan data order "
                    "plan.json --data book.u16",
                    options.inputs.size()));
  DataOrderOptions of_run = options.order;
  of_run.plan = options.inputs.front();
  of_run.json = options.json;
  return print_data_order(of_run);
}

int run(const DataOptions& options) {
  if (!options.action || std::ranges::find(kDataActions, *options.action) == kDataActions.end())
    throw ConfigError(
        options.action
            ? unknown_name_message("action", *options.action, kDataActions)
            : "what to do? usage: meshplan data prepare book.txt --tokenizer DIR --out book.u16");
  if (options.inputs.empty())
    throw ConfigError(fmt::format("which files? usage: meshplan data {} FILE...", *options.action));
  if (options.sample < 0)
    throw ConfigError(fmt::format("--sample {}: must be at least 0", options.sample));
  if (*options.action == "order") return order(options);
  return *options.action == "prepare" ? prepare(options) : inspect(options);
}

}  // namespace

void add_data_command(CommandLine& line) {
  const auto options = std::make_shared<DataOptions>();
  options->terminal = line.terminal();
  Command command = line.add("data", "Turn text into token files; inspect them; show their order");
  command.positional("action", options->action, "prepare, inspect or order")
      .suggests({"prepare", "inspect", "order"})
      .rest(options->inputs,
            "text files (a document each), *.jsonl (a document a line, its \"text\"); inspect: "
            "token files; order: a plan")
      .takes_file()
      .option("--tokenizer", options->tokenizer,
              "tokenizer.json of a BPE (Hugging Face), or the folder that holds it")
      .is_path()
      .option("--out", options->out, "token file; *.u16, or *.u32 for more than 65,536 tokens")
      .is_path()
      .option("--end-token", options->end_token,
              "put behind every document; default: the usual one")
      .flag("--no-end-token", options->no_end_token, "put nothing behind documents")
      .option("--sample", options->sample, "inspect: tokens to show")
      .option("--data", options->order.data, "order: the token file, as in meshplan run")
      .is_path()
      .option("--seed", options->order.seed, "order: of the run; default: 1")
      .option("--first-step", options->order.first_step, "order: first step to show; default: 0")
      .option("--steps", options->order.num_steps, "order: how many steps; default: 1")
      .option("--eval-every", options->order.evaluate_every,
              "order: of the run; more than 0 holds the file's tail out")
      .flag("--json", options->json, "inspect, order: print for programs")
      .examples(
          "  meshplan data prepare book.txt --tokenizer llama/tokenizer.json --out book.u32\n"
          "  meshplan data inspect book.u32 --tokenizer llama\n"
          "  meshplan data order plan.json --data book.u32 --steps 2\n"
          "  meshplan run plan.json --data book.u32")
      .on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
