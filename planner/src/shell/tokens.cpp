#include "shell/tokens.hpp"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/utf8.hpp"
#include "core/words.hpp"
#include "shell/value.hpp"

namespace meshplan::planner::shell {
namespace {

constexpr int kMostNesting = 256;  // of quotes and substitutions inside a word

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

bool ends_word(char c) {
  return is_blank(c) || c == '\n' || c == ';' || c == '&' || c == '|' || c == '(' || c == ')' ||
         c == '<' || c == '>';
}

std::size_t end_of_nested(std::string_view text, std::size_t begin, char close, int depth);

/// As end_of_opened, knowing how deep it stands.
std::size_t end_at_depth(std::string_view text, std::size_t begin, int depth) {
  if (depth > kMostNesting) throw ConfigError("quotes and substitutions nest too deep");
  const char c = text[begin];
  if (c == '\\') return std::min(begin + 2, text.size());
  if (c == '\'') {
    const auto end = text.find('\'', begin + 1);
    if (end == std::string_view::npos) throw ConfigError("unterminated quote '");
    return end + 1;
  }
  if (c == '"' || c == '`') return end_of_nested(text, begin + 1, c, depth + 1);
  if (c == '$' && begin + 1 < text.size() && (text[begin + 1] == '(' || text[begin + 1] == '{'))
    return end_of_nested(text, begin + 2, text[begin + 1] == '(' ? ')' : '}', depth + 1);
  if (c == '$' && begin + 1 < text.size() && text[begin + 1] == '\'') {
    for (std::size_t at = begin + 2; at < text.size(); ++at) {
      if (text[at] == '\\')
        ++at;
      else if (text[at] == '\'')
        return at + 1;
    }
    throw ConfigError("unterminated quote $'");
  }
  return begin + 1;
}

std::size_t end_of_nested(std::string_view text, std::size_t begin, char close, int depth) {
  int parentheses = 0;
  for (std::size_t at = begin; at < text.size();) {
    const char c = text[at];
    if (c == close && parentheses == 0) return at + 1;
    if (close == ')' && c == '(') ++parentheses;
    if (close == ')' && c == ')') --parentheses;
    // Inside double quotes and backticks a single quote is a character.
    if (c == '\'' && (close == '"' || close == '`')) {
      ++at;
      continue;
    }
    at = end_at_depth(text, at, depth);
  }
  throw ConfigError(fmt::format("unterminated: expected {}", close));
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Tokens run() {
    while (at_ < text_.size()) {
      try {
        next();
      } catch (const ConfigError& error) {
        throw ConfigError(fmt::format("{}: {}", line_, error.what()));
      }
    }
    add(Token::Kind::Operator, "\n");
    add(Token::Kind::End, "");
    return std::move(tokens_);
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  void add(Token::Kind kind, std::string text, bool complete = false) {
    require_text(text);
    tokens_.all.push_back({kind, std::move(text), line_, complete, {}, false});
  }
  /// Comments and here-documents may hold any bytes; words become flags, names and messages.
  static void require_text(std::string_view word) {
    if (const auto bad = first_non_text(word)) throw ConfigError(non_text_message(word, *bad));
  }
  void skip(std::size_t end) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  void next() {
    const char c = peek();
    if (is_blank(c)) {
      ++at_;
    } else if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
      skip(at_ + (peek(1) == '\n' ? 2 : 3));
    } else if (c == '#') {
      comment();
    } else if (c == '\n') {
      add(Token::Kind::Operator, "\n");
      skip(at_ + 1);
      here_documents();
    } else if (c == '<' || c == '>' || (c == '&' && peek(1) == '>')) {
      redirection(at_);
    } else if (ends_word(c)) {
      operation();
    } else {
      word();
    }
  }

  void comment() {
    const auto end = std::min(text_.find('\n', at_), text_.size());
    const std::string_view comment = text_.substr(at_, end - at_);
    constexpr std::string_view kSlurm = "#SBATCH";
    if (comment.starts_with(kSlurm)) {
      // A comment may follow on the same line.
      for (std::string& word : words_of(comment.substr(kSlurm.size()))) {
        if (word.starts_with('#')) break;
        require_text(word);
        tokens_.directives.push_back(std::move(word));
      }
    }
    at_ = end;
  }

  void operation() {
    if (text_.substr(at_).starts_with("((")) return arithmetic();
    std::size_t length = 1;
    for (const std::string_view longer : {"&&", "||", ";;"})
      if (text_.substr(at_).starts_with(longer)) length = 2;
    add(Token::Kind::Operator, std::string(text_.substr(at_, length)));
    at_ += length;
  }

  /// "(( ... ))" as an operator and one word.
  void arithmetic() {
    const auto end = text_.find("))", at_);
    if (end == std::string_view::npos) throw ConfigError("unterminated ((");
    add(Token::Kind::Operator, "((");
    add(Token::Kind::Word, std::string(text_.substr(at_ + 2, end - at_ - 2)));
    skip(end + 2);
  }

  void redirection(std::size_t begin) {
    std::size_t end = at_;
    while (end < text_.size() && (text_[end] == '<' || text_[end] == '>' || text_[end] == '|' ||
                                  (text_[end] == '&' && end == at_)))
      ++end;
    std::string text(text_.substr(begin, end - begin));
    const bool here = text.ends_with("<<") && !text.ends_with("<<<");
    bool complete = false;
    if (here && peek(end - at_) == '-') ++end;
    if (!here && end < text_.size() && text_[end] == '&') {  // 2>&1
      ++end;
      while (end < text_.size() &&
             (std::isdigit(static_cast<unsigned char>(text_[end])) != 0 || text_[end] == '-'))
        ++end;
      complete = true;
    }
    at_ = end;
    if (here) {
      while (is_blank(peek())) ++at_;
      const std::size_t word_begin = at_;
      skip_word();
      std::string delimiter(text_.substr(word_begin, at_ - word_begin));
      const auto quotes =
          std::erase_if(delimiter, [](char c) { return c == '\'' || c == '"' || c == '\\'; });
      awaited_.push_back({std::move(delimiter), tokens_.all.size(), quotes > 0});
      complete = true;
    }
    add(Token::Kind::Redirect, std::move(text), complete);
  }

  /// The here-documents whose operators stood on the line before.
  void here_documents() {
    for (const Awaited& each : awaited_) {
      Token& token = tokens_.all[each.token];
      token.here_is_quoted = each.is_quoted;
      const std::size_t begin = at_;
      std::size_t last = at_;
      while (at_ < text_.size()) {
        last = at_;
        const auto end = std::min(text_.find('\n', at_), text_.size());
        std::string_view line = text_.substr(at_, end - at_);
        skip(std::min(end + 1, text_.size()));
        while (line.starts_with('\t')) line.remove_prefix(1);
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line == each.delimiter) break;
        last = at_;
      }
      token.here = text_.substr(begin, last - begin);
    }
    awaited_.clear();
  }

