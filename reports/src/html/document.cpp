#include <algorithm>
#include <string>
#include <string_view>

#include "core/quoting.hpp"
#include "html/template.hpp"
#include "reports/html/page.hpp"

namespace meshplan::reports {
namespace {

/// JSON that may stand inside a script element: no byte of it ends that, whatever names it holds.
std::string for_script(std::string_view json) {
  constexpr std::string_view kLineSeparator = "\xe2\x80\xa8", kParagraphSeparator = "\xe2\x80\xa9";
  std::string text;
  text.reserve(json.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::string_view rest = json.substr(i, 3);
    if (json[i] == '<' || json[i] == '>' || json[i] == '&') {
      text += json[i] == '<' ? "\\u003c" : json[i] == '>' ? "\\u003e" : "\\u0026";
    } else if (rest == kLineSeparator || rest == kParagraphSeparator) {
      text += rest == kLineSeparator ? "\\u2028" : "\\u2029";
      i += rest.size() - 1;
    } else {
      text += json[i];
    }
  }
  return text;
}

void replace_marker(std::string& document, std::string_view marker, std::string_view text) {
  document.replace(document.find(marker), marker.size(), text);
}

}  // namespace

std::string filled(std::string_view page, std::string_view json, std::string_view text) {
  std::string document(page);
  const std::string data = for_script(json);
  document.reserve(document.size() + data.size());
  // Markers stand in this order, and what is pasted comes behind those still to be found.
  replace_marker(document, "<!--DATA-->", data);
  replace_marker(document, "<!--TEXT-->", html_text(text));
  return document;
}

std::string to_html(const Page& page) {
  return filled(page_template(), page_json(page), to_text(page.simulation));
}

}  // namespace meshplan::reports
