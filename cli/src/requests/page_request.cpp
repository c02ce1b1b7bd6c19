#include "requests/page_request.hpp"

#include <memory>

#include "core/limits.hpp"
#include "reports/html/page.hpp"
#include "requests/simulate_request.hpp"

namespace meshplan::cli {

void add_bars_option(Command& command, std::int64_t& bars) {
  command
      .option("--bars", bars,
              "operations that the timeline may hold; of a longer step it shows the first "
              "micro-batches")
      .between(0, static_cast<double>(limits::kRecordedOperations));
}

Question page_question() {
  struct PageRequest {
    SimulateRequest plan;
    std::int64_t bars = reports::kMostBars;
  };
  const auto request = std::make_shared<PageRequest>();
  return {.name = "page",
          .summary = "Say what a page shows of one plan",
          .declare =
              [request](Command& command) {
                add_simulate_request(command, request->plan);
                add_bars_option(command, request->bars);
              },
          .answer =
              [request](const Command& command) {
                refuse_beside_file(command, request->plan);
                const PlanOnCluster input = load(request->plan);
                if (!input.of_own_software()) refuse_operations("--software");
                reports::Page page = reports::page_of(
                    input.plan, input.cluster,
                    {.memory_reserve = memory_reserve(request->plan.memory_reserve),
                     .most_bars = request->bars});
                page.generator = "meshplan " + program_version();
                return reports::page_json(page);
              }};
}

}  // namespace meshplan::cli
