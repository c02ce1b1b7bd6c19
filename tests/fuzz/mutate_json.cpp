// Changes of a JSON value's structure.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "fuzz/mutate.hpp"
#include "support/hostile_strings.hpp"

namespace meshplan::fuzz {
namespace {

constexpr std::size_t kMostNodes = 20000;

/// Every value in `root`, itself included.
template <class Value>
std::vector<Value*> nodes_of(Value& root) {
  std::vector<Value*> nodes{&root};
  for (std::size_t i = 0; i < nodes.size() && nodes.size() < kMostNodes; ++i)
    if (nodes[i]->is_structured())
      for (auto& child : *nodes[i]) nodes.push_back(&child);
  return nodes;
}

Json extreme_number(Random& random, const Json& old) {
  static const std::vector<Json> kExtremes{0,
                                           -1,
                                           1,
                                           2,
                                           3,
                                           16,
                                           1000,
                                           65537,
                                           2147483647,
                                           std::int64_t{2147483648},
                                           1048576,
                                           -2147483648LL,
                                           std::int64_t{9007199254740993},
                                           std::numeric_limits<std::int64_t>::max(),
                                           std::numeric_limits<std::int64_t>::min(),
                                           std::numeric_limits<std::uint64_t>::max(),
                                           0.5,
                                           -0.0,
                                           5e-324,
                                           1e-300,
                                           1e-30,
                                           1e-12,
                                           1e9,
                                           1e30,
                                           1e300,
                                           1.7e308,
                                           1e18,
                                           0.999999999};
  if (!old.is_number() || random.one_in(2)) return random.pick(kExtremes);
  const double value = old.get<double>();
  if (old.is_number_integer() && std::abs(value) < 1e15) {
    const auto whole = old.get<std::int64_t>();
    const std::int64_t choices[] = {whole + 1, whole - 1,    whole * 2,
                                    whole / 2, whole * 1000, -whole};
    return choices[random.below(std::size(choices))];
  }
  const double choices[] = {value * 2, value / 2, -value, value * 1e6, value * 1e-6, value + 1};
  return choices[random.below(std::size(choices))];
}

Json other_type(Random& random) {
  static const std::vector<Json> kOthers{nullptr,
                                         true,
                                         false,
                                         "",
                                         "x",
                                         "1",
                                         Json::array(),
                                         Json::object(),
                                         Json::array({1, "a", nullptr}),
                                         Json{{"a", 1}},
                                         -1,
                                         1e10};
  return random.pick(kOthers);
}

std::string changed_word(Random& random, std::string word) {
  static const std::vector<std::string> kStrange{"",
                                                 "a",
                                                 "\xc3\xa9",
                                                 "\xf0\x9f\x98\x80",
                                                 "\n",
                                                 std::string(1, '\0'),
                                                 "(a+)+$",
                                                 "\\",
                                                 "[",
                                                 "<0xZZ>",
                                                 "<0x0A>",
                                                 "-1",
                                                 "2147483648",
                                                 "..",
                                                 "/",
                                                 "F32",
                                                 "*",
                                                 "!*",
                                                 "0-99999999999"};
  if (random.one_in(8)) return random.pick(test::hostile_strings());
  if (word.empty() || random.one_in(4)) return random.pick(kStrange);
  const std::size_t at = random.below(word.size());
  switch (random.below(5)) {
    case 0:
      return word.erase(at, 1);
    case 1:
      return word.insert(at, 1, word[at]);
    case 2:
      word[at] = static_cast<char>('a' + random.below(26));
      return word;
    case 3:
      return word + word;
    default:
      return random.one_in(50) ? std::string(20000, word[at]) : word.substr(0, at);
  }
}

void change_object(Random& random, Json& object) {
  if (object.empty()) {
    object["x"] = 1;
    return;
  }
  auto entry = object.begin();
  std::advance(entry, static_cast<std::ptrdiff_t>(random.below(object.size())));
  const std::string key = entry.key();
  switch (random.below(5)) {
    case 0:
      object.erase(key);
      return;
    case 1: {  // renamed
      Json value = *entry;
      object.erase(key);
      object[changed_word(random, key)] = std::move(value);
      return;
    }
    case 2: {
      Json value = *entry;
      object[changed_word(random, key)] = std::move(value);
      return;
    }
    case 3: {
      auto other = object.begin();
      std::advance(other, static_cast<std::ptrdiff_t>(random.below(object.size())));
      if (other != entry) std::swap(*entry, *other);
      return;
    }
    default:
      *entry = other_type(random);
  }
}

void change_array(Random& random, Json& array) {
  if (array.empty()) {
    array.push_back(other_type(random));
    return;
  }
  const std::size_t at = random.below(array.size());
  switch (random.below(5)) {
    case 0:
      array.erase(at);
      return;
    case 1: {
      Json copy = array[at];
      array.push_back(std::move(copy));
      return;
    }
    case 2: {
      const Json copy = array[at];
      const std::size_t times = random.one_in(10) ? 300 : 1 + random.below(8);
      const bool small = !copy.is_structured() || copy.size() < 16;
      for (std::size_t i = 0; i < (small ? times : 2); ++i) array.push_back(copy);
      return;
    }
    case 3:
      std::swap(array[at], array[random.below(array.size())]);
      return;
    default:
      array = Json::array();
  }
}

void nest(Random& random, Json& value) {
  const std::size_t levels = random.one_in(8) ? 100 : 1 + random.below(3);
  for (std::size_t i = 0; i < levels; ++i) {
    Json outer = random.one_in(2) ? Json::array() : Json::object();
    Json inner = std::move(value);
    if (outer.is_array())
      outer.push_back(std::move(inner));
    else
      outer["a"] = std::move(inner);
    value = std::move(outer);
  }
}

}  // namespace

void change_json(Random& random, Json& root, const Json& donor) {
  const std::vector<Json*> nodes = nodes_of(root);
  Json& node = *random.pick(nodes);
  const std::size_t choice = random.below(16);
  if (choice == 0) {
    nest(random, node);
  } else if (choice == 1) {
    node = other_type(random);
  } else if (choice == 2) {
    const std::vector<const Json*> others = nodes_of(donor);
    Json copy = *random.pick(others);
    node = std::move(copy);
  } else if (node.is_object()) {
    change_object(random, node);
  } else if (node.is_array()) {
    change_array(random, node);
  } else if (node.is_string()) {
    node = changed_word(random, node.get<std::string>());
  } else if (node.is_boolean()) {
    node = !node.get<bool>();
  } else {
    node = extreme_number(random, node);
  }
}

}  // namespace meshplan::fuzz
