#include "shell/script.hpp"

#include <fmt/format.h>

#include "shell/reader.hpp"

namespace meshplan::planner::shell {

Value part_of(const Value& whole, std::string text) {
  Value part{std::move(text), {}};
  if (whole.known() || part.text.find_first_of("$`") == std::string::npos) return part;
  for (const Unknown& each : whole.unknown)
    if (part.text.find(each.written) != std::string::npos) part.name(each);
  if (part.known()) part.unknown = whole.unknown;  // which one it is was not kept
  return part;
}

Script read_script(const std::map<std::string, std::string>& files, const std::string& main,
                   const std::map<std::string, std::string>& environment, const OpenFile& open) {
  return ScriptReader(files, environment, open).run(main);
}

std::vector<std::string> shell_words(std::string_view line) {
  std::map<std::string, Variable, std::less<>> none;
  Budget budget;
  Expander expander(none, budget);
  std::vector<std::string> words;
  for (const Token& token : tokens_of(line).all) {
    if (token.kind == Token::Kind::End || token.text == "\n") continue;
    if (token.kind != Token::Kind::Word)
      throw ConfigError(fmt::format("'{}' stands outside of quotes", token.text));
    for (Value& value : expander.fields(token.text)) words.push_back(std::move(value.text));
  }
  return words;
}

}  // namespace meshplan::planner::shell
