#include "sim/prices/constant_records.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <span>

#include "core/embedded_file.hpp"
#include "core/error.hpp"
#include "core/json_fields.hpp"

namespace meshplan::sim {

std::span<const EmbeddedFile> constants_presets();

struct ConstantsFile {
  int schema_version = 1;
  std::vector<ConstantRecord> constants;
};

template <class Visitor>
void fields(Visitor& v, ConstantRecord& c) {
  v.required("name", c.name, "as the code knows it");
  v.required("value", c.value, "fitted");
  v.required("unit", c.unit, "of the value");
  v.required("meaning", c.meaning, "what it stands for");
  v.required("expected", c.expected, "before any fit, from the source");
  v.required("neutral", c.neutral, "value that leaves the effect out");
  v.required("low", c.low, "smallest value that physics allows");
  v.required("high", c.high, "largest");
  v.required("source", c.source, "where the range comes from");
  v.required("determined_by", c.determined_by, "groups of measurements that fix it");
  v.optional("relative_sigma", c.relative_sigma, "of the fit", at_least(0));
}

template <class Visitor>
void fields(Visitor& v, ConstantsFile& f) {
  v.required("schema_version", f.schema_version, "1", between(1, 1));
  v.required("constants", f.constants, "all of them");
}

std::vector<ConstantRecord> parse_records(std::string_view text, const std::string& file,
                                          const std::vector<std::string>& names) {
  auto parsed = read_json<ConstantsFile>(text, file);
  std::set<std::string> seen;
  for (const ConstantRecord& record : parsed.constants) {
    const auto where = fmt::format("{}: constants.{}", file, record.name);
    if (std::ranges::find(names, record.name) == names.end())
      throw ConfigError(
          fmt::format("{}: {}", where, unknown_name_message("constant", record.name, names)));
    if (!seen.insert(record.name).second)
      throw ConfigError(fmt::format("{}: is given twice", where));
    if (!(record.low <= record.value && record.value <= record.high))
      throw ConfigError(fmt::format("{}.value: {} is outside its range of {} to {}", where,
                                    record.value, record.low, record.high));
  }
  for (const ConstantRecord& record : parsed.constants)
    if (!(record.low <= record.expected && record.expected <= record.high))
      throw ConfigError(
          fmt::format("{}: constants.{}.expected: {} is outside its range of {} to {}", file,
                      record.name, record.expected, record.low, record.high));
  for (const std::string& name : names)
    if (!seen.contains(name))
      throw ConfigError(fmt::format("{}: constants: '{}' is missing", file, name));
  return parsed.constants;
}

std::string to_json(const std::vector<ConstantRecord>& records) {
  return write_json(ConstantsFile{.constants = records}).dump(2) + "\n";
}

std::vector<ConstantRecord> at_expected(std::vector<ConstantRecord> records) {
  for (ConstantRecord& record : records) record.value = record.expected;
  return records;
}

std::string_view embedded_constants(std::string_view name) {
  const auto files = constants_presets();
  const auto found = std::ranges::find(files, name, &EmbeddedFile::name);
  require_invariant(found != files.end(), "a file of constants is compiled in");
  return found->text;
}

}  // namespace meshplan::sim
