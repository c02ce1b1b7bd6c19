#include "reports/certificate_report.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "core/limits.hpp"
#include "program/certificate/exact_check.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using program::Compared;
using program::TwinResult;

std::string number_or_none(const std::optional<double>& value) {
  return value ? fmt::format("{:.9g}", *value) : "no number";
}

std::string difference_text(double difference) {
  return difference >= limits::kMagnitude ? "no number" : fmt::format("{:.1e}", difference);
}

/// Figures of some kinds, and how many of them differ.
struct Count {
  std::int64_t figures = 0;
  std::int64_t differ = 0;
  void add(const Compared& compared) {
    figures += compared.checked;
    differ += program::differing(compared);
  }
};

/// "gradient of layers.0.mlp.down_proj.weight [3, 5]", "loss of step 1"
std::string figure_name(const Compared& compared) {
  std::string text = fmt::format("{} of {}", compared.what, compared.name);
  if (!compared.where.empty()) text += fmt::format(" [{}]", fmt::join(compared.where, ", "));
  return text;
}

std::string figure_line(const Compared& compared) {
  if (program::is_exact(compared)) {
    const std::string text = fmt::format("{}: {}", compared.what, compared.name);
    return compared.where.empty() && !compared.value
               ? text
               : fmt::format("{}; [{}] is {}, not {}", text, fmt::join(compared.where, ", "),
                             number_or_none(compared.value), number_or_none(compared.expected));
  }
  return fmt::format("{}: {} (tolerance {:.1e}); there {} beside {}", figure_name(compared),
                     difference_text(compared.difference), compared.tolerance,
                     number_or_none(compared.value), number_or_none(compared.expected));
}

Table twin_table(const std::vector<TwinResult>& twins) {
  Table table{.columns = {{"twin"},
                          {"layout", Align::Left},
                          {"figures"},
                          {"differ"},
                          {"furthest", Align::Left},
                          {"difference"},
                          {"tolerance"}}};
  for (std::size_t i = 0; i < twins.size(); ++i) {
    Count count;
    for (const Compared& compared : twins[i].compared) count.add(compared);
    const Compared* most = program::furthest(twins[i].compared);
    table.rows.push_back({std::to_string(i + 1), program::to_string(twins[i].plan.parallel),
                          grouped(count.figures), grouped(count.differ),
                          most == nullptr ? "-" : figure_name(*most),
                          most == nullptr ? "-" : difference_text(most->difference),
                          most == nullptr ? "-" : fmt::format("{:.1e}", most->tolerance)});
  }
  return table;
}

/// What of one kind was compared, in all twins.
struct Kind {
  Count count;
  const Compared* furthest = nullptr;
  std::size_t twin = 0;
};

Table kind_table(const std::vector<TwinResult>& twins) {
  std::vector<std::string> order;
  std::map<std::string, Kind> kinds;
  for (std::size_t i = 0; i < twins.size(); ++i)
    for (const Compared& compared : twins[i].compared) {
      const auto [entry, fresh] = kinds.try_emplace(compared.what);
      if (fresh) order.push_back(compared.what);
      Kind& kind = entry->second;
      kind.count.add(compared);
      if (kind.furthest != nullptr && kind.furthest->share() >= compared.share()) continue;
      kind.furthest = &compared;
      kind.twin = i + 1;
    }
  Table table{.columns = {{"compared", Align::Left},
                          {"figures"},
                          {"differ"},
                          {"furthest", Align::Left},
                          {"twin"},
                          {"difference"},
                          {"tolerance"}}};
  for (const std::string& what : order) {
    const Kind& kind = kinds.at(what);
    const std::string full = figure_name(*kind.furthest);
    const bool all_exact = program::is_exact(*kind.furthest) && kind.count.differ == 0;
    table.rows.push_back({what, grouped(kind.count.figures), grouped(kind.count.differ),
                          all_exact ? "-" : full.substr(what.size() + 4),
                          all_exact ? "-" : std::to_string(kind.twin),
                          difference_text(kind.furthest->difference),
                          fmt::format("{:.1e}", kind.furthest->tolerance)});
  }
  return table;
}

/// Empty for certificates of before devices were written down.
std::string devices_text(const std::vector<TwinResult>& twins) {
  if (twins.empty() || twins.front().device.empty()) return "";
  const TwinResult& twin = twins.front();
  return fmt::format("twins on    {}\none rank on {}, in {}\n", twin.device, twin.reference,
                     twin.reference_precision);
}

