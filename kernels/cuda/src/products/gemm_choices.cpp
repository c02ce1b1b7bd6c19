#include "products/gemm_choices.hpp"

#include <charconv>
#include <fmt/format.h>
#include <sstream>
#include <string_view>

#include "core/hash.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr std::string_view kFirstLine = "meshplan gemm choices 1\n";
constexpr std::size_t kWordDigits = 16;

std::string ending(std::string_view text) {
  return fmt::format("hash {}\n", hex(content_hash(text)));
}

bool parse_line(std::string_view line, GemmChoices& choices) {
  GemmAlgorithm algorithm{};
  const std::size_t digits = kWordDigits * algorithm.size();
  if (line.size() <= digits + 1 || line[digits] != ' ') return false;
  for (std::size_t i = 0; i < algorithm.size(); ++i) {
    const std::string_view word = line.substr(i * kWordDigits, kWordDigits);
    const auto [end, error] =
        std::from_chars(word.data(), word.data() + word.size(), algorithm[i], kWordDigits);
    if (error != std::errc() || end != word.data() + word.size()) return false;
  }
  return choices.of_problem.emplace(line.substr(digits + 1), algorithm).second;
}

}  // namespace

std::string to_text(const GemmChoices& choices) {
  std::string text = std::string(kFirstLine) + choices.subject + "\n";
  for (const auto& [problem, algorithm] : choices.of_problem) {
    for (const std::uint64_t word : algorithm) text += hex(word);
    text += " " + problem + "\n";
  }
  return text + ending(text);
}

std::string parse_gemm_choices(const std::string& text, const std::string& subject,
                               GemmChoices& choices) {
  if (!text.starts_with(kFirstLine)) return "it holds no choices of this version of meshplan";
  const std::size_t last = text.rfind("\nhash ");
  if (last == std::string::npos || text.substr(last + 1) != ending(text.substr(0, last + 1)))
    return "it is damaged";
  std::istringstream lines(text.substr(kFirstLine.size(), last + 1 - kFirstLine.size()));
  GemmChoices found;
  std::getline(lines, found.subject);
  if (found.subject != subject)
    return fmt::format("its choices are for {}, not for {}", found.subject, subject);
  for (std::string line; std::getline(lines, line);)
    if (!parse_line(line, found)) return "it is damaged";
  choices = std::move(found);
  return "";
}

}  // namespace meshplan::kernels::cuda
