#include "commands/catalog_command.hpp"

#include <fmt/format.h>
#include <memory>
#include <optional>

#include "output/output.hpp"
#include "process/exit_codes.hpp"

namespace meshplan::cli {

void add_catalog_command(CommandLine& line, const CatalogCommand& command) {
  struct Options {
    std::optional<std::string> item;
    bool json = false;
    bool schema = false;
  };
  const auto options = std::make_shared<Options>();
  Command added = line.add(command.name, command.summary);
  added.positional(command.item, options->item, command.item_help)
      .suggests(command.items)
      .takes_file()
      .flag("--json", options->json, command.json_help)
      .flag("--schema", options->schema, command.schema_help);
  command.add_options(added);
  added.examples(command.examples).on_run([options, command] {
    if (options->schema)
      output("{}", command.schema());
    else if (options->item)
      output("{}", command.one(*options->item, options->json));
    else
      output("{}", command.all(options->json));
    return kDone;
  });
}

}  // namespace meshplan::cli