std::string techniques_text(const std::vector<TwinResult>& twins) {
  std::string text;
  for (std::size_t i = 0; i < twins.size(); ++i)
    text += fmt::format(
        "twin {}      {}{}\n", i + 1,
        twins[i].techniques.empty() ? "no technique"
                                    : fmt::format("{}", fmt::join(twins[i].techniques, ", ")),
        twins[i].seeds.size() > 1 ? "  (differed under a first seed; a second one decides)" : "");
  return text;
}

std::string programs_text(const program::ProgramProof& programs) {
  std::string text = fmt::format("programs    of the plan itself, {} stage{}: ", programs.stages,
                                 programs.stages == 1 ? "" : "s");
  if (!programs.left_out.empty()) return text + "not proven, " + programs.left_out + "\n";
  text += fmt::format("{} operations a step, ", grouped(programs.operations));
  text += programs.holds() ? "each reads what its operands name, and messages match\n"
                           : "which do not hold together\n";
  for (const std::string& error : programs.errors) text += fmt::format("differs     {}\n", error);
  return text;
}

/// Is it a sum of figures that are described by themselves?
bool is_total(const Compared& compared) {
  return program::is_exact(compared) && compared.checked > 0;
}

/// The figures that differ most, worst first.
std::string differences_text(const std::vector<TwinResult>& twins) {
  constexpr std::size_t kShown = 10;
  std::vector<std::pair<std::size_t, const Compared*>> differ;
  for (std::size_t i = 0; i < twins.size(); ++i)
    for (const Compared& compared : twins[i].compared)
      if (!compared.agrees() && !is_total(compared)) differ.emplace_back(i + 1, &compared);
  std::ranges::stable_sort(differ, std::greater{},
                           [](const auto& entry) { return entry.second->share(); });
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, differ.size()); ++i)
    text +=
        fmt::format("differs     twin {}, {}\n", differ[i].first, figure_line(*differ[i].second));
  if (differ.size() > kShown)
    text += fmt::format("differs     and {} figures more\n", differ.size() - kShown);
  return text;
}

std::string verdict_text(const program::Certificate& certificate) {
  if (!certificate.failure.empty())
    return fmt::format("verdict     differs: {}\n", certificate.failure);
  Count close, messages, copies;
  for (const TwinResult& twin : certificate.twins)
    for (const Compared& compared : twin.compared)
      (!program::is_exact(compared)         ? close
       : compared.what == program::kMessage ? messages
                                            : copies)
          .add(compared);
  const std::string twins =
      fmt::format("{} twin{}", certificate.twins.size(), certificate.twins.size() == 1 ? "" : "s");
  std::string text =
      certificate.agrees()
          ? fmt::format("verdict     agrees: {} figures of {} are those of one rank",
                        grouped(close.figures), twins)
          : fmt::format("verdict     differs: {} of {} figures of {} are not those of one rank",
                        grouped(close.differ), grouped(close.figures), twins);
  if (messages.differ + copies.differ > 0)
    text += fmt::format("; {} of {} messages and {} of {} copies are not the same bits",
                        grouped(messages.differ), grouped(messages.figures), grouped(copies.differ),
                        grouped(copies.figures));
  else if (messages.figures + copies.figures > 0)
    text += fmt::format("; {} messages and {} copied numbers are the same bits",
                        grouped(messages.figures), grouped(copies.figures));
  if (certificate.programs && !certificate.programs->holds())
    text += "; the plan's own programs do not hold together";
  return text + "\n";
}

}  // namespace

std::string to_text(const program::Certificate& certificate) {
  std::string text = fmt::format(
      "plan        {}, trains in {}\ncompared    in {}{}\n", certificate.plan_hash,
      certificate.plan_precision, certificate.compared_in,
      certificate.plan_precision == certificate.compared_in
          ? ""
          : fmt::format(": the layout, not what {} rounds", certificate.plan_precision));
  text += devices_text(certificate.twins) + techniques_text(certificate.twins);
  for (const std::string& name : certificate.uncovered)
    text += fmt::format("not covered {}\n", name);
  if (!certificate.twins.empty()) {
    text += "\n" + to_text(twin_table(certificate.twins)) + "\n" +
            to_text(kind_table(certificate.twins)) + "\n";
    text += fmt::format("tolerance   of twin 1 in {}; twice as much for each later step\n",
                        certificate.twins.front().tolerance.derivation);
  }
  if (certificate.programs) text += programs_text(*certificate.programs);
  for (const std::string& sentence : program::not_shown(certificate.twins))
    text += fmt::format("not shown   {}\n", sentence);
  return text + differences_text(certificate.twins) + verdict_text(certificate);
}

}  // namespace meshplan::reports
