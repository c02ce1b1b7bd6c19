// Encodings worked out by hand from the merges and from the definition of each pre-tokenizer.
#include "runtime/data/tokenizer.hpp"

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <string>

#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

using Catch::Matchers::Contains;
using Ids = std::vector<std::uint32_t>;

// \u0120 stands for a space, \u00c3 and \u00a9 for the bytes of e with an acute accent.
const std::string kByteModel = R"("model": {"type": "BPE",
  "vocab": {"h": 0, "e": 1, "l": 2, "o": 3, "\u0120": 4, "w": 5, "r": 6, "d": 7, "!": 8, "ll": 9,
            "he": 10, "hell": 11, "hello": 12, "\u0120w": 13, "or": 14, "\u0120wor": 15, "ld": 16,
            "\u0120world": 17, "n": 18, "'": 19, "t": 20, "\u00c3": 21, "\u00a9": 22, "1": 23,
            "2": 24, "\u010a": 25, "\u0120\u0120": 26, "12": 27},
  "merges": ["l l", "h e", "he ll", ["hell", "o"], "\u0120 w", "o r", "\u0120w or", "l d",
             "\u0120wor ld", "\u0120 \u0120", "1 2"]})";

Tokenizer byte_level(const std::string& pre_tokenizer, const std::string& more = "") {
  return Tokenizer("{" + kByteModel + R"(, "pre_tokenizer": )" + pre_tokenizer + more + "}",
                   "tokenizer.json");
}

const std::string kGpt2 = R"({"type": "ByteLevel", "add_prefix_space": false})";

std::string with_model(const std::string& model) {
  return "{\"model\": {" + model + "}}";
}

}  // namespace

TEST_CASE("merges go by rank, then from the left", "[runtime][tokenizer]") {
  const Tokenizer tokenizer(
      with_model(R"("vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "aa": 5},
                    "merges": ["b c", "a b", "a a"])"),
      "t");
  CHECK(tokenizer.encode("abc") == Ids{0, 4});
  CHECK(tokenizer.encode("ab") == Ids{3});
  CHECK(tokenizer.encode("aaa") == Ids{5, 0});
  CHECK(tokenizer.encode("aaaab") == Ids{5, 0, 3});
  CHECK(tokenizer.encode("").empty());
  CHECK(tokenizer.vocab_size() == 6);
}

TEST_CASE("a normalizer that grows without end is refused", "[runtime][tokenizer]") {
  const auto error_of = [](const std::string& normalizer, const std::string& text) {
    try {
      const Tokenizer tokenizer(
          R"({"model": {"vocab": {"a": 0}, "merges": []}, "normalizer": )" + normalizer + "}",
          "tokenizer.json");
      tokenizer.encode(text);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(
      error_of(R"({"type": "Replace", "pattern": {"String": ""}, "content": "a"})", "a"),
      Contains("tokenizer.json: normalizer.pattern.String: expected at least one character"));
  std::string doubling;  // 2^40 times as long
  for (int i = 0; i < 40; ++i)
    doubling += std::string(i == 0 ? "" : ", ") +
                R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  CHECK_THAT(error_of(R"({"type": "Sequence", "normalizers": [)" + doubling + "]}", "aa"),
             Contains("tokenizer.json: normalizer.normalizers[") && Contains("of a text of 2"));
  // 2^20 bytes are allowed whatever they are made of; one more step would make 2^40 of them.
  const std::string huge = R"({"type": "Replace", "pattern": {"String": "a"}, "content": ")" +
                           std::string(1 << 20, 'a') + R"("})";
  CHECK_THAT(error_of(R"({"type": "Sequence", "normalizers": [)" + huge + ", " + huge + "]}", "a"),
             Contains("normalizers[1]: replacing 'a' makes 1099511627776 bytes of a text of 1;"));
}

