# What is asked of meshplan by the command, from Python and in a page: options, and answers to them.
set(portable_requests
    options/command_line.cpp options/inputs.cpp options/plan_options.cpp options/plan_input.cpp
    options/search_options.cpp options/stack_options.cpp options/optimizer_options.cpp
    options/what_if.cpp options/plan_for_ranks.cpp options/whole_run/failure_options.cpp
    options/whole_run/saving_options.cpp
    requests/question.cpp requests/plan_request.cpp requests/simulate_request.cpp
    requests/page_request.cpp)
# What these need of a machine. A page has its own: classroom/src/surroundings.
set(surroundings options/foreign.cpp output/progress.cpp process/files.cpp process/threads.cpp)
# What no page asks.
set(other_requests requests/check_request.cpp requests/validate_request.cpp)
foreach(list portable_requests surroundings other_requests)
  list(TRANSFORM ${list} PREPEND ${CMAKE_CURRENT_LIST_DIR}/src/)
endforeach()
