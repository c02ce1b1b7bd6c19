// Shell scripts that start a program on Hugging Face's Trainer, or one with its options:
// LLaMA-Factory and axolotl on a YAML or with options, transformers' and TRL's examples,
// DeepSpeed-Chat. A command line becomes the YAML that LLaMA-Factory would have for it.
#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/line.hpp"
#include "core/parse_number.hpp"
#include "core/quoting.hpp"
#include "formats/accelerate/accelerate.hpp"
#include "formats/megatron_launch/training_kind.hpp"
#include "formats/text/imported.hpp"
#include "formats/text/quoting.hpp"
#include "formats/trainer/trainer.hpp"
#include "shell/script.hpp"

namespace meshplan::planner {
namespace trainer {
namespace {

using shell::ScriptCommand;
using shell::Value;

struct Option {
  std::string name;            // with '_'
  std::optional<Value> value;  // absent: a switch
};

std::vector<Option> options_of(const ScriptCommand& command) {
  std::vector<Option> options;
  const std::vector<Value>& words = command.words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i].text;
    if (!word.starts_with("--") || word.size() < 3) continue;
    const std::size_t equals = word.find('=');
    Option option{.name = word.substr(
                      2, equals == std::string_view::npos ? std::string_view::npos : equals - 2)};
    std::ranges::replace(option.name, '-', '_');
    if (equals != std::string_view::npos)
      option.value = shell::part_of(words[i], word.substr(equals + 1));
    else if (i + 1 < words.size() && !words[i + 1].text.starts_with("--"))
      option.value = words[i + 1];
    options.push_back(std::move(option));
  }
  return options;
}

const Option* find_option(const std::vector<Option>& options, std::string_view name) {
  const auto found = std::ranges::find(options.rbegin(), options.rend(), name, &Option::name);
  return found == options.rend() ? nullptr : &*found;
}

/// The value of an option; none where it has none. @throws ConfigError if only a run could tell
std::optional<std::string> known_value(const ScriptCommand& command,
                                       const std::vector<Option>& options, std::string_view name) {
  const Option* option = find_option(options, name);
  if (option == nullptr || !option->value) return std::nullopt;
  if (!option->value->known())
    throw ConfigError(fmt::format("{}:{}: --{}: {}; give it with --env NAME=VALUE or --args",
                                  command.file, command.line, name,
                                  option->value->unknown.front().why));
  return option->value->text;
}

Json scalar(const std::string& text) {
  std::string word = text;
  std::ranges::transform(word, word.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (word == "true" || word == "yes") return true;
  if (word == "false" || word == "no") return false;
  if (const auto whole = parse_integer(text, -limits::kTokens, limits::kTokens)) return *whole;
  if (const auto number = parse_number(text, -limits::kRate, limits::kRate)) return *number;
  return text;
}

bool is_configuration(std::string_view word) {
  return has_ending(word, {".yaml", ".yml"});
}

/// A configuration among the operands of a command, as "train examples/sft.yaml".
std::optional<std::string> operand_configuration(const ScriptCommand& command) {
  for (std::size_t i = 1; i < command.words.size(); ++i) {
    const Value& word = command.words[i];
    const bool is_operand = !command.words[i - 1].text.starts_with("--");
    if (is_operand && word.known() && is_configuration(word.text)) return word.text;
  }
  return std::nullopt;
}

/// The command that trains: the one with most of the options that say so; null where none has.
const ScriptCommand* training_command(const shell::Script& script) {
  constexpr std::array<std::string_view, 7> kSigns = {"model_name_or_path",
                                                      "per_device_train_batch_size",
                                                      "actor_model_name_or_path",
                                                      "per_device_training_batch_size",
                                                      "gradient_accumulation_steps",
                                                      "finetuning_type",
                                                      "config_file"};
  const ScriptCommand* best = nullptr;
  int most = 0;
  for (const ScriptCommand& command : script.commands) {
    int signs = operand_configuration(command) ? 2 : 0;
    for (const Option& option : options_of(command))
      if (std::ranges::find(kSigns, option.name) != kSigns.end()) ++signs;
    if (signs > most) most = signs, best = &command;
  }
  return best;
}

/// The program among a command's words, "main.py"; empty where none is named.
std::string program_of(const ScriptCommand& command) {
  for (const Value& word : command.words)
    if (word.text.ends_with(".py")) return word.text;
  return {};
}

/// Programs that train nothing, and trainings that are not on the next token, by words in the names
/// of folder and program.
void refuse_other_programs(const ScriptCommand& command, const std::string& main) {
  const std::string program = program_of(command);
  const std::string place = fmt::format("{}:{}", command.file, command.line);
  const std::string purpose = program.find("analy") != std::string_view::npos
                                  ? "analyzes data"
                                  : megatron::other_purpose(program);
  if (!purpose.empty())
    throw ConfigError(fmt::format("{}: starts no training, but {}, which {}", place,
                                  short_line(program), purpose));
  const std::string names = main + " " + program;
  for (const std::string_view kind :
       {"reward", "dpo", "grpo", "ppo", "kto", "orpo", "rloo", "rlhf", "cpo", "gkd", "bco"}) {
    const std::size_t at = names.find(kind);
    const bool begins =
        at != std::string_view::npos && (at == 0 || std::isalnum(names[at - 1]) == 0);
    if (begins)
      throw ConfigError(fmt::format(
          "{}: {} compares answers, or generates them; trainings on the next token are read", place,
          kind));
  }
}

/// Does an option say that it trains? A model alone may be served, or looked at.
bool has_sign_of_training(const std::vector<Option>& options) {
  return std::ranges::any_of(options, [](const Option& option) {
    constexpr std::array<std::string_view, 7> kSigns = {"per_device_train_batch_size",
                                                        "gradient_accumulation_steps",
                                                        "do_train",
                                                        "learning_rate",
                                                        "num_train_epochs",
                                                        "zero_stage",
                                                        "deepspeed"};
    return std::ranges::find(kSigns, option.name) != kSigns.end();
  });
}

std::optional<int> ranks_of(const ScriptCommand& command) {
  ScriptArguments arguments;
  arguments.add(command);
  for (const auto& [each, nodes] :
       {std::pair{"num_gpus", "num_nodes"}, std::pair{"nproc_per_node", "nnodes"},
        std::pair{"num_processes", ""}}) {
    const auto gpus = arguments.integer(each, 1, limits::kRanks);
    if (!gpus) continue;
    const std::int64_t number = *gpus * arguments.integer(nodes, 1, limits::kRanks).value_or(1);
    if (number <= limits::kRanks) return static_cast<int>(number);
  }
  return std::nullopt;
}

/// What DeepSpeed-Chat builds of its own options (dschat/utils/ds_utils.py, get_train_ds_config).
Json deepspeed_chat(const ScriptCommand& command, const std::vector<Option>& options) {
  const bool offloads = find_option(options, "offload") != nullptr;
  const std::string dtype = known_value(command, options, "dtype").value_or("fp16");
  Json config = {{"train_micro_batch_size_per_gpu", "auto"},
                 {"gradient_accumulation_steps", "auto"},
                 {dtype == "bf16" ? "bf16" : "fp16", {{"enabled", true}}}};
  Json& zero = config["zero_optimization"];
  zero["stage"] = scalar(known_value(command, options, "zero_stage").value_or("0"));
  zero["overlap_comm"] = true;
  for (const char* const part : {"offload_optimizer", "offload_param"})
    zero[part]["device"] = offloads ? "cpu" : "none";
  return config;
}

/// DeepSpeed-Chat has adapters beside the linears under a part of a module's name, and trains what
/// is no linear too, unless it is told not to (dschat/utils/module/lora.py).
void read_lora_of_chat(const ScriptCommand& command, Json& config) {
  const std::string place = fmt::format("{}:{}", command.file, command.line);
  if (!config.contains("only_optimize_lora"))
    throw ConfigError(fmt::format(
        "{}: --lora_dim without --only_optimize_lora trains norms, biases and embeddings "
        "beside adapters, which is not read",
        place));
  const Json under = config.value("lora_module_name", Json("decoder.layers."));
  if (under != Json("decoder.layers.") && under != Json("model.layers."))
    throw ConfigError(
        fmt::format("{}: --lora_module_name {}: read are decoder.layers. and "
                    "model.layers., which are all linears",
                    place, quoted(under)));
  config["lora_rank"] = config["lora_dim"];
  config["lora_target"] = "all";
}

/// The YAML of LLaMA-Factory that says what the command line does.
Json configuration_of(const ScriptCommand& command, const std::vector<Option>& options,
                      bool is_llama_factory) {
  constexpr std::array<std::string_view, 7> kLengths = {
      "cutoff_len", "max_length", "max_seq_length",  "max_seq_len",
      "block_size", "seq_length", "model_max_length"};
  Json config = Json::object();
  for (const Option& option : options) {
    if (option.value && !option.value->known()) known_value(command, options, option.name);
    config[option.name] = option.value ? scalar(option.value->text) : Json(true);
  }
  if (is_llama_factory) return config;
  for (const std::string_view length : kLengths)
    if (config.contains(length) && !config.contains("cutoff_len"))
      config["cutoff_len"] = config[std::string(length)];
  if (!config.contains("cutoff_len")) config["cutoff_len"] = 1024;
  const bool has_adapters = config.value("use_peft", Json(false)) == Json(true) ||
                            (config.contains("lora_dim") && config["lora_dim"] != Json(0));
  if (has_adapters && config.contains("lora_dim")) read_lora_of_chat(command, config);
  for (const auto& [name, own] :
       {std::pair{"lora_r", "lora_rank"}, std::pair{"lora_target_modules", "lora_target"}})
    if (config.contains(name)) config[own] = config[name];
  config["finetuning_type"] = has_adapters ? "lora" : "full";
  config["stage"] = "sft";
  config["do_train"] = true;
  const Json recomputes = config.value("gradient_checkpointing", Json(false));
  config["disable_gradient_checkpointing"] = recomputes != Json(true);
  if (config.contains("zero_stage"))
    config["deepspeed"] = deepspeed_chat(command, options);
  else if (config.contains("deepspeed_config"))
    config["deepspeed"] = config["deepspeed_config"];
  return config;
}

ImportedPlan read_named_configuration(ImportRequest request, const std::string& path,
                                      const std::vector<Option>& options,
                                      const ScriptCommand& command) {
  std::optional<std::string> text = named_file(request, path);
  if (!text)
    throw ConfigError(fmt::format("{}:{}: {}: there is no such file beside the script or above it",
                                  command.file, command.line, short_line(path)));
  if (const auto launched = known_value(command, options, "config_file"))
    *text += fmt::format("\n# accelerate launch --config_file {}\n", *launched);
  const bool is_axolotl = recognizes_axolotl(path, *text);
  if (!is_axolotl && !recognizes_llama_factory(path, *text))
    throw ConfigError(fmt::format("{}:{}: {}: expected a configuration of LLaMA-Factory or axolotl",
                                  command.file, command.line, short_line(path)));
  const std::string script = request.main;
  const std::string folder = script.substr(0, script.find_last_of('/') + 1);
  request.main = folder + path;
  request.files[request.main] = std::move(*text);
  ImportedPlan imported = is_axolotl ? read_axolotl(request) : read_llama_factory(request);
  imported.assumptions.insert(imported.assumptions.begin(),
                              fmt::format("{} starts {}", script, short_line(path)));
  return imported;
}

ImportedPlan read_command(ImportRequest request, const ScriptCommand& command) {
  refuse_other_programs(command, request.main);
  const std::vector<Option> options = options_of(command);
  if (find_option(options, "actor_model_name_or_path") != nullptr)
    throw ConfigError(
        fmt::format("{}:{}: --actor_model_name_or_path: several models are trained "
                    "(RLHF); trainings on the next token are read",
                    command.file, command.line));
  if (!request.ranks) request.ranks = ranks_of(command);
  request.arguments.reset();  // they were the script's
  if (const auto path = operand_configuration(command))
    return read_named_configuration(std::move(request), *path, options, command);
  const bool is_llama_factory = find_option(options, "finetuning_type") != nullptr;
  if (find_option(options, "model_name_or_path") != nullptr) {
    const bool analyzes = std::ranges::any_of(options, [](const Option& option) {
      return option.name.find("analy") != std::string::npos;
    });
    if (!has_sign_of_training(options) || analyzes)
      throw ConfigError(fmt::format("{}:{}: starts no training: {}", command.file, command.line,
                                    analyzes ? "it analyzes data"
                                             : "no option is of one, such as "
                                               "--per_device_train_batch_size"));
    const Json config = configuration_of(command, options, is_llama_factory);
    request.files[request.main] = yaml_document(config);
    return read_llama_factory(request);
  }
  const auto launched = known_value(command, options, "config_file");
  const auto text = launched ? named_file(request, *launched) : std::nullopt;
  if (!text)
    throw ConfigError(
        fmt::format("{}:{}: starts nothing with --model_name_or_path, and no file "
                    "that --config_file names is beside it",
                    command.file, command.line));
  request.main = request.main.substr(0, request.main.find_last_of('/') + 1) + *launched;
  request.files[request.main] = *text;
  return read_accelerate(request);
}

/// The first value that the script compares an argument with, for an example.
std::string example_of(const shell::Script& script, const std::string& file) {
  std::string arguments;
  for (int number = 1; number <= script.last_argument; ++number) {
    const auto name = script.argument_names.find(std::to_string(number));
    if (name == script.argument_names.end()) return {};
    const auto choices = script.choices.find(std::to_string(number));
    if (choices == script.choices.end() || choices->second.empty()) return {};
    arguments += (arguments.empty() ? "" : " ") + choices->second.back();
  }
  if (arguments.empty()) return {};
  return fmt::format("; for example: meshplan import {} --args {}", shell_quoted(file),
                     shell_quoted(arguments));
}

}  // namespace
}  // namespace trainer

