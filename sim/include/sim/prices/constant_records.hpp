// Files of constants that no data sheet gives: each with unit, meaning, allowed range, source and
// what determines it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace meshplan::sim {

/// A file's record of one constant.
struct ConstantRecord {
  std::string name;
  double value = 0;
  std::string unit;
  std::string meaning;
  double expected = 0;  // before any fit: fits start here and are weakly pulled to it
  double neutral = 0;   // what leaves its effect out
  double low = 0;
  double high = 0;
  std::string source;
  std::vector<std::string> determined_by;  // groups of measurements
  double relative_sigma = 0;               // of the fit
};

/// Where a constant lives in the struct that holds all of a file's values.
template <class Values>
struct NamedMember {
  std::string_view name;
  double Values::*member;
};

template <class Values>
std::vector<std::string> names_of(const std::vector<NamedMember<Values>>& members) {
  std::vector<std::string> names;
  for (const NamedMember<Values>& member : members) names.emplace_back(member.name);
  return names;
}

template <class Values>
Values values_of(const std::vector<ConstantRecord>& records,
                 const std::vector<NamedMember<Values>>& members) {
  Values values;
  for (const ConstantRecord& record : records)
    for (const NamedMember<Values>& known : members)
      if (known.name == record.name) values.*known.member = record.value;
  return values;
}

/// @param names  of the constants that the file must hold, each once
/// @throws ConfigError for an unknown, missing or repeated name, or a value outside its range
std::vector<ConstantRecord> parse_records(std::string_view text, const std::string& file,
                                          const std::vector<std::string>& names);
std::string to_json(const std::vector<ConstantRecord>& records);
/// The same constants as they were before any fit.
std::vector<ConstantRecord> at_expected(std::vector<ConstantRecord> records);
/// The text of a file of constants that is compiled in: "fitted" or "operators".
std::string_view embedded_constants(std::string_view name);

}  // namespace meshplan::sim
