#include "ranks/interruption.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string_view>

#include "core/quoting.hpp"
#include "runtime/weights/checkpoint.hpp"

namespace meshplan::cli {
namespace {

/// Say where a run starts; each has a value.
constexpr std::array<std::string_view, 3> kStarts{"--resume", "--init-from", "--assume"};

std::string name_of_signal(int number) {
  const char* name = number > 0 ? sigabbrev_np(number) : nullptr;
  return name == nullptr ? std::string("a signal") : fmt::format("SIG{}", name);
}

std::string going_on(const std::vector<std::string>& command, const std::string& checkpoint) {
  return fmt::format("meshplan: to go on: {}\n", resuming_command(command, checkpoint));
}

}  // namespace

std::string resuming_command(const std::vector<std::string>& command,
                             const std::string& checkpoint) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const auto is_start = [&](std::string_view flag) {
      return command[i] == flag || command[i].starts_with(std::string(flag) + "=");
    };
    const auto start = std::ranges::find_if(kStarts, is_start);
    if (start == kStarts.end())
      words.push_back(shell_quoted(command[i]));
    else if (command[i] == *start)
      ++i;  // its value
  }
  words.emplace_back("--resume");
  words.push_back(shell_quoted(checkpoint));
  return fmt::format("{}", fmt::join(words, " "));
}

std::string interruption_text(const runtime::Interruption& interruption, const std::string& folder,
                              const std::vector<std::string>& command) {
  const std::string by =
      fmt::format("meshplan: interrupted by {}", name_of_signal(interruption.signal));
  if (interruption.run && interruption.run->saved) {
    const std::string checkpoint = runtime::checkpoint_path(folder, interruption.run->last_step);
    return fmt::format("{} after step {}; saved {}\n", by, interruption.run->last_step,
                       checkpoint) +
           going_on(command, checkpoint);
  }
  if (interruption.run)
    return fmt::format(
        "{} after step {}; nothing was saved: with --checkpoint-dir FOLDER a run is saved when it "
        "is interrupted\n",
        by, interruption.run->last_step);
  const std::string line =
      by + (interruption.forced ? " and ended at once by a second signal" : "");
  const std::vector<std::int64_t> steps =
      folder.empty() ? std::vector<std::int64_t>{} : runtime::checkpoint_steps(folder);
  if (steps.empty()) return line + "; nothing was saved\n";
  return fmt::format("{}; what came after step {} was not saved\n", line, steps.back()) +
         going_on(command, runtime::checkpoint_path(folder, steps.back()));
}

}  // namespace meshplan::cli