TEST_CASE("a pre-tokenizer that grows without end is refused", "[runtime][tokenizer]") {
  const auto encode = [](const std::string& steps) {
    Tokenizer(R"({"model": {"vocab": {"a": 0}, "merges": []}, "pre_tokenizer": {"type": "Sequence",
              "pretokenizers": [)" +
                  steps + "]}}",
              "tokenizer.json")
        .encode("\x01");
  };
  std::string mapping;  // an invisible byte is two bytes, which are again invisible ones
  for (int i = 0; i < 60; ++i)
    mapping += std::string(i == 0 ? "" : ", ") +
               R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})";
  CHECK_THROWS_WITH(encode(mapping), Contains("tokenizer.json: pre_tokenizer makes") &&
                                         Contains("bytes of a text of 1; at most 64 times"));
  CHECK_THROWS_WITH(encode(R"({"type": "Metaspace", "replacement": "  "})"),
                    Contains("replacement: expected one character, got \"  \""));
}

TEST_CASE("a pattern that tries everything in every way is given up", "[runtime][tokenizer]") {
  const Tokenizer tokenizer(
      R"({"model": {"vocab": {"a": 0}, "merges": []}, "pre_tokenizer":
          {"type": "Split", "pattern": {"Regex": "(a+)+$"}}})",
      "tokenizer.json");
  CHECK_THROWS_WITH(tokenizer.encode(std::string(60, 'a') + "!"),
                    Contains("tokenizer.json: pre_tokenizer: the regular expression '(a+)+$' takes "
                             "too long"));
}

TEST_CASE("a tokenizer's odd names and ids need no memory and no luck", "[runtime][tokenizer]") {
  const Tokenizer tokenizer(
      with_model(R"("byte_fallback": true, "vocab": {"a": 2147483647, "<0xZZ>": 1, "<0x41>": 2},
                    "merges": [])"),
      "t");
  CHECK(tokenizer.vocab_size() == 2147483648);
  CHECK(tokenizer.decode(Ids{1, 2, 2147483647}) == "<0xZZ>Aa");
  const Tokenizer literal(
      R"({"model": {"vocab": {"a": 0, "\\s": 1, "\\": 2, "s": 3}, "merges": [["\\", "s"]]},
          "pre_tokenizer": {"type": "Split", "pattern": {"String": "\\s"}}})",
      "t");
  CHECK(literal.encode("a\\sa") == Ids{0, 1, 0});  // the two characters, not any space
}

TEST_CASE("GPT-2's words and bytes", "[runtime][tokenizer]") {
  const Tokenizer tokenizer = byte_level(kGpt2);
  CHECK(tokenizer.encode("hello world!") == Ids{12, 17, 8});
  CHECK(tokenizer.encode("hello  world") == Ids{12, 4, 17});  // the last space is the word's
  CHECK(tokenizer.encode("hello  ") == Ids{12, 26});          // at the end all belong together
  CHECK(tokenizer.encode("don't") == Ids{7, 3, 18, 19, 20});
  CHECK(tokenizer.encode("h\u00e9") == Ids{0, 21, 22});
  CHECK(tokenizer.encode("ll12") == Ids{9, 27});
  CHECK(tokenizer.decode(tokenizer.encode("hello  world!\nh\u00e9")) == "hello  world!\nh\u00e9");
  CHECK(byte_level(R"({"type": "ByteLevel"})").encode("world") == Ids{17});  // a space in front
}

TEST_CASE("Llama 3's split: digits in threes, line ends apart", "[runtime][tokenizer]") {
  const Tokenizer tokenizer = byte_level(
      R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated",
          "invert": false, "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
         {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})");
  CHECK(tokenizer.encode("1112") == Ids{23, 23, 23, 24});  // 111|2: "12" is not merged across
  CHECK(tokenizer.encode("112") == Ids{23, 27});
  CHECK(tokenizer.encode("hello\n\n world") == Ids{12, 25, 25, 17});
}