  void skip_word() {
    while (at_ < text_.size() && !ends_word(text_[at_])) {
      if (text_[at_] == '\\' && peek(1) == '\n') break;
      skip(end_of_opened(text_, at_));
    }
  }

  void word() {
    const std::size_t begin = at_;
    const int line = line_;
    std::string text;
    while (true) {
      const std::size_t part = at_;
      skip_word();
      text += text_.substr(part, at_ - part);
      if (peek() != '\\' || peek(1) != '\n') break;
      skip(at_ + 2);  // a word that goes on in the next line
    }
    const bool digits = std::ranges::all_of(
        text, [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
    if (digits && (peek() == '<' || peek() == '>')) return redirection(begin);
    require_text(text);
    tokens_.all.push_back({Token::Kind::Word, std::move(text), line, false, {}, false});
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  struct Awaited {
    std::string delimiter;
    std::size_t token;  // its operator
    bool is_quoted;
  };
  std::vector<Awaited> awaited_;  // here-documents
  Tokens tokens_;
};

}  // namespace

std::string_view leading_name(std::string_view text) {
  const auto is_name = [](char c) {
    return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0;
  };
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text.front())) != 0) return {};
  std::size_t end = 0;
  while (end < text.size() && is_name(text[end])) ++end;
  return text.substr(0, end);
}

std::size_t end_of_opened(std::string_view text, std::size_t begin) {
  return end_at_depth(text, begin, 0);
}

Tokens tokens_of(std::string_view script) {
  return Lexer(script).run();
}

}  // namespace meshplan::planner::shell
