#pragma once

#include "html/page_fields.hpp"
#include "reports/html/page.hpp"

namespace meshplan::reports {

PageJson json_of(const Page& page);

}  // namespace meshplan::reports
