#include "sim/prices/fitted_constants.hpp"

namespace meshplan::sim {

const std::vector<NamedMember<Constants>>& constant_members() {
  static const std::vector<NamedMember<Constants>> kMembers{
      {"step_ampere", &Constants::step_ampere},
      {"step_hopper", &Constants::step_hopper},
      {"step_blackwell", &Constants::step_blackwell},
      {"step_blackwell_half", &Constants::step_blackwell_half},
      {"memory", &Constants::memory},
      {"host_issue_us", &Constants::host_issue_us},
      {"tp_exposed", &Constants::tp_exposed},
      {"dp_exposed", &Constants::dp_exposed},
      {"jitter", &Constants::jitter},
      {"step_overhead_ms", &Constants::step_overhead_ms},
      {"all_to_all", &Constants::all_to_all},
  };
  return kMembers;
}

std::vector<ConstantRecord> parse_constants(std::string_view text, const std::string& file) {
  return parse_records(text, file, names_of(constant_members()));
}

Constants constants_of(const std::vector<ConstantRecord>& records) {
  return values_of(records, constant_members());
}

Constants sigmas_of(std::vector<ConstantRecord> records) {
  for (ConstantRecord& record : records) record.value *= record.relative_sigma;
  return values_of(records, constant_members());
}

const std::vector<ConstantRecord>& fitted_constants() {
  static const auto kRecords = parse_constants(embedded_constants("fitted"), "fitted.json");
  return kRecords;
}

}  // namespace meshplan::sim
