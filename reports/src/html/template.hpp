#pragma once

#include <string>
#include <string_view>

namespace meshplan::reports {

/// reports/web/ as one document, with the marks <!--TEXT--> and <!--DATA--> for a page's own.
/// Written at build time (cmake/EmbedPage.cmake).
std::string_view page_template();
/// The same for a scaling curve (reports/web/scaling).
std::string_view scaling_template();

/// The same for a plan of another stack (reports/web/software).
std::string_view software_template();

/// A template with its marks replaced. @param json  what the page shows
/// @param text  its main figures, for browsers that run no script
std::string filled(std::string_view page, std::string_view json, std::string_view text);

}  // namespace meshplan::reports
