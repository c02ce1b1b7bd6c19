#include "core/quoting.hpp"

#include <catch2/catch.hpp>

#include "core/csv.hpp"
#include "core/printable.hpp"
#include "support/hostile_strings.hpp"

namespace meshplan {
namespace {

TEST_CASE("A shell's word is quoted where it must be", "[core][quoting]") {
  CHECK(shell_quoted("plan-1.json") == "plan-1.json");
  CHECK(shell_quoted("") == "''");
  CHECK(shell_quoted("a b") == "'a b'");
  CHECK(shell_quoted("it's $(x)") == "'it'\\''s $(x)'");
}

TEST_CASE("Texts of Python and YAML escape what ends them", "[core][quoting]") {
  CHECK(python_text("plain") == "\"plain\"");
  CHECK(python_text("\"\\\n\t") == "\"\\\"\\\\\\n\\u0009\"");
  CHECK(python_text("\xe2\x80\xae \xff \xf3\xa0\x80\xa1 \xc3\xbc") ==
        "\"\\u202e \\ufffd \\U000e0021 \xc3\xbc\"");
  CHECK(docstring_text("ends \"\"\" here \\") == "ends \\\"\\\"\\\" here \\\\");
  CHECK(yaml_text("llama3-70b") == "llama3-70b");
  for (const char* other : {"yes", "NO",  "null", "~",  "1e3", "0x10", "- a", "a: b", "a #b", "&a",
                            "*a",  "!!x", "@a",   "%a", "'a'", "[a",   "{a",  " a",   "a ",   ""})
    CHECK(yaml_text(other) == '"' + std::string(other) + '"');
}

TEST_CASE("Markdown and HTML show a text as it is", "[core][quoting]") {
  CHECK(markdown_text("tp4 sp pp2, qwen3_30b: 12.5 %") == "tp4 sp pp2, qwen3_30b: 12.5 %");
  CHECK(markdown_text("a|b <c> [d](e) `f` *g* _h_") ==
        "a\\|b &lt;c&gt; \\[d\\](e) \\`f\\` \\*g\\* \\_h\\_");
  CHECK(markdown_text("# no heading\n- nor a list") == "\\# no heading\\\\n- nor a list");
  CHECK(html_text("<a href=\"x\">'&'</a>") ==
        "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
}

TEST_CASE("No hostile string leaves its line", "[core][quoting]") {
  for (const std::string& text : test::hostile_strings()) {
    INFO(printable_line(text).substr(0, 80));
    for (const std::string& written : {comment_text(text), python_text(text), docstring_text(text),
                                       yaml_text(text), markdown_text(text)})
      CHECK(printable_line(written) == written);
    CHECK(docstring_text(text).find("\"\"\"") == std::string::npos);
    CHECK(markdown_text(text).find("<s") == std::string::npos);
    const auto cells = parse_csv(csv_cell(text) + ",after\n", "file");
    REQUIRE(cells.size() == 1);
    REQUIRE(cells[0].size() == 2);
    CHECK((cells[0][0] == text || cells[0][0] == "'" + text));
  }
}

TEST_CASE("No cell is a formula of a spreadsheet", "[core][quoting]") {
  for (const char* formula : {"=1+1", "@SUM(A1)", "+A1", "-A1", "-", "+1+1", "=", "\t=1"})
    CHECK(csv_cell(formula) == std::string("'") + formula);
  CHECK(csv_cell("=HYPERLINK(\"x\")") == "\"'=HYPERLINK(\"\"x\"\")\"");
  for (const char* data : {"-1", "-1.5e-3", "+2", "1-1", "llama3-8b", "", "a=b"})
    CHECK(csv_cell(data) == data);
}

}  // namespace
}  // namespace meshplan