ImportedPlan read_trainer_script(const ImportRequest& request) {
  constexpr int kMostArguments = 16;
  std::map<std::string, std::string> environment = request.environment;
  int number = 0;
  if (request.arguments)
    for (std::string& word : shell::shell_words(*request.arguments))
      environment.insert_or_assign(std::to_string(++number), std::move(word));
  shell::Script script = shell::read_script(request.files, request.main, environment, request.open);
  const bool is_open = !request.arguments && script.last_argument > 0;
  if (is_open) {  // a script that is started without arguments has defaults for them
    for (int i = 1; i <= kMostArguments; ++i) environment.try_emplace(std::to_string(i), "");
    shell::Script alone =
        shell::read_script(request.files, request.main, environment, request.open);
    if (trainer::training_command(alone) != nullptr) script = std::move(alone);
  }
  const shell::ScriptCommand* command = trainer::training_command(script);
  if (command == nullptr)
    throw ConfigError(
        fmt::format("{}: starts no training of a Trainer that can be told from its "
                    "text{}",
                    request.main, trainer::example_of(script, request.main)));
  ImportedPlan imported = trainer::read_command(request, *command);
  if (is_open)
    imported.assumptions.insert(imported.assumptions.begin(),
                                "started without arguments; others with --args");
  for (const std::string& line : script.assumptions) imported.assumptions.push_back(line);
  return imported;
}

bool recognizes_trainer_script(std::string_view name, std::string_view text) {
  const auto has = [&](std::string_view words) {
    return text.find(words) != std::string_view::npos;
  };
  return has_ending(name, {".sh", ".bash", ".slurm", ".sbatch"}) &&
         (has("--model_name_or_path") || has("--per_device_train_batch_size") ||
          has("--actor_model_name_or_path") || has("llamafactory-cli train") ||
          has("axolotl train") || (has("accelerate launch") && has("--config_file")) ||
          (has("accelerate.commands.launch") && has("--config_file")));
}

}  // namespace meshplan::planner
