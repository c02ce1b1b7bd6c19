#include "sim/prices/fitted_constants.hpp"

#include <algorithm>
#include <set>

#include "core/embedded_file.hpp"
#include "core/json_fields.hpp"

namespace meshplan::sim {

std::span<const EmbeddedFile> constants_presets();

struct ConstantsFile {
  int schema_version = 1;
  std::vector<ConstantRecord> constants;
};

namespace {

std::vector<std::string> known_names() {
  std::vector<std::string> names;
  for (const NamedConstant& constant : constant_members()) names.emplace_back(constant.name);
  return names;
}

}  // namespace

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
  v.required("determined_by", c.determined_by, "groups of measured runs that fix it");
  v.optional("relative_sigma", c.relative_sigma, "of the fit", at_least(0));
}

template <class Visitor>
void fields(Visitor& v, ConstantsFile& f) {
  v.required("schema_version", f.schema_version, "1", between(1, 1));
  v.required("constants", f.constants, "all of them");
}

const std::vector<NamedConstant>& constant_members() {
  static const std::vector<NamedConstant> members{
      {"gemm_ampere", &Constants::gemm_ampere},
      {"gemm_hopper", &Constants::gemm_hopper},
      {"gemm_blackwell", &Constants::gemm_blackwell},
      {"gemm_blackwell_fp8", &Constants::gemm_blackwell_fp8},
      {"flash_ampere", &Constants::flash_ampere},
      {"flash_hopper", &Constants::flash_hopper},
      {"memory", &Constants::memory},
      {"kernel_us", &Constants::kernel_us},
      {"host_issue_us", &Constants::host_issue_us},
      {"tp_exposed", &Constants::tp_exposed},
      {"dp_exposed", &Constants::dp_exposed},
      {"fsdp_exposed", &Constants::fsdp_exposed},
      {"jitter", &Constants::jitter},
      {"step_overhead_ms", &Constants::step_overhead_ms},
      {"all_to_all", &Constants::all_to_all},
  };
  return members;
}

std::vector<ConstantRecord> parse_constants(std::string_view text, const std::string& file) {
  auto parsed = read_json<ConstantsFile>(text, file);
  std::set<std::string> seen;
  const auto names = known_names();
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

Constants constants_of(const std::vector<ConstantRecord>& records) {
  Constants constants;
  for (const ConstantRecord& record : records)
    for (const NamedConstant& known : constant_members())
      if (known.name == record.name) constants.*known.member = record.value;
  return constants;
}

Constants sigmas_of(const std::vector<ConstantRecord>& records) {
  Constants sigmas;
  for (const ConstantRecord& record : records)
    for (const NamedConstant& known : constant_members())
      if (known.name == record.name) sigmas.*known.member = record.relative_sigma * record.value;
  return sigmas;
}

std::string to_json(const std::vector<ConstantRecord>& records) {
  return write_json(ConstantsFile{.constants = records}).dump(2) + "\n";
}

const std::vector<ConstantRecord>& fitted_constants() {
  static const auto records = [] {
    const EmbeddedFile& file = constants_presets().front();
    return parse_constants(file.text, "fitted.json");
  }();
  return records;
}

}  // namespace meshplan::sim
