#include "options/host_options.hpp"

namespace meshplan::cli {

void add_host_options(Command& command, HostOptions& options) {
  command.group("Where it runs")
      .option("--hosts", options.hosts,
              "hosts and the ranks that each takes: a:2,b:2; default: this machine")
      .of_launcher()
      .option("--hostfile", options.hostfile, "the same, one host per line")
      .takes_file()
      .of_launcher()
      .flag("--no-binding", options.no_binding, "do not bind ranks to cores")
      .of_launcher()
      .option("--hang-timeout", options.hang_timeout_s,
              "seconds without progress after which the job is ended");
}

}  // namespace meshplan::cli
