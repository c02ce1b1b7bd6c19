#pragma once

#include <string_view>

namespace meshplan::reports {

/// reports/web/ as one document, with the marks <!--TEXT--> and <!--DATA--> for a page's own.
/// Written at build time (cmake/EmbedPage.cmake).
std::string_view page_template();

}  // namespace meshplan::reports
