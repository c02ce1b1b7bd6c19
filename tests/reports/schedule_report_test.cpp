#include "reports/schedule_report.hpp"

#include <catch2/catch.hpp>

#include "program/schedule/generators.hpp"

namespace meshplan::reports {

TEST_CASE("A schedule is drawn with its bubble and what is in flight", "[reports][schedule]") {
  CHECK(to_text(program::one_f_one_b(2, 2), "1f1b", 2) ==
        "1f1b: 2 stages, 1 chunk a rank, 2 micro-batches\n"
        "\n"
        "rank 0   F0 F1 .  .  B0 B0 .  B1 B1\n"
        "rank 1   .  F0 B0 B0 F1 B1 B1 .  .\n"
        "\n"
        "step 9 units of a chunk's forward; 33.3 % of all ranks' time is bubble\n"
        "in flight at most: 2 1 micro-batches\n");
}

TEST_CASE("Chunks are told apart, and an overlapped pair is drawn one after the other",
          "[reports][schedule]") {
  const std::string text = to_text(program::dualpipe_v(2, 5), "dualpipe-v", 5);
  CHECK(text.find("F3a B1b B1b F2b B0a B0a") != text.npos);
  CHECK(text.find("chunks of micro-batches") != text.npos);
}

TEST_CASE("The JSON form has the schedule as CSV", "[reports][schedule]") {
  const std::string text =
      to_json(program::make_schedule(program::ScheduleKind::ZbH1, 2, 1), "zb-h1", 1);
  CHECK(text.find("\"csv\": \"0F0,0I0,0W0\\n1F0,1I0,1W0\\n\"") != text.npos);
  CHECK(text.find("\"max_in_flight\"") != text.npos);
}

}  // namespace meshplan::reports
