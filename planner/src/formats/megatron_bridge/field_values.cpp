#include "formats/megatron_bridge/field_values.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <utility>

#include "core/line.hpp"
#include "python/tree.hpp"

namespace meshplan::planner::bridge {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kDtypes = {
    {{"bfloat16", "bf16"},
     {"float32", "fp32"},
     {"float", "fp32"},
     {"float16", "fp16"},
     {"half", "fp16"},
     {"uint8", "fp8"},
     {"float8_e4m3fn", "fp8"},
     {"float8_e5m2", "fp8"}}};

std::optional<std::string> operand_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number()) return value.dump();
  return std::nullopt;
}

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : std::string(between)) + word;
  return line;
}

/// [["embedding", "decoder"], ["decoder", "loss"]]: "Et|tL"
std::optional<std::string> layout_of(const Json& stages) {
  std::string text;
  bool first = true;
  for (const Json& stage : stages) {
    if (!stage.is_array()) return std::nullopt;
    if (!first) text += '|';
    first = false;
    for (const Json& layer : stage) {
      const std::string name = layer.is_string() ? layer.get<std::string>() : "";
      const char sign = name == "embedding" ? 'E'
                        : name == "decoder" ? 't'
                        : name == "mtp"     ? 'm'
                        : name == "loss"    ? 'L'
                                            : ' ';
      if (sign == ' ') return std::nullopt;
      text += sign;
    }
  }
  return text;
}

}  // namespace

std::string last_word(const Json& value) {
  std::string text = value.is_string()           ? value.get<std::string>()
                     : python::is_unknown(value) ? value.at(python::kSource).get<std::string>()
                                                 : std::string();
  return text.substr(text.rfind('.') + 1);
}

std::optional<std::vector<std::string>> operands_of(std::string_view flag, const Json& value) {
  if (const auto one = operand_of(value)) return std::vector<std::string>{*one};
  if (python::is_unknown(value)) {
    // An imported name is its own text; an expression has more in it.
    const std::string source = value.at(python::kSource).get<std::string>();
    if (source.find_first_of(" ([{'\"") != std::string::npos) return std::nullopt;
    const std::string word = last_word(value);
    for (const auto& [name, operand] : kDtypes)
      if (word == name) return std::vector<std::string>{std::string(operand)};
    const bool is_choice = source.starts_with("AttnBackend.");
    if (is_choice) return std::vector<std::string>{word};
    return std::nullopt;
  }
  if (!value.is_array()) return std::nullopt;
  if (flag == "--pipeline-model-parallel-layout") {
    const auto layout = layout_of(value);
    return layout ? std::optional(std::vector<std::string>{*layout}) : std::nullopt;
  }
  std::vector<std::string> words;
  for (const Json& item : value) {
    const auto word = operand_of(item);
    if (!word) return std::nullopt;
    words.push_back(*word);
  }
  if (flag == "--window-size") return std::vector<std::string>{joined(words, ",")};
  if (flag == "--moe-layer-freq" || flag == "--window-attn-skip-freq" ||
      flag == "--linear-attention-freq")
    return std::vector<std::string>{"[" + joined(words, ",") + "]"};
  return words;
}

std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 80;
  std::string text;
  if (python::is_unknown(value)) {
    text = value.at(python::kSource).get<std::string>();
  } else if (python::is_call(value)) {
    text = python::call_name(value) + "(";
    bool first = true;
    for (const auto& [key, field] : value.items()) {
      if (key.starts_with('$') || field.is_object()) continue;
      text += fmt::format("{}{}={}", first ? "" : ", ", key, field.dump());
      first = false;
    }
    text += ")";
  } else {
    text = value.dump();
  }
  text = short_line(text);
  if (text.size() > kLongest) {
    std::size_t end = kLongest;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;  // of UTF-8
    text = text.substr(0, end) + "...";
  }
  return text;
}

}  // namespace meshplan::planner::bridge
