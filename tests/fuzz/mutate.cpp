#include "fuzz/mutate.hpp"

#include <algorithm>
#include <cctype>

namespace meshplan::fuzz {

namespace {

constexpr std::size_t kLongest = 256 << 10;  // bytes of an input

const std::vector<std::string> kNumbers{"0",
                                        "-1",
                                        "1",
                                        "2",
                                        "3",
                                        "7",
                                        "64",
                                        "65536",
                                        "2147483647",
                                        "2147483648",
                                        "-2147483648",
                                        "4294967296",
                                        "1048576",
                                        "1048577",
                                        "9223372036854775807",
                                        "18446744073709551615",
                                        "1e999",
                                        "-1e999",
                                        "1e308",
                                        "5e-324",
                                        "1e-30",
                                        "1e30",
                                        "0.00",
                                        "-0",
                                        "nan",
                                        "inf",
                                        "0x10",
                                        "1.5",
                                        "99999999999999999999999",
                                        "1e",
                                        ".",
                                        "+1",
                                        "00"};
const std::vector<std::string> kWords{"",
                                      "x",
                                      "null",
                                      "\"",
                                      "[",
                                      "{",
                                      "}",
                                      "]",
                                      ",",
                                      ":",
                                      "\n",
                                      " ",
                                      "\\",
                                      "../",
                                      "#",
                                      "=",
                                      "-",
                                      "<",
                                      ">",
                                      "%s",
                                      "\t",
                                      "\xff",
                                      "\xed\xa0\x80",
                                      "\xf0\x9f\x98\x80",
                                      "\x1b[31m",
                                      std::string(1, '\0')};

bool is_number_part(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '+';
}

/// Another number in place of one, chosen by where a random byte falls.
void change_number(Random& random, std::string& text) {
  const std::size_t start = random.below(text.size());
  const std::size_t digit = text.find_first_of("0123456789", start);
  if (digit == std::string::npos) return;
  std::size_t begin = digit, end = digit;
  while (begin > 0 && is_number_part(text[begin - 1])) --begin;
  while (end < text.size() && is_number_part(text[end])) ++end;
  text.replace(begin, end - begin, random.pick(kNumbers));
}

/// A run of bytes up to the next separator, as [begin, end).
std::pair<std::size_t, std::size_t> piece(Random& random, const std::string& text,
                                          const char* separators) {
  const std::size_t at = random.below(text.size());
  const std::size_t before = text.find_last_of(separators, at);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
  return {std::min(begin, end), end};
}

void change_piece(Random& random, std::string& text, const std::string& donor,
                  const char* separators) {
  const auto [begin, end] = piece(random, text, separators);
  const std::string own = text.substr(begin, end - begin + (end < text.size() ? 1 : 0));
  switch (random.below(5)) {
    case 0:
      text.erase(begin, own.size());
      return;
    case 1:
      text.insert(begin, own);
      return;
    case 2: {
      const std::size_t times = random.one_in(20) ? 500 : 1 + random.below(8);
      std::string repeated;
      for (std::size_t i = 0; i < times && repeated.size() < kLongest / 4; ++i) repeated += own;
      text.insert(begin, repeated);
      return;
    }
    case 3: {
      if (donor.empty()) return;
      const auto [from, to] = piece(random, donor, separators);
      text.replace(begin, end - begin, donor.substr(from, to - from));
      return;
    }
    default:
      text.replace(begin, end - begin, random.pick(kWords));
  }
}

void change_bytes(Random& random, std::string& text) {
  const std::size_t at = random.below(text.size());
  switch (random.below(6)) {
    case 0:
      text[at] = static_cast<char>(random.below(256));
      return;
    case 1:
      text[at] = static_cast<char>(text[at] ^ (1 << random.below(8)));
      return;
    case 2:
      text.erase(at, 1 + random.below(std::min<std::size_t>(16, text.size() - at)));
      return;
    case 3:
      text.insert(at, random.pick(kWords));
      return;
    case 4:
      text.resize(at);  // cut short
      return;
    default:
      text.insert(at, text.substr(random.below(text.size()), 1 + random.below(32)));
  }
}

void change_text(Random& random, std::string& text, const std::string& donor) {
  if (text.empty()) {
    text = donor.substr(0, random.below(donor.size() + 1));
    return;
  }
  const std::size_t choice = random.below(10);
  if (choice < 3)
    change_number(random, text);
  else if (choice < 5)
    change_piece(random, text, donor, "\n");
  else if (choice < 8)
    change_piece(random, text, donor, ", \t\n;:=\"");
  else
    change_bytes(random, text);
}

}  // namespace

Seed make_seed(std::string text) {
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool valid = !parsed.is_discarded() && parsed.is_structured();
  return {std::move(text), valid ? std::optional(std::move(parsed)) : std::nullopt};
}

std::string mutated(Random& random, const std::vector<Seed>& seeds) {
  const Seed& seed = random.pick(seeds);
  const Seed& donor = random.pick(seeds);
  const std::size_t changes = 1 + random.below(4);
  std::string text;
  if (seed.json && !random.one_in(8)) {
    Json root = *seed.json;
    for (std::size_t i = 0; i < changes; ++i)
      change_json(random, root, donor.json ? *donor.json : *seed.json);
    text = root.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (random.one_in(16)) change_number(random, text);  // what no JSON value holds, such as 1e999
  } else {
    text = seed.text;
    for (std::size_t i = 0; i < changes; ++i) change_text(random, text, donor.text);
  }
  if (text.size() > kLongest) text.resize(kLongest);
  return text;
}

}  // namespace meshplan::fuzz
