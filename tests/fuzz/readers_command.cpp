// The command line itself, one argument a line. Commands that start ranks or write files are left
// out.
#include <algorithm>
#include <sstream>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "fuzz/reader.hpp"

namespace meshplan::fuzz {
namespace {

const std::vector<std::string> kCommands{"clusters", "mesh",     "models",
                                         "plan",     "schedule", "simulate"};

std::vector<std::string> arguments_of(const std::string& text) {
  std::vector<std::string> arguments;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    arguments.push_back(line.substr(0, line.find('\0')));
  return arguments;
}

/// Does an option name a file to write? Short ones may be joined: -jo.
bool writes(const std::string& argument) {
  const bool is_short = argument.size() > 1 && argument[0] == '-' && argument[1] != '-';
  if (is_short) return argument.find('o') != std::string::npos;
  for (const char* option : {"--out", "--csv", "--trace", "--chrome", "--memory-svg", "--program"})
    if (argument.starts_with(option)) return true;
  return false;
}

/// A file that never ends, or something of this machine.
bool is_path(const std::string& argument) {
  return argument.find('/') != std::string::npos || argument.find("..") != std::string::npos;
}

Consumer run_command(const std::string& text) {
  std::vector<std::string> arguments = arguments_of(text);
  if (arguments.empty() || std::ranges::find(kCommands, arguments.front()) == kCommands.end() ||
      std::ranges::any_of(arguments, writes) || std::ranges::any_of(arguments, is_path))
    return {};
  arguments.insert(arguments.begin(), "meshplan");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  cli::CommandLine line(cli::Terminal{});
  cli::add_plan_command(line);
  cli::add_simulate_command(line);
  cli::add_mesh_command(line);
  cli::add_schedule_command(line);
  cli::add_models_command(line);
  cli::add_clusters_command(line);
  line.run(static_cast<int>(arguments.size()), pointers.data());
  return {};
}

std::string lines(std::initializer_list<const char*> arguments) {
  std::string text;
  for (const char* argument : arguments) text += std::string(argument) + "\n";
  return text;
}

}  // namespace

std::vector<Reader> command_readers() {
  return {
      {"command",
       2,
       1,
       false,
       run_command,
       {lines({"mesh", "--tp", "2", "--cp", "2", "--pp", "2", "--dp", "2", "--ep", "2", "--json"}),
        lines({"mesh", "--tp", "4", "--dp", "16", "--rank", "10", "--order", "tp-cp-ep-dp-pp"}),
        lines({"schedule", "--schedule", "zb-v", "--pp", "4", "--microbatches", "8", "--json"}),
        lines({"schedule", "--schedule", "interleaved", "--pp", "4", "--vpp", "2"}),
        lines({"models", "tiny-llama", "--json"}), lines({"clusters", "dgx-h100:2+dgx-a100:2"}),
        lines({"simulate", "--model", "tiny-llama", "--cluster", "cpu-host", "--tp", "2", "--pp",
               "2", "--dp", "1", "--global-batch", "4", "--seq-len", "64", "--micro-batch", "1"}),
        lines({"simulate",
               "-m",
               "tiny-moe",
               "-c",
               "dgx-h100",
               "--tp",
               "2",
               "--sp",
               "--dp",
               "2",
               "--ep",
               "2",
               "--zero",
               "1",
               "-b",
               "8",
               "-s",
               "64",
               "--vpp",
               "1",
               "--precision",
               "bf16",
               "--expert-imbalance",
               "1.5",
               "--json"}),
        lines({"plan", "--model", "tiny-llama", "--cluster", "cpu-host", "--gpus", "2",
               "--global-batch", "4", "--seq-len", "64", "--threads", "1", "--top", "2"}),
        lines({"simulate", "--model", "tiny-llama", "--cluster", "dgx-h100", "--dp", "16",
               "--global-batch", "16", "--seq-len", "64", "--set", "network=0.5", "--set",
               "fabric[0].latency_us=5"}),
        lines({"plan", "--model", "tiny-llama", "--cluster", "dgx-h100", "--gpus", "4",
               "--global-batch", "8", "--seq-len", "64", "--threads", "1", "--why-not",
               "tp=2,pp=2,mbs=2,recompute=full", "--set", "memory=0.5", "--explain"}),
        lines({"plan",
               "-m",
               "tiny-gpt2",
               "-c",
               "dgx-h100",
               "-n",
               "8",
               "-b",
               "16",
               "--threads",
               "1",
               "--max-tokens-per-rank",
               "64",
               "--packed",
               "--end-of-document",
               "3",
               "--document-lengths",
               "64,32",
               "--layers-per-stage",
               "1,1",
               "--pp",
               "2"})}}};
}

}  // namespace meshplan::fuzz
