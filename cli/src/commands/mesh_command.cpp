// meshplan mesh: rank <-> coordinates and process groups.
#include <fmt/format.h>

#include "commands/commands.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "reports/mesh_report.hpp"

namespace meshplan::cli {
namespace {

struct MeshOptions {
  program::ParallelConfig parallel;
  std::string order = program::Mesh::kDefaultOrder;
  std::optional<int> rank;
  bool json = false;
};

int run(const MeshOptions& options) {
  const program::Mesh mesh(options.parallel, options.order);
  output("{}", options.json ? reports::to_json(mesh, options.rank)
                            : reports::to_text(mesh, options.rank));
  return kDone;
}

}  // namespace

void add_mesh_command(CommandLine& line) {
  const auto options = std::make_shared<MeshOptions>();
  line.add("mesh", "Show which rank is where, and who communicates with whom")
      .option("--tp", options->parallel.tp, "tensor parallel size")
      .option("--cp", options->parallel.cp, "context parallel size")
      .option("--pp", options->parallel.pp, "pipeline stages")
      .option("--dp", options->parallel.dp, "data parallel size")
      .option("--ep", options->parallel.ep, "expert parallel size; divides tp * cp * dp")
      .option("--etp", options->parallel.etp, "expert tensor parallel size")
      .option("--order", options->order, "axes from innermost to outermost")
      .option("--rank", options->rank, "show this rank and its groups only")
      .flag("--json", options->json, "print the result for programs")
      .examples(
          "  meshplan mesh --tp 2 --pp 4 --dp 2\n"
          "  meshplan mesh --tp 8 --pp 4 --dp 16 --rank 100")
      .on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
