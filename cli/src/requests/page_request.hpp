// What the page of `meshplan report` shows of one plan, as JSON, for pages that draw it themselves.
#pragma once

#include <cstdint>

#include "requests/question.hpp"

namespace meshplan::cli {

/// --bars, which `meshplan report` has, too.
void add_bars_option(Command& command, std::int64_t& bars);

/// The options of simulate, and --bars; answers reports::page_json.
Question page_question();

}  // namespace meshplan::cli
