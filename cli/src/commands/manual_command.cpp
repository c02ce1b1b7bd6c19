// meshplan man, meshplan completion: what the command says of itself, for packages and shells.
#include <fmt/format.h>
#include <memory>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "describe/completion.hpp"
#include "describe/man_page.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"

namespace meshplan::cli {
namespace {

struct ManualOptions {
  std::optional<std::string> page;
  std::optional<std::string> out;
};

const ManPage& find_page(const std::vector<ManPage>& pages, const std::string& command) {
  std::vector<std::string> known;
  for (const ManPage& page : pages) {
    if (page.command == command) return page;
    known.push_back(page.command);
  }
  throw ConfigError(unknown_name_message("page", command, known));
}

int show_manual(const ManualOptions& options, const ProgramInfo& program) {
  const std::vector<ManPage> pages = man_pages(program);
  if (!options.out) {
    output("{}", find_page(pages, options.page.value_or(program.name)).text);
    return kDone;
  }
  if (options.page)
    throw ConfigError(
        fmt::format("--out-dir {}: gets all pages; leave out '{}'", *options.out, *options.page));
  for (const ManPage& page : pages) write_file(*options.out + "/" + page.file(), page.text);
  return kDone;
}

std::string script_for(const std::string& shell, const ProgramInfo& program) {
  if (shell == "bash") return bash_completion(program);
  if (shell == "zsh") return zsh_completion(program);
  if (shell == "fish") return fish_completion(program);
  throw ConfigError(unknown_name_message("shell", shell, {"bash", "zsh", "fish"}));
}

}  // namespace

void add_manual_command(CommandLine& line) {
  const auto options = std::make_shared<ManualOptions>();
  line.add("man", "Print a manual page, or write all of them")
      .positional("page", options->page, "a command; without one the first page")
      .option("--out-dir", options->out, "write all pages into this folder, which exists")
      .is_path()
      .examples(
          "  meshplan man plan | man -l -\n"
          "  meshplan man --out-dir ~/.local/share/man/man1")
      .on_run([options, &line] { return show_manual(*options, line.info()); });
}

void add_completion_command(CommandLine& line) {
  const auto shell = std::make_shared<std::optional<std::string>>();
  line.add("completion", "Print a script that completes this command's words in a shell")
      .positional("shell", *shell, "bash, zsh or fish")
      .suggests({"bash", "zsh", "fish"})
      .examples(
          "  source <(meshplan completion bash)\n"
          "  meshplan completion fish > ~/.config/fish/completions/meshplan.fish")
      .on_run([shell, &line] {
        if (!*shell) throw ConfigError("which shell? usage: meshplan completion bash|zsh|fish");
        output("{}", script_for(**shell, line.info()));
        return kDone;
      });
}

}  // namespace meshplan::cli
