#include "planner/formats/python_syntax.hpp"

#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>

#include "core/error.hpp"
#include "planner/formats/exported_text.hpp"

namespace meshplan::planner::format_tests {
namespace {

namespace fs = std::filesystem;

constexpr const char* kParser = R"(
import ast, pathlib, sys
for path in pathlib.Path(sys.argv[1]).glob("*.py"):
    doc = ""
    try:
        module = ast.parse(path.read_bytes())
        doc = ast.get_docstring(module, clean=False) or ""
        if doc:
            module.body.pop(0)
        tree = ast.dump(module)
    except (SyntaxError, ValueError) as error:
        tree = f"error: {error}"
    path.with_suffix(".tree").write_text(tree)
    path.with_suffix(".doc").write_bytes(doc.encode(errors="surrogatepass"))
)";

}  // namespace

PythonModules parse_with_python(const std::vector<std::string>& texts) {
  if (std::system("python3 -c '' >/dev/null 2>&1") != 0)
    return {.by_text = {}, .why_not = "no python3"};
  std::string pattern = (fs::temp_directory_path() / "meshplan-python-XXXXXX").string();
  require_invariant(mkdtemp(pattern.data()) != nullptr, "a folder for modules can be made");
  const fs::path folder = pattern;
  for (std::size_t i = 0; i < texts.size(); ++i)
    std::ofstream(folder / fmt::format("{}.py", i), std::ios::binary) << texts[i];
  std::ofstream(folder / "parser.txt") << kParser;
  const std::string command =
      fmt::format("python3 -I '{0}/parser.txt' '{0}' >/dev/null", folder.string());
  PythonModules modules;
  if (std::system(command.c_str()) != 0) modules.why_not = "python3 failed";
  for (std::size_t i = 0; i < texts.size(); ++i)
    modules.by_text[texts[i]] = {text_of_file(folder / fmt::format("{}.tree", i)),
                                 text_of_file(folder / fmt::format("{}.doc", i))};
  fs::remove_all(folder);
  return modules;
}

}  // namespace meshplan::planner::format_tests
