// Strings that a shell, Python, YAML, a terminal or a path would take for more than text.
#pragma once

#include <string>
#include <vector>

namespace meshplan::test {

/// Commands in them would make a file of this name.
constexpr const char* kPlanted = "PWNED";

inline const std::vector<std::string>& hostile_strings() {
  using namespace std::string_literals;
  static const std::vector<std::string> all = {
      "x\ntouch PWNED #",
      "x\r\ntouch PWNED",
      "x\rtouch PWNED",
      "x\x0btouch PWNED",
      "x\x0ctouch PWNED",
      "x\xc2\x85touch PWNED",      // U+0085, YAML's next line
      "x\xe2\x80\xa8touch PWNED",  // U+2028
      "x\xe2\x80\xa9touch PWNED",  // U+2029
      "nul\0touch PWNED"s,
      "$(touch PWNED)",
      "`touch PWNED`",
      "'; touch PWNED; '",
      "\"; touch PWNED; \"",
      "\"; touch PWNED #",
      "; touch PWNED;",
      "& touch PWNED &",
      "| touch PWNED",
      "> PWNED",
      "${HOME}",
      "$((1/0))",
      "\"\"\"\nimport os; os.system('touch PWNED')\n\"\"\"",
      "\"\"\"",
      "'''",
      "\" + __import__('os').system('touch PWNED') + \"",
      "\\",
      "ends in \\",
      "\\\"",
      "\\N{BULLET} \\x \\u1",
      "!!python/object/apply:os.system ['touch PWNED']",
      "a: b",
      ": ",
      "- a",
      "a #b",
      "# a",
      "%{PWNED}",
      "%s %d %n",
      "{{ PWNED }}",
      "{0}{title}",
      "<script>alert(1)</script>",
      "</script><script>alert(1)</script>",
      "](javascript:alert(1)) | **x** | `y`",
      "--flag",
      "-rf",
      "~",
      "*",
      "@file",
      "&anchor",
      "*alias",
      "yes",
      "1e3",
      "0x10",
      "null",
      "=cmd|' /C calc'!A0",
      " leading blank",
      "trailing blank ",
      "\ttab",
      "../../etc/passwd",
      "/etc/passwd",
      "\xef\xbb\xbfmark of byte order",
      "zero\xe2\x80\x8bwidth",
      "right\xe2\x80\xaeto left",
      "\xe2\x81\xa6isolate",
      "\x1b[31mred\x1b[0m",
      "delete\x7f",
      "C1 \xc2\x9b"
      "31m",
      "not UTF-8 \xff\xfe",
      "cut \xe2\x82",
      "overlong \xc0\xaf",
      "surrogate \xed\xa0\x80",
      "Schl\xc3\xbcssel \xe9\x8d\xb5 \xf0\x9f\x94\x91",  // of any language, and harmless
      std::string(100000, 'a'),
  };
  return all;
}

}  // namespace meshplan::test