TEST_CASE("added tokens are found in the text, the longest first", "[runtime][tokenizer]") {
  const Tokenizer tokenizer = byte_level(kGpt2, R"(, "added_tokens": [
      {"id": 30, "content": "<|end|>", "special": true}, {"id": 31, "content": "<|end|>>"},
      {"id": 32, "content": "<m>", "lstrip": true, "rstrip": true},
      {"id": 33, "content": "<|endoftext|>", "special": true}])");
  CHECK(tokenizer.encode("hello<|end|>hello") == Ids{12, 30, 12});
  CHECK(tokenizer.encode("<|end|>>") == Ids{31});
  CHECK(tokenizer.encode("hello <m> hello") == Ids{12, 32, 12});
  CHECK(tokenizer.vocab_size() == 34);
  CHECK(tokenizer.end_token() == "<|endoftext|>");
  CHECK(tokenizer.decode(Ids{12, 30}) == "hello<|end|>");
}

TEST_CASE("SentencePiece's BPE: spaces as characters, unknown characters as bytes",
          "[runtime][tokenizer]") {
  const std::string model = R"({"added_tokens": [{"id": 2, "content": "</s>"}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
    "model": {"type": "BPE", "byte_fallback": true, "fuse_unk": true, "unk_token": "<unk>",
      "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "<0xE2>": 3, "<0x82>": 4, "<0xAC>": 5,
                "\u2581": 6, "h": 7, "i": 8, "\u2581h": 9, "\u2581hi": 10},
      "merges": ["\u2581 h", "\u2581h i"]}})";
  const Tokenizer tokenizer(model, "t");
  CHECK(tokenizer.encode("hi hi") == Ids{10, 10});
  CHECK(tokenizer.encode("hi \u20ac") == Ids{10, 6, 3, 4, 5});
  CHECK(tokenizer.encode("hi\u00e9\u00e9h") == Ids{10, 0, 7});  // not all bytes: one <unk> for both
  CHECK(tokenizer.decode(Ids{10, 6, 3, 4, 5, 2}) == " hi \u20ac</s>");
  CHECK(tokenizer.end_token() == "</s>");

  std::string metaspace = model;
  const std::size_t begin = metaspace.find("\"normalizer\"");
  const std::size_t end = metaspace.find("\"model\"");
  metaspace.replace(begin, end - begin,
                    R"("pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581",
                                         "prepend_scheme": "first"}, )");
  const Tokenizer newer(metaspace, "t");
  CHECK(newer.encode("hi hi") == Ids{10, 10});
  CHECK(newer.encode("hi</s>hi") == Ids{10, 2, 7, 8});  // only the first part gets a space
}

TEST_CASE("what is not supported is named", "[runtime][tokenizer]") {
  const auto refused = [](const std::string& text, const std::string& message) {
    CAPTURE(text);
    CHECK_THROWS_WITH(Tokenizer(text, "tok.json"), Contains(message) && Contains("tok.json"));
  };
  refused("{}", "model: expected an object");
  refused(with_model(R"("type": "WordPiece")"), "unknown tokenizer model 'WordPiece'");
  refused(with_model(R"("vocab": {"a": -1}, "merges": [])"), "model.vocab.a: expected a token id");
  refused(with_model(R"("vocab": {"a": 0}, "merges": ["a a"])"), "'aa' is not in the vocabulary");
  refused(with_model(R"("vocab": {"a": 0}, "merges": ["aa"])"), "model.merges[0]: expected");
  refused(with_model(R"("vocab": {"a": 0}, "merges": [], "dropout": 0.1)"), "model.dropout");
  refused("{" + kByteModel + R"(, "pre_tokenizer": {"type": "ByteLevle"}})",
          "pre_tokenizer.type: unknown pre-tokenizer 'ByteLevle'; did you mean 'ByteLevel'");
  refused("{" + kByteModel + R"(, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"}}})",
          "the regular expression '(a' is not understood");
  refused("{" + kByteModel + R"(, "normalizer": {"type": "Precompiled"}})", "normalizer.type");
  const Tokenizer tokenizer = byte_level(kGpt2);
  CHECK_THROWS_WITH(tokenizer.encode("ab\xff"), Contains("not UTF-8 at its byte 2"));
  CHECK_THROWS_WITH(tokenizer.encode("hx"), Contains("has no token for 'x'"));
}

}  // namespace meshplan::runtime
