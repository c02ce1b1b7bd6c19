// meshplan status: where an elastic run stands, and the states of its hosts.
#include <memory>

#include "commands/commands.hpp"
#include "commands/run/job_log.hpp"
#include "core/error.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"

namespace meshplan::cli {

void add_status_command(CommandLine& line) {
  struct Options {
    std::optional<std::string> folder;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  line.add("status", "Show where an elastic run stands, and the states of its hosts")
      .positional("folder", options->folder, "of its checkpoints; default: checkpoints")
      .is_path()
      .flag("--json", options->json, "print the record for programs")
      .examples(
          "  meshplan status\n"
          "  meshplan status /data/run7/checkpoints --json")
      .on_run([options] {
        const std::string folder = options->folder.value_or("checkpoints");
        const std::optional<JobRecord> job = read_job(folder);
        if (!job)
          throw ConfigError(fmt::format(
              "{}: there is no such file: no elastic run has saved to {}; start one with `meshplan "
              "run plan.json --elastic`, or name the folder of its checkpoints",
              job_file(folder), folder));
        output("{}", options->json ? to_json(*job) : to_text(*job, folder, wall_s()));
        return kDone;
      });
}

}  // namespace meshplan::cli
