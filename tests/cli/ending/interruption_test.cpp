#include "ranks/interruption.hpp"

#include <catch2/catch.hpp>
#include <csignal>

namespace meshplan::cli {
namespace {

TEST_CASE("the command to go on is the user's own, quoted, from the checkpoint that is named") {
  CHECK(resuming_command({"meshplan", "run", "my plan.json", "--steps", "9"}, "saved/step-4") ==
        "meshplan run 'my plan.json' --steps 9 --resume saved/step-4");
  // Where it started before is replaced, in both spellings.
  CHECK(resuming_command({"./meshplan", "run", "p.json", "--resume", "latest", "--keep", "2"},
                         "it's/step-4") ==
        R"(./meshplan run p.json --keep 2 --resume 'it'\''s/step-4')");
  CHECK(resuming_command({"meshplan", "run", "p.json", "--init-from=gpt2", "--assume", "llama"},
                         "c/step-4") == "meshplan run p.json --resume c/step-4");
}

TEST_CASE("an interruption says by what, after which step, and what was saved") {
  const std::vector<std::string> command{"meshplan", "run", "p.json"};
  runtime::Interruption end{.signal = SIGHUP, .run = runtime::StoppedRun{SIGHUP, 12, true}};
  CHECK(interruption_text(end, "c", command) ==
        "meshplan: interrupted by SIGHUP after step 12; saved c/step-12\n"
        "meshplan: to go on: meshplan run p.json --resume c/step-12\n");
  end.run->saved = false;
  CHECK(interruption_text(end, "", command) ==
        "meshplan: interrupted by SIGHUP after step 12; nothing was saved: with --checkpoint-dir "
        "FOLDER a run is saved when it is interrupted\n");
  CHECK(
      interruption_text({.signal = SIGINT, .forced = true}, "", command) ==
      "meshplan: interrupted by SIGINT and ended at once by a second signal; nothing was saved\n");
  CHECK(interruption_text({}, "", command) ==
        "meshplan: interrupted by a signal; nothing was saved\n");
}

}  // namespace
}  // namespace meshplan::cli
