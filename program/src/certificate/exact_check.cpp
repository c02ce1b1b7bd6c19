#include "program/certificate/exact_check.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "certificate/file_number.hpp"
#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "program/certificate/agreement.hpp"

namespace meshplan::program {

template <class Visitor>
void fields(Visitor& v, BitDifference& d) {
  v.required("name", d.name, "which message or copy");
  v.required("difference", d.difference, "relative", between(0, limits::kMagnitude));
  v.required("where", d.where, "index of the first element that differs", at_least(0));
  v.required("value", d.value, "there; null = no finite number");
  v.required("expected", d.expected, "what it should be");
}

template <class Visitor>
void fields(Visitor& v, ExactCheck& c) {
  v.required("what", c.what, "message or copies");
  v.required("name", c.name, "operation and group, or tensor");
  v.required("checked", c.checked, "how many");  // a rank's part of a count may be negative
  v.required("differ", c.differ, "of them", at_least(0));
  v.required("first", c.first, "a few that differ");
}

namespace {

struct ExactChecksFile {
  std::vector<ExactCheck> checks;
};

template <class Visitor>
void fields(Visitor& v, ExactChecksFile& f) {
  v.required("checks", f.checks, "");
}

}  // namespace

BitDifference differing_element(std::string name, std::vector<std::int64_t> where, double value,
                                double expected) {
  const double relative = expected == 0 ? std::abs(value) : std::abs(value / expected - 1);
  return {.name = std::move(name),
          .difference = std::isfinite(relative)
                            ? std::clamp(relative, 1 / limits::kMagnitude, limits::kMagnitude)
                            : 1,
          .where = std::move(where),
          .value = file_number(value),
          .expected = file_number(expected)};
}

void add_difference(ExactCheck& check, BitDifference difference) {
  ++check.differ;
  if (check.first.size() < kNamedDifferences) check.first.push_back(std::move(difference));
}

void add_checks(std::vector<ExactCheck>& all, const std::vector<ExactCheck>& more) {
  for (const ExactCheck& check : more) {
    auto same = std::ranges::find_if(all, [&](const ExactCheck& known) {
      return known.what == check.what && known.name == check.name;
    });
    if (same == all.end()) {
      all.push_back(check);
      continue;
    }
    same->checked += check.checked;
    same->differ += check.differ;
    for (const BitDifference& difference : check.first)
      if (same->first.size() < kNamedDifferences) same->first.push_back(difference);
  }
}

std::vector<Compared> exact_figures(const std::vector<ExactCheck>& checks) {
  std::vector<Compared> figures;
  for (const ExactCheck& check : checks) {
    const auto checked =
        static_cast<double>(std::max<std::int64_t>({check.checked, check.differ, 1}));
    figures.push_back({.what = check.what,
                       .name = check.name,
                       .difference = static_cast<double>(check.differ) / checked,
                       .checked = std::max<std::int64_t>(check.checked, check.differ)});
    for (const BitDifference& difference : check.first)
      figures.push_back({.what = check.what,
                         .name = difference.name,
                         .difference = difference.difference,
                         .where = difference.where,
                         .value = difference.value,
                         .expected = difference.expected,
                         .checked = 0});
  }
  return figures;
}

std::int64_t differing(const Compared& compared) {
  if (!is_exact(compared)) return compared.agrees() ? 0 : 1;
  return std::llround(compared.difference * static_cast<double>(compared.checked));
}

bool is_exact(const Compared& compared) {
  return compared.what == kMessage || compared.what == kCopies;
}

std::string to_json(const std::vector<ExactCheck>& checks) {
  return write_json(ExactChecksFile{checks}).dump();
}

std::vector<ExactCheck> parse_exact_checks(std::string_view text, const std::string& source) {
  return read_json<ExactChecksFile>(text, source).checks;
}

}  // namespace meshplan::program
